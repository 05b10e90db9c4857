"""The text of a PDF file, read in a separate process: a hostile file can block that process, not the window.

This module is both sides: `read` starts the process, which runs `main`. No Qt.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import app
from app.translation import figure, noted, tr

WITHIN_S = 60.0
MOST_MEMORY_BYTES = 2 << 30  # of the process
MOST_PAGES = 5_000
MOST_CHARS = 1_000_000
LOOK_EVERY_S = 0.05

# By the process's answer.
_WHY_NOT = {
    "too-much": noted("{name} could not be read: it is damaged or too complex."),
    "damaged": noted("{name} could not be read: it is damaged."),
    "locked": noted("{name} is protected by a password."),
    "pictures": noted("{name} contains no text. Its pages are images, as in a scan."),
}


def read(data: bytes, name: str, cancelled: Callable[[], bool] = lambda: False) -> tuple[str, int]:
    """Return a PDF's text and number of pages. Raises AttachmentError with the reason."""
    from app.chat.attachments.texts import AttachmentError

    until = time.monotonic() + WITHIN_S
    with subprocess.Popen(
        _command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    ) as process:
        out: list[bytes] = []
        talk = threading.Thread(target=lambda: out.append(process.communicate(data)[0]), daemon=True)
        talk.start()
        while talk.is_alive() and not cancelled() and time.monotonic() < until:
            talk.join(LOOK_EVERY_S)
        if talk.is_alive():
            process.kill()
            talk.join()
            raise AttachmentError(
                tr("{name} could not be read within {seconds}\u202fs.", name=name, seconds=figure(WITHIN_S, ".0f"))
            )
    try:
        answer = json.loads(out[0])
    except (ValueError, IndexError):
        raise AttachmentError(tr(_WHY_NOT["too-much"], name=name)) from None
    if "why_not" in answer:
        raise AttachmentError(tr(_WHY_NOT.get(str(answer["why_not"]), _WHY_NOT["damaged"]), name=name))
    return str(answer["text"]), int(answer["n_pages"])


def _command() -> list[str]:
    if getattr(sys, "frozen", False):
        return [sys.executable, "--pdf-text"]
    return [sys.executable, "-P", "-m", __name__]


def _environment() -> dict[str, str]:
    if getattr(sys, "frozen", False):
        return dict(os.environ)
    root = str(Path(app.__path__[0]).resolve().parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}


# ------------------------------------------------------------------ the process


def main() -> int:
    """Read a PDF from stdin and print one JSON object: text and n_pages, or why_not. Returns the exit code."""
    _bound_this_process()
    logging.disable()  # faults of the file are not worth logging
    try:
        answer: dict[str, object] = _taken_apart(sys.stdin.buffer.read())
    except (MemoryError, RecursionError):
        answer = {"why_not": "too-much"}
    except Exception:  # noqa: BLE001 - whatever a stranger's file does to its reader, the reason is the file
        answer = {"why_not": "damaged"}
    sys.stdout.write(json.dumps(answer))
    return 0


def _bound_this_process() -> None:
    if sys.platform != "win32":
        import resource

        for what, most in ((resource.RLIMIT_AS, MOST_MEMORY_BYTES), (resource.RLIMIT_CPU, int(WITHIN_S))):
            soft, hard = resource.getrlimit(what)
            wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
            if soft == resource.RLIM_INFINITY or soft > wanted:
                resource.setrlimit(what, (wanted, hard))


def _taken_apart(data: bytes) -> dict[str, object]:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted:
        try:
            opened = bool(reader.decrypt(""))
        except (DependencyError, NotImplementedError):
            opened = False
        if not opened:
            return {"why_not": "locked"}
    n_pages, parts, chars = len(reader.pages), [], 0
    for page in reader.pages[:MOST_PAGES]:
        text = page.extract_text()
        parts.append(text)
        chars += len(text)
        if chars > MOST_CHARS:
            break
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    if not text:
        return {"why_not": "pictures"}
    return {"text": text, "n_pages": n_pages}


if __name__ == "__main__":
    sys.exit(main())
