"""The library as a process: the jobs that the window asks of it, and what they share."""
