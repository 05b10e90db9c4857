"""The window by keyboard: commands and shortcuts, the palette, and where the focus is."""
