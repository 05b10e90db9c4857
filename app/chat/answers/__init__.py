"""How answers are asked for: their settings, the queue, and what came of them."""
