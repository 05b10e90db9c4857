"""Markdown and formulas as data, read in bounded steps. Draws nothing."""
