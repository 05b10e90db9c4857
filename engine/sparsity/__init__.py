"""Statistics, predictors and placements as data, and their reading and writing: made once, used by every answer."""
