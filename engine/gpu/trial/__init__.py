"""Tries a GPU before it is trusted: kernels checked, ways of running compared, the VRAM budget."""
