"""Folders of documents on this PC: read where they lie, indexed, searched for questions. Nothing is copied or sent."""
