"""Where Hearth writes what it did and how it fell: the log, crash notes, and the stacks of a hard crash.

It shows nothing. Handlers are set here and nowhere else in the window's process.
"""

from __future__ import annotations

import faulthandler
import logging
import logging.handlers
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

log = logging.getLogger("app")

LOG_BYTES = 1 << 20
_QT_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def open_log(file: Path) -> str | None:
    """Send the log of the whole process to a file of at most LOG_BYTES and one older one; else say why not."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
        # The stacks of all threads when native code crashes. The file stays open as long as the process lives.
        faulthandler.enable((file.parent / "crash-native.txt").open("w", encoding="utf-8"))
    except OSError as error:
        root.addHandler(logging.StreamHandler())
        return str(error)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))
    root.addHandler(handler)
    qInstallMessageHandler(_hear_qt)
    return None


def _hear_qt(kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
    logging.getLogger("qt").log(_QT_LEVELS.get(kind, logging.WARNING), "%s", text)


def catch_faults(folder: Path, tell: Callable[[BaseException], None]) -> None:
    """Have every exception that nobody caught logged, noted in a file, and told; the program goes on."""

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        words = "".join(traceback.format_exception(kind, error, trace))
        log.critical("a fault of our own\n%s", words)
        try:
            with (folder / "crash.txt").open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}\n{words}\n")
        except OSError as refused:
            log.info("the crash note cannot be written: %s", refused)
        tell(error)

    sys.excepthook = note
    threading.excepthook = lambda fault: note(
        fault.exc_type, fault.exc_value or fault.exc_type(), fault.exc_traceback
    )  # fmt: skip
