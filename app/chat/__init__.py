"""Chats: their data and storage, how they are answered, attachments, presets and personas."""
