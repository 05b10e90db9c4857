"""Search the hub for models and download them."""
