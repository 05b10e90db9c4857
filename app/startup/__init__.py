"""From a command line to an open window, or to a chat in the terminal."""
