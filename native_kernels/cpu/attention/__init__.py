"""Attention on the CPU: norms, rotary positions, the KV cache's rows and the softmax over them."""
