"""The dialogs of projects: settings of a folder, instructions for one chat, an addition to the notes."""
