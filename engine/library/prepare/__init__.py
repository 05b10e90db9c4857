"""Prepares a model for this machine: plans the stages and runs them in a process of their own."""
