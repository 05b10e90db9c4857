"""Products of a matrix's rows with one vector, in every codec, and what they read and round."""
