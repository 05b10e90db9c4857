"""Servers that chats can be sent to, and the server on this PC."""
