"""Decoders for the blocks of every codec."""
