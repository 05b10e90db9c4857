"""The local API: other programs on this PC may use the window's model through OpenAI's protocol."""
