"""The prompt cache: prefilled chats on disk, so that a chat continues after a restart without another prefill."""
