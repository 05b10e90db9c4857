"""How the window looks: theme, icons, painting, and the direction and language of its text."""
