"""Conversion of models to bundles."""
