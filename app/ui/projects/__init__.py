"""The dialogs of projects, and what connects them with the window."""
