"""The settings, About, and the dialog after a crash."""
