"""Hearth's window: the only package that knows Qt."""

__version__ = "0.1.0"
