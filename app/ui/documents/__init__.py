"""The user's documents in the window: their folders, and the sources of answers."""
