"""The models on this PC: find, read headers, import, move and remove them."""
