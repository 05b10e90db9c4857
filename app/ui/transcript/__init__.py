"""The transcript: messages to read, select and copy."""
