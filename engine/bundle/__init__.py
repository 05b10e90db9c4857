"""Hearth's own model format, conversion into it, and the statistics and predictors kept with a model."""
