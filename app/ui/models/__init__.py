"""The Models page, the model menu, and what opens from them."""
