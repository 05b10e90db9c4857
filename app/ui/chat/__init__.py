"""The chat page: transcript, composer, and what opens from them."""
