"""The local API: what a model answers in the window, other programs on this PC may ask for too, in OpenAI's words."""
