"""Calls of tools: the formats in which models write them, and how they are asked for, constrained and read."""
