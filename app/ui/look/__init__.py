"""How the window looks: the theme, icons, painting, and the direction and language of its text."""
