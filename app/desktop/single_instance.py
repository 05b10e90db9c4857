"""One Hearth for each user and data folder: a second start hands over its request and ends.

A lock file decides which start is first; a local socket beside it accepts the requests of others. Both are in the
user's runtime folder, never in one that other users can write. Opens no window.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import logging
import os
import stat
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QLockFile, QObject, Signal

if TYPE_CHECKING:
    from PySide6.QtNetwork import QLocalServer, QLocalSocket

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 16  # of a request
MAX_FILES = 100
ANSWER_WITHIN_S = 5.0  # the first one may be painting or waiting for a slow disk
_TAKEN = b"taken\n"


@dataclass(frozen=True)
class LaunchRequest:
    """The arguments of a start. files: absolute paths to open. model: an id or a path; empty: none.

    activation: the desktop's token that lets a program that was just started come to the front.
    """

    files: tuple[str, ...] = ()
    model: str = ""
    activation: str = ""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def from_bytes(line: bytes) -> LaunchRequest:
        """Parse a request. Raises ValueError."""
        values: Any = json.loads(line)
        if not isinstance(values, dict):
            raise ValueError("no object")
        files, model, activation = (values.get(name) for name in ("files", "model", "activation"))
        if not isinstance(files, list) or len(files) > MAX_FILES or not all(isinstance(file, str) for file in files):
            raise ValueError("files are not a list of paths")
        if not isinstance(model, str) or not isinstance(activation, str):
            raise ValueError("model and activation are not text")
        return LaunchRequest(tuple(files), model, activation)


def request_of_this_start(files: list[str], model: str) -> LaunchRequest:
    """Return this start's request, with the desktop's activation token."""
    leave = os.environ.get("XDG_ACTIVATION_TOKEN", "")
    return LaunchRequest(
        tuple(str(Path(file).expanduser().absolute()) for file in files[:MAX_FILES]), model, leave[:1000]
    )


class SingleInstance(QObject):
    """Call `claim` first; then `listen` once the window is shown, or `hand_over` if another Hearth runs."""

    requested = Signal(object)  # LaunchRequest of a later start

    def __init__(self, data_folder: Path, runtime_folder: Path | None = None) -> None:
        """runtime_folder: for lock and socket, instead of the system's."""
        super().__init__()
        self._folder = runtime_folder or _runtime_folder()
        key = f"{_account()}\0{os.path.normcase(data_folder.resolve())}"
        name = f"hearth-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        # Named pipes of Windows are in no folder.
        self._socket = name if os.name == "nt" else str(self._folder / f"{name}.socket")
        self._lock = QLockFile(str(self._folder / f"{name}.lock"))
        self._lock.setStaleLockTime(0)  # age does not matter: it is stale when its process has ended
        self._server: QLocalServer | None = None

    def claim(self) -> bool:
        """Return whether this is the first start. True if the lock cannot be created at all."""
        if self._lock.tryLock(0):
            return True
        if self._lock.error() == QLockFile.LockError.LockFailedError:
            return False
        log.warning("no lock can be made, so a second start is not noticed")
        return True

    def hand_over(self, request: LaunchRequest, within_s: float = ANSWER_WITHIN_S) -> bool:
        """Send a request to the first Hearth. Returns whether it accepted. Blocks, without an event loop."""
        from PySide6.QtNetwork import QLocalSocket  # about 10 ms, not needed by the first start

        _let_it_come_forward()
        ends = time.monotonic() + within_s
        while (left_ms := int(1000 * (ends - time.monotonic()))) > 0:
            socket = QLocalSocket()
            socket.connectToServer(self._socket)
            if socket.waitForConnected(left_ms):
                socket.write(request.to_bytes())
                socket.waitForBytesWritten(left_ms)
                if socket.waitForReadyRead(max(left_ms, 1)) and bytes(socket.readLine(16).data()) == _TAKEN:
                    return True
            socket.abort()
            time.sleep(0.05)
        return False

    def listen(self) -> None:
        """Accept requests of later starts."""
        from PySide6.QtNetwork import QLocalServer

        QLocalServer.removeServer(self._socket)  # left by a killed Hearth; the lock shows that it is dead
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._greet)
        if not self._server.listen(self._socket):
            log.warning("later starts cannot hand anything over: %s", self._server.errorString())

    def close(self) -> None:
        """Let another start be the first."""
        if self._server is not None:
            self._server.close()
        self._lock.unlock()

    def _greet(self) -> None:
        assert self._server is not None
        while (caller := self._server.nextPendingConnection()) is not None:
            caller.setReadBufferSize(MAX_BYTES + 1)
            caller.readyRead.connect(lambda caller=caller: self._read_request(caller))
            caller.disconnected.connect(caller.deleteLater)
            self._read_request(caller)

    def _read_request(self, caller: QLocalSocket) -> None:
        if not caller.canReadLine() and caller.bytesAvailable() <= MAX_BYTES:
            return  # the rest will arrive
        try:
            request = LaunchRequest.from_bytes(bytes(caller.readLine(MAX_BYTES + 1).data()))
        except (ValueError, RecursionError) as error:
            log.warning("something else than Hearth called: %s", type(error).__name__)
            caller.abort()
            return
        caller.write(_TAKEN)
        caller.flush()
        caller.disconnectFromServer()
        self.requested.emit(request)


def take_activation(request: LaunchRequest) -> None:
    """Set a later start's activation token where Qt's Wayland window looks for its own."""
    if request.activation and sys.platform.startswith("linux"):
        os.environ["XDG_ACTIVATION_TOKEN"] = request.activation


def _account(windows: bool = os.name == "nt") -> str:
    """Return what identifies the user; "" if Windows' environment does not. The data folder differs in any case."""
    if not windows:
        return str(os.getuid())
    try:
        return getpass.getuser()
    except (OSError, ImportError):  # Python looks for the password database of POSIX then
        return ""


def _let_it_come_forward() -> None:
    """Allow another process to come to the front, which only the program that the user has just started may do."""
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.user32.AllowSetForegroundWindow(-1)  # any process


def _runtime_folder() -> Path:
    """Return a folder that belongs to this user only and is cleared by the system."""
    if os.name == "nt":
        return Path(tempfile.gettempdir())  # inside the user's own folder
    wanted = [Path(os.environ["XDG_RUNTIME_DIR"])] if os.environ.get("XDG_RUNTIME_DIR") else []
    for folder in (*wanted, Path(f"/run/user/{os.getuid()}"), Path(f"/tmp/hearth-{os.getuid()}")):
        with contextlib.suppress(OSError):
            if folder.parent == Path("/tmp"):
                folder.mkdir(mode=0o700, exist_ok=True)
            about = folder.lstat()  # of the folder itself, not of what another user's link points to
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022:
                return folder
    return Path(tempfile.mkdtemp(prefix="hearth-"))
