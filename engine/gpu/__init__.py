"""A model on a GPU and the CPU at once: what lies where, a token's program, prefill, the choice."""
