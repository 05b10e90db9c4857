"""Chats in SQLite and in files: saving, searching, rescue and import."""
