"""Prompts on the GPU: prefill, its memory, and weights that are streamed from RAM."""
