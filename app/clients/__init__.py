"""Clients of the engine's process, the library's process and servers."""
