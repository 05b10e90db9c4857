"""Folders of documents on this PC: their files are indexed where they are, and searched for questions."""
