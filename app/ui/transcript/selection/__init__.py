"""One selection over all messages of a chat, and what is copied of it."""
