"""The engine as its own process: the protocol, its host, long jobs and live figures."""

DEFAULT_PORT = 8434  # of the local API
