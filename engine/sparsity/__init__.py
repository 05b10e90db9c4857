"""Statistics, predictors and placements as data, with their file formats. Created once, used by every answer."""
