"""The self-report: this PC, and a test of each part of Hearth with its time, as a text to paste.

Like the report of diagnostics.py it contains only numbers, Hearth's own texts, and makers' names of hardware: no names
of users, files or models, no paths, no chats. The engine answers in its own processes, so a crash is one line
of the report. Nothing is sent anywhere. Imports Qt only where a window can be shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import engine
from app.chat.store.conversation import Conversation
from app.chat.store.store import Store
from app.desktop import diagnostics
from app.desktop.shareable_log import LEFT_OUT, described, stacks_in
from app.engine_text import is_plain
from app.process_limits import end_children_with_it
from app.settings import AppPaths
from app.startup.terminal import why_no_window
from engine.commands.console import make_streams_safe
from engine.errors import EngineError
from engine.machine.hardware import HardwareProfile, measure, probe

ANSWER_S = 300.0  # more than the slowest first start
WRITTEN_BYTES = 64 << 20
_STARTER = ("generate", "starter-chat", "--prompt", "Hello", "--max-tokens", "64", "--seed", "1", "--json")


@dataclass(frozen=True)
class Check:
    """One test. run: returns what it found, in a few words; raises what went wrong."""

    name: str
    run: Callable[[], str]


class CheckError(Exception):
    """A test that failed. lines: what may be shown."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


def lines_of(places: AppPaths) -> Iterator[str]:
    """Yield the report, line by line as it is made. Cost: some minutes on a slow PC."""
    machine = probe()
    yield from diagnostics.about_this_pc(machine)
    yield from (f"  {reason}" for reason in machine.gpu_reasons if is_plain(reason))
    yield ""
    yield "Tests"
    passed = 0
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as folder:
        tests = checks(places, machine, Path(folder))
        for check in tests:
            began = time.perf_counter()
            found: list[str] = []
            try:
                words, good = check.run(), True
            except CheckError as error:
                words, good, found = error.lines[0], False, list(error.lines[1:])
            except Exception as error:  # noqa: BLE001 - it is a line of the report
                words, good, found = "", False, described(error, error.__traceback__)
            passed += good
            took = f"{time.perf_counter() - began:7.2f} s"
            yield f"{'ok    ' if good else 'FAILED'} {took}  {check.name}. {words}".rstrip()
            yield from found
    yield ""
    yield f"{passed} of {len(tests)} tests passed."


def checks(places: AppPaths, machine: HardwareProfile, scratch: Path) -> list[Check]:
    """Return the tests for this PC. scratch: an empty folder."""
    found = [
        Check("Window", _window),
        Check("Write to the data folder", lambda: _write(places.data)),
        Check("Save and open chats", lambda: _chats(scratch)),
        Check("Read memory", lambda: f"{(measure(machine).cpu.bytes_per_s or 0) / 1e9:.1f} GB/s"),
    ]
    for device in ("cpu", *(["auto"] if any(gpu.usable for gpu in machine.gpus) else [])):
        caches, where = scratch / device, "CPU" if device == "cpu" else "GPU"
        found += [
            Check(f"Compile the kernels and answer, {where}", partial(_answer, caches, device)),
            Check(f"Answer with compiled kernels, {where}", partial(_answer, caches, device)),
        ]
    return found


def _window() -> str:
    if why_no_window():
        raise CheckError("There is no display, or a system library is missing.")
    from PySide6.QtCore import qVersion
    from PySide6.QtWidgets import QApplication, QWidget

    app = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(app, QApplication)
    window = QWidget()
    window.show()
    app.processEvents()
    window.close()
    screens = [f"{one.size().width()} x {one.size().height()} at {one.devicePixelRatio():g}" for one in app.screens()]
    return f"Qt {qVersion()}, {app.platformName()}, {', '.join(screens)}"


def _write(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        for _ in range(WRITTEN_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        took = time.perf_counter() - began
        file.seek(0)
        if file.read(len(block)) != block:
            raise CheckError("The file read back differs from what was written.")
    return f"{WRITTEN_BYTES / took / 1e6:.0f} MB/s"


def _chats(folder: Path) -> str:
    for expected in (0, 1):
        store = Store.open(folder / "chats.db")
        with contextlib.closing(store):
            if len(store.conversations()) != expected:
                raise CheckError("A saved chat is missing.")
            store.save_conversation(Conversation(id="one", title="Test"))
    return ""


def engine_command() -> list[str]:
    """Return the command of the engine's command line."""
    if getattr(sys, "frozen", False):
        return [str(Path(sys.executable).with_name("hearth-engine" + (".exe" if os.name == "nt" else "")))]
    return [sys.executable, "-P", "-m", "engine"]


def _is_private(line: str) -> bool:
    """Return whether a line of another process may hold a path, or the name of the user or of this PC."""
    names = (Path.home().name, platform.node())
    return bool(re.search(r"(^|\s)[/~]", line)) or any(name.casefold() in line.casefold() for name in names if name)


def _answer(caches: Path, device: str) -> str:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "HEARTH_KERNELS_CACHE": str(caches / "kernels"),
                   "HEARTH_CUDA_CACHE": str(caches / "cuda"),
                   "PYINSTALLER_RESET_ENVIRONMENT": "1"}  # fmt: skip
    if not getattr(sys, "frozen", False):
        environment["PYTHONPATH"] = str(Path(engine.__file__).resolve().parents[1])
    try:
        done = subprocess.run(
            [*engine_command(), *_STARTER, "--device", device], env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=ANSWER_S, check=False,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # the window's program has no console to share
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CheckError(f"No answer within {ANSWER_S:.0f} s.") from None
    if done.returncode != 0:
        plain = [line for line in done.stderr.splitlines()[-4:] if is_plain(line) and not _is_private(line)]
        places = [line for line in stacks_in(done.stderr) if f"{LEFT_OUT}:" not in line]
        raise CheckError(f"Exit code {done.returncode}.", *filter(None, plain), *places)
    answer = json.loads(done.stdout)
    stats = answer["stats"]
    if not answer["text"].strip():
        raise CheckError("The answer is empty.")
    reason = stats["device_reason"] or ""
    return (
        f"On {'the CPU' if stats['device'] == 'cpu' else 'GPU and CPU'}"
        f"{f' ({reason})' if device != 'cpu' and is_plain(reason) else ''}, first token after {stats['ttft_s']:.2f} s, "
        f"{stats['prefill_tok_s'] or 0:.0f} tok/s prefill, {stats['decode_tok_s'] or 0:.0f} tok/s decode, "
        f"{stats['vram_bytes'] / 1e6:.0f} MB of VRAM, {stats['ram_bytes'] / 1e6:.0f} MB of RAM"
    )


def main(places: AppPaths, target: Path | None) -> int:
    """Print the report as it is made, and write it to `target`. Returns 0 if every test passed."""
    if target is None and sys.stdout is None:  # the window's program on Windows, started in a console
        target = Path.home() / "hearth-self-report.txt"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # subprocess.run ends the engine's process then
    end_children_with_it()
    make_streams_safe()
    last = ""
    try:
        with target.open("w", encoding="utf-8") if target else contextlib.nullcontext() as file:
            for last in lines_of(places):
                for to in (file, sys.stdout):
                    if to is not None:
                        to.write(last + "\n")
                        to.flush()
    except (OSError, EngineError) as error:
        if sys.stderr is not None:
            sys.stderr.write(f"The report could not be made: {error}\n")
        return 1
    passed, _, of = last.split(" ")[:3]
    return 0 if passed == of else 1
