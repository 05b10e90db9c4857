"""The library as a process: its jobs, and what they share."""
