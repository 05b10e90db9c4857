"""The models on this PC: where they are, what their headers say, importing, moving and removing them."""
