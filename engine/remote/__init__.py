"""Talks to OpenAI-compatible servers on other machines, where a person chose one for a chat. Nothing here computes."""
