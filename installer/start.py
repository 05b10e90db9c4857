"""The built program begins here: the window, the command line, or a process that one of them started from itself.

Which of them is said by the name of the file that was started, `hearth` or `hearth-engine`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OWN_PROCESSES = ("--engine-host", "--read-documents", "--import-chats", "--diagrams", "--mcp-server")


def main() -> int:
    """Returns the exit code."""
    restore_library_path()
    if sys.argv[1:] == ["--mcp-server"]:
        from app.tools.mcp.confined import main as confined

        return confined()
    if Path(sys.argv[0]).stem == "hearth-engine" and sys.argv[1:2] not in ([flag] for flag in _OWN_PROCESSES):
        from engine.commands.cli import main as command_line

        return command_line()
    from app.startup.command_line import main as window

    hold_mutex()
    return window()


def hold_mutex() -> None:
    """On Windows: what the installer looks for to know that Hearth is open. The system drops it with the process."""
    if sys.platform != "win32":
        return
    import ctypes

    ctypes.windll.kernel32.CreateMutexW(None, False, "io.github.hearth.Hearth")


def restore_library_path() -> None:
    """Take our own libraries out of what programs that we start get: a browser must not load them."""
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    else:
        os.environ.pop("LD_LIBRARY_PATH", None)


if __name__ == "__main__":
    sys.exit(main())
