"""Keyboard use of the window: commands and shortcuts, the palette, and focus."""
