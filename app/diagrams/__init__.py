"""Mermaid diagrams, drawn in a separate process."""
