"""A report on this PC and what Hearth did on it, in one file that can be shown to anybody.

It contains no chat text, instructions or tokens, and no names of files, models or users: only numbers, Hearth's own
texts, and what app/desktop/shareable_log.py lets through. Nothing is sent anywhere.
"""

from __future__ import annotations

import locale
import logging
import platform
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path

from app.clients.engine_status import EngineStatus
from app.desktop import crash_notes
from app.desktop.shareable_log import stacks_in
from app.settings import AppPaths, AppSettings, described
from app.units import gigabytes
from engine import __version__
from engine.library.records import Download, InstalledModel
from engine.machine.hardware import HardwareProfile, probe

log = logging.getLogger(__name__)

MAX_READ_BYTES = 4 << 20  # of each log
SHOWN_LINES = 60
SHOWN_CHARS = 400  # of a line: laying out a line of a megabyte blocks the window
_PARTS = ("pyside6-essentials", "torch", "numpy", "numba", "tokenizers", "huggingface_hub", "psutil", "nvidia-ml-py")
_PLAIN = re.compile(r"[A-Za-z0-9 .,:()/@®™_+-]{1,120}")  # characters in makers' names of CPUs and GPUs
ABOUT = (
    "A report of Hearth. It contains figures of this PC, messages of Hearth, and places in its source code.",
    "It contains no text of a chat, no instructions, no access token, and no name of a file, a model or a person.",
)


@dataclass(frozen=True)
class Moment:
    """The facts that only the running window knows, read on its thread. screens: width, height, scale."""

    settings: AppSettings
    status: EngineStatus
    n_chats: int = 0
    installed: tuple[InstalledModel, ...] = ()
    downloads: tuple[Download, ...] = ()
    qt: str = ""
    desktop: str = ""  # Qt's platform
    screens: tuple[tuple[int, int, float], ...] = ()


def suggested_name(now: datetime) -> str:
    return f"hearth-report-{now:%Y-%m-%d-%H%M}.zip"


def save(target: Path, places: AppPaths, moment: Moment) -> None:
    """Write the report. Cost: about 0.2 s. Raises OSError."""
    temporary = target.with_name(target.name + ".new")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.writestr("report.txt", "\n".join(report(places, moment)) + "\n")
            bundle.writestr("log.txt", "\n".join(log_lines(places.log)) + "\n")
            bundle.writestr("crashes.txt", "\n".join(crash_lines(places.log)) + "\n")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def about_this_pc(machine: HardwareProfile) -> list[str]:
    """Describe versions and the PC, line by line."""
    lines = [*ABOUT, "", f"Hearth {__version__}", f"Python {platform.python_version()}", f"System {_system()}"]
    lines += [f"Language {_plain((locale.getlocale()[0] or '').partition('.')[0])}"]
    return [*lines, *(f"{name} {_version(name)}" for name in _PARTS), "", "PC", *_machine(machine)]


def report(places: AppPaths, moment: Moment, machine: HardwareProfile | None = None) -> list[str]:
    """Describe the PC, the settings and the current state, line by line."""
    lines = about_this_pc(machine or probe())
    lines += ["", f"Qt {moment.qt}", f"Desktop {_plain(moment.desktop)}"]
    lines += [f"Screen {width} x {height} at {scale:g}" for width, height, scale in moment.screens]
    lines += ["", "Settings", *_settings(moment.settings)]
    lines += ["", "State", *_state(places, moment)]
    return lines


def log_lines(folder: Path) -> list[str]:
    """Return the shareable log, oldest first."""
    lines: list[str] = []
    for name in (f"{crash_notes.SHAREABLE}.1", crash_notes.SHAREABLE):
        lines += _read(folder / name).splitlines()
    return lines


def crash_lines(folder: Path) -> list[str]:
    """Return the stacks of crashes of the window and its processes."""
    lines: list[str] = []
    for name, words in (
        (crash_notes.STACKS_BEFORE, "The window, at its last crash"),
        (crash_notes.FAULTS, "Faults of the window"),
        ("engine.log", "The engine"),
        ("library.log", "The library"),
    ):
        if stacks := stacks_in(_read(folder / name)):
            lines += [words, *stacks, ""]
    return lines


def shown_at_a_crash(folder: Path) -> list[str]:
    """Return what the next start shows of a crash: its place and the last log lines. All of it is in a report too."""
    stacks = _crashed_first(stacks_in(_read(folder / crash_notes.STACKS_BEFORE)))[:SHOWN_LINES]
    lines = [*stacks, *([""] if stacks else []), *log_lines(folder)[-SHOWN_LINES:]]
    return [line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…" for line in lines]


def _crashed_first(stacks: list[str]) -> list[str]:
    """Put the crashed thread first; Python writes the threads in the order in which they started."""
    start = next((i for i, line in enumerate(stacks) if line.startswith("Current thread")), None)
    if start is None:
        return stacks
    end = next((i for i in range(start + 1, len(stacks)) if not stacks[i].startswith("    ")), len(stacks))
    return [*stacks[:1], *stacks[start:end], *stacks[1:start], *stacks[end:]]


def _read(path: Path) -> str:
    """Return the end of a text file; empty if it does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - MAX_READ_BYTES, 0))
            return file.read(MAX_READ_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _plain(words: str | None) -> str:
    """Return a maker's name if it looks like one."""
    return words if words and _PLAIN.fullmatch(words) else "–"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "–"


def _system() -> str:
    if sys.platform.startswith("linux"):
        try:
            name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
        except OSError:
            name = ""
        kernel = re.match(r"\d+\.\d+(\.\d+)?", platform.release())
        return f"{_plain(name)}, Linux {kernel[0] if kernel else '–'}, {platform.machine()}"
    return f"{platform.system()} {_plain(platform.version())}, {platform.machine()}"


def _machine(machine: HardwareProfile) -> list[str]:
    cpu, ram = machine.cpu, machine.ram
    lines = [
        f"Processor {_plain(cpu.name)}, {cpu.cores} cores, {cpu.threads} threads, {_plain(' '.join(cpu.isa))}",
        f"Memory {gigabytes(ram.total_bytes)}, {gigabytes(ram.free_bytes)} free",
    ]
    for gpu in machine.gpus:
        lines.append(
            f"GPU {_plain(gpu.name)}, {gigabytes(gpu.total_bytes)}, {gigabytes(gpu.free_bytes)} free, "
            f"capability {_plain(gpu.compute_capability)}, driver {_plain(gpu.driver)}, "
            f"{'usable' if gpu.usable else 'not usable'}"
        )
    return lines if machine.gpus else [*lines, "GPU none"]


def _settings(settings: AppSettings) -> list[str]:
    """Describe choices, numbers and switches; of a text only whether there is one."""
    lines = []
    for one in described():
        value = getattr(settings, one.name)
        if one.kind == "text":
            value = "given" if value else "not given"
        lines.append(f"{one.name} {one.none.lower() if value is None else value}")
    return lines


def _state(places: AppPaths, moment: Moment) -> list[str]:
    status = moment.status
    lines = [
        f"Engine {status.phase}, {'on GPU and CPU' if status.gpu else 'on the CPU'}",
        f"Context {_figure(status.context_used)} of {_figure(status.context_total)} tokens",
        f"Rate {_figure(status.tok_s)} tok/s, GPU share {_figure(status.gpu_share)}",
        f"Loaded in {_figure(status.load_s)} s",
        f"Chats {moment.n_chats}, {gigabytes(_size(places.chats_file))}",
    ]
    for model in moment.installed:
        kind = "prepared" if model.prepared else "not prepared"
        lines.append(f"Model, {gigabytes(model.n_bytes)}, {model.origin}, {model.state}, {kind}, {model.kind or '–'}")
    return lines + _counted("Downloads", (download.state for download in moment.downloads))


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _counted(name: str, states: Iterable[str]) -> list[str]:
    return [f"{name} {state}: {count}" for state, count in sorted(Counter(states).items())]
