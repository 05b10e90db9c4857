"""Text to tokens and back: vocabularies, tokenizers, chat templates, and what of a chat fits the context."""
