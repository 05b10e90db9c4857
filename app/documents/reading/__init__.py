"""Reads files of many kinds in a bounded child process."""
