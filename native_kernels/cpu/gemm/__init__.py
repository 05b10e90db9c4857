"""Products of a matrix with several positions at once, as prompts and batches need them."""
