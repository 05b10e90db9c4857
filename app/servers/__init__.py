"""Servers that a chat can be sent to, and the server on this PC."""
