"""The trial of a GPU before its use: checks of kernels and exchanges, and its memory."""
