"""Reads the blocks of every codec as numbers; multiplies nothing."""
