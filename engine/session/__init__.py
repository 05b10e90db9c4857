"""Conversations with a loaded model: from the MODEL argument to the tokens of an answer."""
