"""Products of matrix rows with one vector, in every codec, and the input forms that they read."""
