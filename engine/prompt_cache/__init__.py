"""Computed prompts of chats on disk, so that a chat goes on after a restart without computing its text again."""
