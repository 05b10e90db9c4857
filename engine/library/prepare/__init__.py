"""Prepare a model for this machine: plan the stages and run them in a separate process."""
