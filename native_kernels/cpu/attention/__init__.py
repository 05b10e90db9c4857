"""Attention on the CPU: norms, rotary positions, the KV cache and the softmax over it."""
