"""Measures a model: speed, quality, and the bytes that a token reads."""
