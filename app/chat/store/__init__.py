"""Chats in SQLite and in files: storage, search, rescue, import and export."""
