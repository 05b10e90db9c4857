"""What the commands of the command line do: call the library and print.

With --json exactly one JSON object goes to stdout and nothing else; progress and figures for people go to stderr.
Each command takes its parsed arguments and returns the exit code; failures of the world are raised.
"""
