"""Draws Mermaid diagrams in a separate process: native code on hostile text can end or block it, not the window.

This module is both sides: `draw` keeps a process warm, which runs `main`. No Qt.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import app
from app.diagrams.mermaid_options import MOST_SOURCE, options
from app.diagrams.plain_svg import PlainSvg, is_plain, plain
from app.process_limits import limit_memory

log = logging.getLogger(__name__)

WITHIN_S = 4.0  # for one diagram, of which the first has to wait for the process
MOST_MEMORY_BYTES = 1 << 30  # of the process
MOST_DRAWN = 2_000  # by one process, whose memory may grow
IDLE_S = 600.0  # the process holds 20 MB
MOST_CACHED = 64  # drawings of `draw`
FAMILY = "inter"  # the window's font; without it QtSvg takes another one
_TAGS = re.compile(r"</?(?:b|i|u|s|strong|em|code|small|sub|sup|span|font|big)\b[^<>]*>", re.IGNORECASE)  # in labels


@lru_cache(maxsize=1)
def can_draw() -> bool:
    """Return whether the library is installed: it has no build for some systems."""
    return find_spec("merman") is not None


def draw(source: str, tokens: Mapping[str, Any]) -> PlainSvg | None:
    """Draw a diagram in the colours of these tokens. None: it has errors, is too large or took too long. Any thread.

    Cost in a running process: 8 to 26 ms.
    """
    return _draw(source, tuple(sorted(tokens.items()))) if can_draw() and len(source) <= MOST_SOURCE else None


def warm() -> None:
    """Start the process unless it runs. Any thread. Cost: 0.1 s and more."""
    if can_draw():
        _process.draw("", {})


@lru_cache(MOST_CACHED)
def _draw(source: str, tokens: tuple[tuple[str, Any], ...]) -> PlainSvg | None:
    return _process.draw(source, dict(tokens))


class _Process:
    """The process, started with the first diagram and ended when it is idle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._drawn = 0
        self._idle: threading.Timer | None = None

    def draw(self, source: str, tokens: dict[str, Any]) -> PlainSvg | None:
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            try:
                return _checked(self._ask({"source": source, "tokens": tokens}))
            except (
                OSError,
                ValueError,
                KeyError,
                TypeError,
                queue.Empty,
            ) as error:  # it ended, was too slow, or answered nonsense
                log.info("A diagram could not be drawn: %s", type(error).__name__)
                self._end()
                return None
            finally:
                self._idle = threading.Timer(IDLE_S, self.end)
                self._idle.daemon = True
                self._idle.start()

    def end(self) -> None:
        """End the process; the next diagram starts another one."""
        with self._lock:
            self._end()

    def _ask(self, request: dict[str, Any]) -> Any:
        if self._process is None or self._process.poll() is not None or self._drawn >= MOST_DRAWN:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._drawn += 1
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._answers.get(timeout=WITHIN_S))

    def _start(self) -> None:
        self._end()
        self._answers, self._drawn = queue.Queue(), 0
        self._process = subprocess.Popen(
            _command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment(),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )  # fmt: skip
        threading.Thread(target=_read, args=(self._process, self._answers), name="diagrams", daemon=True).start()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            process.wait()


def _read(process: subprocess.Popen[bytes], answers: queue.Queue[bytes]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            answers.put(line)
    answers.put(b"")  # the process has ended; an empty answer wakes the thread that waits


def _checked(answer: Any) -> PlainSvg | None:
    """Return a drawing after checking it: what drew it is not trusted. Raises ValueError, KeyError, TypeError."""
    if not isinstance(answer, dict):
        raise ValueError("No answer.")
    if "svg" not in answer:
        return None
    svg = str(answer["svg"])
    if not is_plain(svg):
        raise ValueError("Not plain SVG.")
    return PlainSvg(svg, float(answer["width"]), float(answer["height"]))


_process = _Process()


def end() -> None:
    """End the process, if there is one."""
    _process.end()


def _command() -> list[str]:
    if getattr(sys, "frozen", False):
        return [sys.executable, "--diagrams"]
    return [sys.executable, "-P", "-m", __name__]


def _environment() -> dict[str, str]:
    if getattr(sys, "frozen", False):
        return dict(os.environ)
    root = str(Path(app.__path__[0]).resolve().parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}


# --- the process


def main() -> int:
    """Answer each line of stdin, a JSON object with source and tokens, with one: svg, width and height, or nothing."""
    limit_memory(MOST_MEMORY_BYTES)
    logging.disable()
    import merman

    mermaid = merman.Merman()
    for line in sys.stdin.buffer:
        try:
            request = json.loads(line)
            tokens = request["tokens"]
            drawing = plain(
                mermaid.render_svg(_TAGS.sub("", request["source"]), json.dumps(options(tokens))), FAMILY, tokens
            )
            answer: dict[str, Any] = {"svg": drawing.text, "width": drawing.width, "height": drawing.height}
        except Exception:  # noqa: BLE001 - whatever a stranger's text does to the library
            answer = {}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
