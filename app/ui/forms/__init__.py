"""Named fields, and forms made of them."""
