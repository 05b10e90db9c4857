"""Text to tokens and back: vocabularies, tokenizers, chat templates, and which messages fit the context window."""
