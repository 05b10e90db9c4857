"""Prefill on the GPU: its memory, its passes, and weights streamed from RAM."""
