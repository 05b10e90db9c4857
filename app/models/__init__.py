"""Models in the window: rows, labels, selection, and switching between models."""
