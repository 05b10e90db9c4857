"""Decode of several sequences together over GPU and CPU."""
