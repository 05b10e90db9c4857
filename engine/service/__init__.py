"""The engine as a process of its own: the protocol, the host that answers it, long jobs and live figures."""
