"""Markdown as data, read in bounded steps, and formulas as lines and glyphs. No widgets."""
