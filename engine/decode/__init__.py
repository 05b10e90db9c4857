"""One token on the CPU as a program of calls, laid out once and run for every token."""
