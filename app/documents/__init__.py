"""Documents of the user: reading files of many kinds."""
