"""A model on GPU and CPU together: placement, decode, prefill, batches, and the choice of a GPU."""
