"""Files and long pastes that are attached to a message."""
