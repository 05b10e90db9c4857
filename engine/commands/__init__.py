"""The commands of the command line: call the library and print.

With --json stdout has exactly one JSON object; progress and notes for the user go to stderr. Each command takes its
parsed arguments and returns the exit code; external failures are raised.
"""
