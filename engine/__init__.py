"""Hearth's engine as a library. Importing it costs nothing: import names from the modules that define them."""

__version__ = "0.1.0"
