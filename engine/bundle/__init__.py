"""Hearth's model format, and the statistics, predictors and placements stored in it."""
