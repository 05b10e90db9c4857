"""The engine as its own process: the protocol, its host, long jobs and live figures."""
