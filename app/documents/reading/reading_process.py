"""The child process that reads files: a hostile file can crash, block or fill this process alone.

It gets the bytes of each file from stdin and opens none. Before the first one it bounds itself:

    all systems  memory and CPU time
    Linux        with Landlock and seccomp: no file but Python's own and the fonts, no writing, no sockets

It ends when stdin ends, also while it reads a file. No Qt.

A request is a line of JSON, then blocks of a file, each after its length in 4 bytes; the last one is empty. An answer
is the length of its JSON in 4 bytes, the JSON, and as many bytes as its "n_bytes" says: the texts or a PNG file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
import sysconfig
import threading
from typing import Any, BinaryIO

from app.documents.reading import formats, pdf
from app.documents.reading.document import Document, TextLimit, Unreadable
from app.process_limits import limit_memory, limit_time

MAX_MEMORY_BYTES = 2 << 30
_MAX_REQUEST_BYTES = 1 << 20
_FONTS = ("/usr/share/fonts", "/usr/local/share/fonts")


def main() -> int:
    """Answer requests until stdin ends. Returns the exit code."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # no library writes between the answers
    logging.disable()  # faults of a file are not worth logging
    pdf.load_library()
    limit_memory(MAX_MEMORY_BYTES)
    _confine()
    requests: queue.SimpleQueue[tuple[dict[str, Any], bytearray]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, requests), daemon=True).start()
    _send(answers, {"is_ready": True})
    while True:
        request, data = requests.get()
        limit_time(float(request["seconds"]))  # the parent, which measures it too, may be gone
        try:
            header, blob = _answer(request, bytes(data))
        except Unreadable as error:
            header, blob = {"reason": error.reason}, b""
        except (MemoryError, RecursionError):
            header, blob = {"reason": "too-large"}, b""
        except Exception:  # noqa: BLE001 - whatever a hostile file does to its reader, the reason is the file
            header, blob = {"reason": "damaged"}, b""
        del request, data
        _send(answers, header, blob)


def _receive(source: BinaryIO, requests: queue.SimpleQueue[tuple[dict[str, Any], bytearray]]) -> None:
    """Receive requests. Ends this process when the parent is gone or closes its end."""
    try:
        while line := source.readline(_MAX_REQUEST_BYTES):
            data = bytearray()
            while n := int.from_bytes(_exactly(source, 4), "big"):
                data += _exactly(source, n)
            requests.put((json.loads(line), data))
            del data
    except (OSError, EOFError, MemoryError):
        os._exit(1)
    finally:
        os._exit(0)


def _exactly(source: BinaryIO, n: int) -> bytes:
    data = source.read(n)
    if len(data) < n:
        raise EOFError
    return data


def _send(answers: BinaryIO, header: dict[str, Any], blob: bytes = b"") -> None:
    line = json.dumps({**header, "n_bytes": len(blob)}).encode()
    answers.write(len(line).to_bytes(4, "big") + line)
    answers.write(blob)
    answers.flush()


def _answer(request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    if "page" in request:
        picture = pdf.page_picture(data, int(request["page"]), str(request["passage"]), int(request["width"]))
        return {"boxes": picture.boxes}, picture.png
    document = formats.read(data, str(request["suffix"]), TextLimit(int(request["characters"])))
    return _listed(document)


def _listed(document: Document) -> tuple[dict[str, Any], bytes]:
    texts = [part.text.encode("utf-8", "replace") for part in document.parts]
    parts = [(part.number, part.name[:1000], len(text)) for part, text in zip(document.parts, texts, strict=True)]
    header = {"kind": document.kind, "parts": parts, "n_parts": document.n_parts, "n_scanned": document.n_scanned,
              "cut": document.cut}  # fmt: skip
    return header, b"".join(texts)


# --- bounds


def _confine() -> None:
    if sys.platform == "linux":
        from app.tools.mcp import confined

        own = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), getattr(sys, "_MEIPASS", sys.prefix)}
        if confined.can_confine():
            with contextlib.suppress(OSError):  # an unusual system: the other bounds hold
                # the packaged program's own file holds its modules
                confined.confine((*sorted(own), sys.executable, *sys.path, *_FONTS), denies_all_sockets=True)


if __name__ == "__main__":
    sys.exit(main())
