"""Run the long jobs of preparing in a separate process, with the engine's protocol over its pipes.

A stage can be stopped at any point, its memory is returned, and if the system kills it for lack of memory, downloads
and chats continue. The jobs themselves keep their finished work.
"""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

import engine
from engine.errors import Cancelled, EngineError, EngineProcessError, error_class
from engine.job import CancelCheck
from engine.service import protocol

log = logging.getLogger(__name__)

Report = Callable[[str, int, int], None]  # stage of the job, done, total

CANCEL_S = 0.5  # to end by itself before it is killed
_LOOK_S = 0.1
_NICENESS = 10  # chatting goes first
_HINT = "Try again: it continues where it stopped. If memory is short, close other programs."


class Jobs(Protocol):
    """Runs jobs of engine/service/jobs.py, in this process or a separate one."""

    def run(self, job: str, arguments: Mapping[str, Any], report: Report, cancelled: CancelCheck) -> dict[str, Any]: ...

    def close(self) -> None: ...


class StageProcess:
    """One child process for a series of jobs, started with the first. Not thread-safe."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = list(command or default_command())
        self._child: subprocess.Popen[bytes] | None = None
        self._heard: queue.Queue[protocol.Message | None] = queue.Queue()
        self._last_words: deque[str] = deque(maxlen=20)
        self._readers: list[threading.Thread] = []
        self._jobs = 0

    @property
    def pid(self) -> int | None:
        """The child's process id; None if none is running."""
        return None if self._child is None else self._child.pid

    def run(self, job: str, arguments: Mapping[str, Any], report: Report, cancelled: CancelCheck) -> dict[str, Any]:
        """Return the job's result.

        Raises: the job's error, as an EngineError of the same class; Cancelled, at most CANCEL_S after the request;
        EngineProcessError if the process dies.
        """
        if cancelled():
            raise Cancelled
        self._start()
        self._jobs += 1
        name = f"stage-{self._jobs}"
        self._say(protocol.Job(name, job, dict(arguments)))
        stop_at: float | None = None
        while True:
            if stop_at is None and cancelled():
                self._say(protocol.Cancel(f"cancel-{self._jobs}", name))
                stop_at = time.monotonic() + CANCEL_S
            if stop_at is not None and time.monotonic() >= stop_at:
                log.info("The job %s does not look up; its process is ended", job)
                self._kill()
                raise Cancelled
            try:
                message = self._heard.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            match message:
                case None:
                    raise self._died(job)
                case protocol.Progress(id=id) if id == name:
                    report(message.stage, message.done, message.total)
                case protocol.Finished(id=id) if id == name:
                    if message.result.get("cancelled") is True:
                        raise Cancelled
                    return message.result
                case protocol.Failed(id=id) if id in (name, ""):
                    raise _failure(message)

    def close(self) -> None:
        """End the child. A second call does nothing."""
        self._kill()

    def __enter__(self) -> StageProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the child

    def _start(self) -> None:
        if self._child is not None:
            return
        flags: dict[str, Any] = {}
        if sys.platform == "win32":
            flags["creationflags"] = subprocess.CREATE_NO_WINDOW | subprocess.BELOW_NORMAL_PRIORITY_CLASS
        try:
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                **flags,
            )
        except OSError as error:
            raise EngineProcessError(
                f"The process that prepares models cannot be started: {error.strerror or error}.", "Try again."
            ) from error
        _be_nice(child.pid)
        self._child, self._heard = child, queue.Queue()
        self._last_words.clear()
        assert child.stdout is not None, "it is piped"
        assert child.stderr is not None, "so is it"
        self._readers = [
            threading.Thread(target=_listen, args=(child.stdout, self._heard), name="stage", daemon=True),
            threading.Thread(target=_note, args=(child.stderr, self._last_words), name="stage-log", daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self._say(protocol.Hello(pid=os.getpid()))

    def _say(self, message: protocol.Request | protocol.Hello) -> None:
        child = self._child
        if child is None or child.stdin is None:
            return
        with suppress(OSError):  # that it died is heard from the other pipe
            child.stdin.write(protocol.encode(message))
            child.stdin.flush()

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(OSError):
            child.kill()
        child.wait()
        for reader in self._readers:  # their pipes have ended
            reader.join(_LOOK_S)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with suppress(OSError, ValueError):
                    pipe.close()

    def _died(self, job: str) -> EngineProcessError:
        child = self._child
        code = None if child is None else child.wait()
        for line in self._last_words:
            log.info("%s: %s", job, line)
        self._kill()
        how = f"ended with exit code {code}" if code is None or code >= 0 else f"was ended by signal {-code}"
        return EngineProcessError(f"The process that prepared the model {how} during {job}.", _HINT)


def default_command() -> list[str]:
    """Return the command that starts this program's engine."""
    if getattr(sys, "frozen", False):
        return [sys.executable, "--engine-host"]
    # -P: a file called json.py in the user's folder must not be imported by the engine.
    return [sys.executable, "-P", "-m", "engine", "host"]


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    if not getattr(sys, "frozen", False):
        root = str(Path(engine.__path__[0]).resolve().parent)
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = root + (os.pathsep + before if before else "")
    environment["PYTHONIOENCODING"] = "utf-8"
    return environment


def _be_nice(pid: int) -> None:
    """Lower the priority; on Windows, the flags at the start did."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))


def _listen(pipe: IO[bytes], heard: queue.Queue[protocol.Message | None]) -> None:
    """Queue every message of the child, and None at the end."""
    with suppress(OSError, ValueError):  # closed while it was read
        while line := pipe.readline(protocol.MAX_LINE_BYTES):
            try:
                message = protocol.decode(line)
            except protocol.ProtocolError as error:
                log.info("Passed over: %s", error.message)
                continue
            if not isinstance(message, protocol.Heartbeat):
                heard.put(message)
    heard.put(None)


def _note(pipe: IO[bytes], last_words: deque[str]) -> None:
    with suppress(OSError, ValueError):
        for line in pipe:
            last_words.append(line.decode(errors="replace").rstrip()[:500])


def _failure(message: protocol.Failed) -> EngineError:
    if message.crash:
        log.error("A stage of preparing failed: %s\n%s", message.message, message.details)
        return EngineError("A step of preparing failed. The log says more.", message.hint)
    return error_class(message.error)(message.message, message.hint)
