"""The FFN on the CPU: predictors, active neurons and their rows."""
