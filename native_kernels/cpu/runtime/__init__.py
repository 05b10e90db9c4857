"""The runtime of the CPU kernels: compilation, vectors, the thread pool, calls and the state of a token."""
