"""Asks the engine's process, the library's and servers elsewhere, and tells what they answer."""
