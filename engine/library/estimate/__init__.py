"""Estimate whether a model fits this machine and how fast it runs, before it is downloaded."""
