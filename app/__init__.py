"""Hearth's window: the only package that knows Qt."""
