"""Reads the chats that other programs export. All readers run in a process of their own; see process.py."""
