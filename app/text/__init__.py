"""Markdown and formulas as data, read in bounded steps; it draws nothing."""
