"""Decode of one token on GPU and CPU together: its plan, steps and programs."""
