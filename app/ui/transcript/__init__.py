"""The transcript: messages as they are read, selected and copied."""
