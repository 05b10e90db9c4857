"""How chats are answered: settings, requests, the queue, and the figures of an answer."""
