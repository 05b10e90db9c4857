"""Hearth's own model format, and the statistics, predictors and placements kept in it."""
