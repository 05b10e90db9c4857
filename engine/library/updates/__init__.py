"""Updates of Hearth: the signed manifest, the check, the download, and the installed versions."""
