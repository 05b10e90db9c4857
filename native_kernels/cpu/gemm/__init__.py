"""Products of a matrix with several tokens at once, for prefill and batches."""
