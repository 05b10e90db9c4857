"""The sidebar: the list of chats, its menus, folders and the bin."""
