"""A model on a graphics card and the processor at once: what lies where, a token's program, prefill, the choice."""
