"""Projects: folders of chats with instructions, notes and choices that their chats inherit."""
