"""A child process for the window, the engine or the library: started, watched, ended, and restarted when it dies.

Both speak engine/service/protocol.py. Runs in the worker thread, which it blocks only at the very end.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Slot

import engine
from app.later import Later

if TYPE_CHECKING:
    from engine.service import protocol
else:
    protocol = Later("engine.service.protocol")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineStarted:
    """The engine is up and accepts requests. pid: 0 in the window's own process."""

    pid: int = 0


@dataclass(frozen=True)
class EngineDied:
    """The engine's process died and its work is lost. details: the end of its log."""

    reason: str  # one sentence
    restarting: bool
    details: str = ""


LET_GO_MS = 200  # interval of checks whether a killed child has ended
Emit = Callable[["protocol.Event | EngineStarted | EngineDied"], None]


class Host(Protocol):
    """Where the engine runs: in a process of its own or in the worker thread."""

    def start(self) -> None: ...

    def submit(self, request: protocol.Request) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Timeouts:
    """Time limits for the engine, in seconds."""

    hello_s: float = 60.0  # cold disks and virus scanners are slow
    silence_s: float = 15.0  # fifteen heartbeats were missed
    close_s: float = 1.2
    backoff_s: tuple[float, ...] = (0.1, 1.0, 4.0)
    max_deaths: int = 3  # within `window_s`; after that it is not restarted
    window_s: float = 60.0


class BoundedLog:
    """The child's stderr on disk: two files of at most `limit_bytes`, and the last lines in memory."""

    def __init__(self, path: Path, limit_bytes: int = 1 << 20) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._recent: deque[bytes] = deque(maxlen=40)
        self._broken = False

    def write(self, data: bytes) -> None:
        """Append. A disk error is reported once; the lines in memory continue."""
        self._recent.extend(data.splitlines())
        if self._broken:
            return
        try:
            if self._path.exists() and self._path.stat().st_size + len(data) > self._limit_bytes:
                os.replace(self._path, self._path.with_name(self._path.name + ".1"))
            with self._path.open("ab") as file:
                file.write(data[-self._limit_bytes :])
        except OSError as error:
            self._broken = True
            log.info("the engine's log cannot be written: %s", error)

    def tail(self) -> str:
        return b"\n".join(self._recent).decode(errors="replace")


def default_command(*flags: str) -> list[str]:
    """Return the command that starts this program's engine, from any folder. flags: of `engine host`."""
    if getattr(sys, "frozen", False):
        return [sys.executable, "--engine-host", *flags]
    # -P: a json.py in the user's folder must not become part of the engine.
    return [sys.executable, "-P", "-m", "engine", "host", *flags]


def app_command(*flags: str) -> list[str]:
    """Return the command that starts this program's window, or what else the flags ask for, from any folder."""
    return [sys.executable, *([] if getattr(sys, "frozen", False) else ["-P", "-m", "app"]), *flags]


def environment_of_programs() -> QProcessEnvironment:
    """Return the environment of this program's other processes."""
    environment = QProcessEnvironment.systemEnvironment()
    if not getattr(sys, "frozen", False):
        root = str(Path(engine.__file__).resolve().parents[1])
        before = environment.value("PYTHONPATH")
        environment.insert("PYTHONPATH", root + (os.pathsep + before if before else ""))
    environment.insert("PYTHONIOENCODING", "utf-8")
    return environment


def _reason_of_death(name: str, exit_code: int, crashed: bool) -> str:
    if not crashed:
        return f"The {name}'s process ended by itself with exit code {exit_code}."
    if sys.platform == "win32":
        return f"The {name}'s process crashed with code 0x{exit_code & 0xFFFFFFFF:08X}."
    try:
        number = signal.Signals(exit_code).name
    except ValueError:
        number = f"signal {exit_code}"
    if number == "SIGKILL":
        return f"The {name}'s process was ended from outside (SIGKILL), as the system does when memory runs out."
    return f"The {name}'s process crashed ({number})."


class ProcessHost(QObject):
    """A child process that speaks engine/service/protocol.py over stdin and stdout.

    Create it on the main thread and move it to a worker thread, which needs an event loop. All signals are connected in
    `__init__`: PySide holds the GIL while it waits for Qt's lock of connections, so that a `connect` in one thread and
    a `disconnect` in another can deadlock. After a death it restarts and sends the last Load again; running requests
    are lost, and EngineDied says so.
    """

    def __init__(
        self,
        emit: Emit,
        log_folder: Path,
        command: Sequence[str] | None = None,
        timeouts: Timeouts | None = None,
        name: str = "engine",
    ) -> None:
        """name: for its log and for messages about its end."""
        super().__init__()
        self._name = name
        self._emit = emit
        self._command = list(command or default_command())
        self._timeouts = timeouts or Timeouts()
        self._log = BoundedLog(log_folder / f"{name}.log")
        self._folder = log_folder
        self._process = QProcess(self)  # serves one child after the other
        self._is_up = False  # a child process was started, and its end was not reported yet
        self._buffer = bytearray()
        self._greeted = False
        self._closing = False
        self._given_up = False
        self._verdict = ""  # why we ended the child ourselves
        self._waiting: list[protocol.Request] = []  # until the child says hello
        self._last_load: protocol.Load | None = None
        self._deaths: deque[float] = deque()
        self._heard = self._ticked = time.monotonic()
        self._watch = QTimer(self, interval=max(20, int(self._timeouts.silence_s * 1000 / 15)))
        self._watch.timeout.connect(self._check_alive)
        self._again = QTimer(self, singleShot=True)
        self._again.timeout.connect(self._spawn)
        self._process.readyReadStandardOutput.connect(self._read)
        self._process.readyReadStandardError.connect(self._read_log)
        self._process.finished.connect(self._finished)
        self._process.errorOccurred.connect(self._failed)

    # --- what the worker asks

    def start(self) -> None:
        """Start the child, also after `close`; returns at once. EngineStarted or EngineDied follows."""
        if not self._is_up and not self._again.isActive():
            self._given_up = self._closing = False
            self._deaths.clear()
            self._spawn()

    def submit(self, request: protocol.Request) -> None:
        """Send a request, or keep it until the child says hello."""
        if isinstance(request, protocol.Load):
            self._last_load = request
            if self._given_up:  # a new request for a model is a new chance
                self._waiting.append(request)
                self.start()
                return
        elif isinstance(request, protocol.Unload):
            self._last_load = None
        elif isinstance(request, protocol.ChooseDraft) and self._last_load is not None:
            self._last_load = replace(self._last_load, engine={**self._last_load.engine, "draft": request.draft})
        if self._given_up:
            self._emit(protocol.Failed(request.id, "EngineProcessError", f"The {self._name} is not running.",
                                       "Load the model again."))  # fmt: skip
        elif self._greeted:
            self._write(protocol.encode(request))
        else:
            self._waiting.append(request)

    def close(self) -> None:
        """End the child: politely, then by force. Cost: at most close_s and 1 s."""
        self._closing = True
        self._watch.stop()
        self._again.stop()
        if not self._is_up:
            return
        if self._greeted:
            self._write(protocol.encode(protocol.Shutdown("shutdown")))
        self._process.closeWriteChannel()  # the child ends with its stdin, whatever it is doing
        if not self._process.waitForFinished(int(self._timeouts.close_s * 1000)):
            self._process.kill()
            self._process.waitForFinished(1000)
        self._is_up = False
        self._greeted = False
        self._waiting.clear()

    # --- the child's life

    @Slot()
    def _spawn(self) -> None:
        process = self._process
        if process.state() != QProcess.ProcessState.NotRunning:  # killed, but the system has not released it yet
            self._again.start(LET_GO_MS)
            return
        self._buffer.clear()
        self._greeted = False
        self._verdict = ""
        self._heard = self._ticked = time.monotonic()
        process.setProgram(self._command[0])
        process.setArguments(self._command[1:])
        process.setProcessEnvironment(environment_of_programs())
        if self._folder.is_dir():  # our working directory may be deleted
            process.setWorkingDirectory(str(self._folder))
        if sys.platform != "win32":  # Ctrl+C in the terminal goes to the window, which ends its child
            options = QProcess.UnixProcessParameters()
            options.flags = QProcess.UnixProcessFlag.CreateNewSession
            process.setUnixProcessParameters(options)
        self._is_up = True
        self._watch.start()
        process.start()
        self._write(protocol.encode(protocol.Hello(app_version=engine.__version__, pid=os.getpid())))

    def _write(self, line: bytes) -> None:
        if self._process.state() != QProcess.ProcessState.NotRunning:
            self._process.write(line)

    @Slot()
    def _read_log(self) -> None:
        self._log.write(bytes(self._process.readAllStandardError().data()))

    @Slot()
    def _read(self) -> None:
        if not self._is_up or self._verdict:
            return
        self._heard = time.monotonic()
        data, lines = self._process.readAllStandardOutput().data(), list[bytes]()
        self._buffer += data
        if b"\n" in data:  # a long line is split once, not with each of its parts
            *lines, rest = bytes(self._buffer).split(b"\n")
            self._buffer = bytearray(rest)
        if len(self._buffer) > protocol.MAX_LINE_BYTES:
            self._end(f"The {self._name}'s process sent a line without end.")
            return
        for line in lines:
            if not line.strip():
                continue
            try:
                self._on_message(protocol.decode(line))
            except protocol.ProtocolError as error:
                self._end(error.message)
                return

    def _on_message(self, message: protocol.Message) -> None:
        if isinstance(message, protocol.Hello):
            self._greet(message)
        elif not self._greeted:
            raise protocol.ProtocolError(
                f"The {self._name}'s process began with a {message.type} message instead of hello."
            )
        elif isinstance(message, protocol.Event):
            if isinstance(message, protocol.Failed) and self._last_load and message.id == self._last_load.id:
                self._last_load = None  # it would fail the same way after a restart
            self._emit(message)
        else:
            raise protocol.ProtocolError(f"The {self._name}'s process sent a request of type {message.type}.")

    def _greet(self, hello: protocol.Hello) -> None:
        if hello.version != protocol.PROTOCOL_VERSION:
            self._deaths.extend([time.monotonic()] * self._timeouts.max_deaths)  # another try would change nothing
            raise protocol.ProtocolError(
                f"The {self._name} speaks version {hello.version} of the protocol and this window "
                f"version {protocol.PROTOCOL_VERSION}."
            )
        self._greeted = True
        self._emit(EngineStarted(hello.pid))
        waiting, self._waiting = self._waiting, []
        if self._last_load is not None and not any(isinstance(request, protocol.Load) for request in waiting):
            waiting.insert(0, self._last_load)
        for request in waiting:
            self._write(protocol.encode(request))

    @Slot()
    def _check_alive(self) -> None:
        """Watchdog. If our own tick is late (the computer slept), the silence says nothing about the child."""
        now = time.monotonic()
        if now - self._ticked > 3 + 3 * self._watch.interval() / 1000:
            self._heard = now
        self._ticked = now
        limit = self._timeouts.silence_s if self._greeted else self._timeouts.hello_s
        if now - self._heard > limit:
            self._end(f"The {self._name}'s process did not answer for {limit:.0f} s and was ended.")

    def _end(self, verdict: str) -> None:
        self._verdict = self._verdict or verdict
        self._process.kill()

    @Slot(QProcess.ProcessError)
    def _failed(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart and self._is_up:  # `finished` will not be emitted
            self._died(f"The {self._name}'s process could not be started: {self._process.errorString()}.")

    @Slot(int, QProcess.ExitStatus)
    def _finished(self, exit_code: int, status: QProcess.ExitStatus) -> None:
        self._read()
        self._read_log()
        if self._is_up and not self._closing:
            log.info("a process of the engine ended by itself with %d", exit_code)
            self._died(
                self._verdict or _reason_of_death(self._name, exit_code, status == QProcess.ExitStatus.CrashExit)
            )

    def _died(self, reason: str) -> None:
        self._watch.stop()
        self._is_up = self._greeted = False
        now = time.monotonic()
        self._deaths.append(now)
        while self._deaths and now - self._deaths[0] > self._timeouts.window_s:
            self._deaths.popleft()
        restarting = len(self._deaths) < self._timeouts.max_deaths
        log.info("%s %s", reason, "It starts again." if restarting else "It is not started again.")
        if restarting:
            backoff = self._timeouts.backoff_s[min(len(self._deaths), len(self._timeouts.backoff_s)) - 1]
            self._again.start(int(backoff * 1000))
        else:
            self._given_up = True
            self._waiting.clear()
            self._last_load = None
        self._emit(EngineDied(reason, restarting, self._log.tail()))
