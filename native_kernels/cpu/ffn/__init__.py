"""The FFN on the CPU: predictors, active neurons, their rows, and what the GPU and the CPU share of a layer."""
