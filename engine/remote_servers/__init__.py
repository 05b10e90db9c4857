"""Client of OpenAI-compatible servers on other machines, for chats in which the user chose one."""
