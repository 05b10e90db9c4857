"""Several sequences at once on the GPU and the CPU."""
