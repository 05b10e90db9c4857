"""Writes down every attempt of a Python process to reach further than this machine's own sockets.

Python imports a module of this name by itself, so with this folder first in PYTHONPATH it guards a program and every
process that it starts. It forbids nothing: what is written down must not depend on how a failure is taken.
"""

import os
import socket
import sys

_REPORT = os.environ.get("SOCKET_GUARD_REPORT", "")
_LOOKS_UP = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"}
_SENDS = {"socket.connect", "socket.sendto", "socket.sendmsg"}


def _write(words: str) -> None:
    descriptor = os.open(_REPORT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{words}\n".encode())
    os.close(descriptor)


def _heed(event: str, args: tuple[object, ...]) -> None:
    if event in _LOOKS_UP:
        _write(f"{os.getpid()} {event} {args[0]!r}")
    elif event in _SENDS:
        kind = getattr(args[0], "family", None)
        if kind in (socket.AF_INET, socket.AF_INET6):
            _write(f"{os.getpid()} {event} {args[1:]!r}")


if _REPORT:
    _write(f"{os.getpid()} guarded")
    sys.addaudithook(_heed)
