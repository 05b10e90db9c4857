"""Tools that a model may call from a chat: built in, or of servers that the user added."""
