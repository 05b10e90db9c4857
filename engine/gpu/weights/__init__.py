"""Weights on the GPU: their layout, loading and exchange."""
