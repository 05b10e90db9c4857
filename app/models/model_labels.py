"""Texts and figures of the Models page about a model: pure functions of records. No Qt.

Files are in GB of 10^9 bytes, as on the hub; memory is in GB of 2^30 bytes, as it is sold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.clients.engine_status import short_name
from app.engine_text import plain_figures
from app.later import Later
from app.translation import figure, noted, tr, tr_n
from app.units import NARROW, gigabytes, rate
from app.user_messages import describe

if TYPE_CHECKING:
    from engine.library.records import Download, Estimate, MachineLine
    from engine.service import protocol
else:
    protocol = Later("engine.service.protocol")

STAGE_TEXTS = {
    "convert": noted("Convert"),
    "profile": noted("Profile"),
    "train": noted("Predictors"),
    "solve": noted("Placement"),
}
STAGES_DOING = {
    "convert": noted("Converting"),
    "profile": noted("Profiling"),
    "train": noted("Training predictors"),
    "solve": noted("Placing"),
}
ESTIMATED = noted("estimated")
_NEEDS = re.compile(r"(?P<size>.+?) are still to be fetched.*; there are (?P<free>.+?) free in ")  # disk_space.py
_ROOM_BYTES = 5e7  # less memory is not worth mentioning


def memory(n_bytes: float) -> str:
    """Format memory: "9.4 GB", "65 MB"."""
    if n_bytes >= 0.095 * 2**30:
        return f"{figure(n_bytes / 2**30, '.1f')}{NARROW}GB"
    return f"{n_bytes / 2**20:.0f}{NARROW}MB"


def whole_memory(n_bytes: float) -> str:
    """Format memory without decimals from 10 GB on: "21 GB"."""
    return memory(n_bytes) if n_bytes < 9.95 * 2**30 else f"{n_bytes / 2**30:.0f}{NARROW}GB"


def parameters(count: int) -> str:
    """Format a number of parameters: "7B", "6.7B", "33M"; "" if unknown."""
    if count <= 0:
        return ""
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        value = count / unit
        if value >= 0.9995:
            text = f"{value:.0f}" if value >= 9.95 else figure(round(value, 1), "g")
            return f"{text}{letter}"
    return f"{count / 1e3:.0f}K"


def codec(name: str) -> str:
    """Return the usual name of a weight format: "F16", "Q4_0"."""
    return name.upper()


def place(estimate: Estimate) -> str:
    """Return where a model's bytes are: "9.4 GB on the GPU, 6.2 GB in RAM"."""
    parts = []
    if estimate.vram_bytes > 0:
        parts.append(tr("{memory} on the GPU", memory=memory(estimate.vram_bytes)))
    if estimate.ram_bytes > _ROOM_BYTES or not parts:
        parts.append(tr("{memory} in RAM", memory=memory(estimate.ram_bytes)))
    if estimate.disk_bytes:
        parts.append(tr("{memory} of experts on the disk", memory=memory(estimate.disk_bytes)))
    return ", ".join(parts)


def from_disk(estimate: Estimate) -> str:
    """Return the sentence for a model whose experts are partly on the disk."""
    words = noted("{memory} of its experts are read from the disk when they are chosen.")
    return tr(words, memory=memory(estimate.disk_bytes))


def bar(estimate: Estimate) -> tuple[float, float]:
    """Return the bar of a placement: the GPU's fraction of the used memory, and the free fraction of all memory."""
    used = estimate.vram_bytes + estimate.ram_bytes
    room = estimate.vram_budget_bytes + estimate.ram_budget_bytes
    if not used:
        return 0.0, 1.0
    free = 0.0 if estimate.fits in ("no", "disk") or not room else 1 - used / room
    return estimate.vram_bytes / used, min(max(free, 0.0), 0.97)


def estimated(tok_s: float) -> str:
    """Format an estimated rate without its unit: whole from 10 on."""
    return figure(tok_s, ",.0f" if tok_s >= 9.95 else ".1f")


@dataclass(frozen=True)
class Rate:
    """A model's decode rate on this PC, in tokens/s. low, high: the range of an estimate, if any.

    once_prepared: an estimate for the prepared model, not for its present files.
    """

    tok_s: float
    low: float | None = None
    high: float | None = None
    is_measured: bool = False
    once_prepared: bool = False

    def changed(self, before_tok_s: float | None, after_tok_s: float | None) -> Rate | None:
        """Return the rate after a change for which the solver predicts these rates.

        The solver's ratio is applied to the known rate. None: no prediction.
        """
        if after_tok_s is None:
            return None
        return Rate(self.tok_s * after_tok_s / before_tok_s) if before_tok_s else Rate(after_tok_s)


def rate_of(estimate: Estimate | None, measured_tok_s: float | None = None) -> Rate | None:
    """Return a model's rate on this PC, as shown everywhere in the window: measured here, else estimated."""
    if measured_tok_s is not None:
        return Rate(measured_tok_s, is_measured=True)
    if estimate is None or estimate.fits == "no" or estimate.predicted_tok_s is None:
        return None
    low, high, prepared = estimate.low_tok_s, estimate.high_tok_s, estimate.once_prepared
    return Rate(estimate.predicted_tok_s, low, high, once_prepared=prepared)


def rate_text(found: Rate) -> tuple[str, str]:
    """Return a rate and how reliable it is: ("≈ 24 tok/s", "20 to 27"), ("39.1 tok/s", "measured here")."""
    if found.is_measured:
        return rate(found.tok_s), tr("measured here")
    words = f"≈{NARROW}{estimated(found.tok_s)}{NARROW}tok/s"
    digits = 0 if found.tok_s >= 9.95 else 1  # like the rate above it
    ends = {figure(end, f",.{digits}f"): None for end in (found.low, found.high) if end is not None}
    if len(ends) < 2:
        return words, tr("once prepared") if found.once_prepared else tr(ESTIMATED)
    least, most = ends
    if found.once_prepared:
        return words, tr("{least} to {most} once prepared", least=least, most=most)
    return words, tr("{least} to {most}", least=least, most=most)


def speed(estimate: Estimate | None, measured_tok_s: float | None = None) -> tuple[str, str]:
    """Return the texts of `rate_of`, also if there is no rate."""
    if (found := rate_of(estimate, measured_tok_s)) is not None:
        return rate_text(found)
    if estimate is None:
        return "–", ""
    if estimate.fits == "disk":
        return tr("Speed unknown"), tr("experts on the disk")
    return tr("No estimate"), tr("does not fit") if estimate.fits == "no" else ""


@dataclass(frozen=True)
class Shortfall:
    """Memory that a model needs, that this PC has, and the difference, as texts that add up."""

    need: str
    room: str
    missing: str


def shortfall(estimate: Estimate) -> Shortfall:
    """Return the memory of a model that does not fit, all three figures rounded to one unit.

    Need is rounded up and memory down; the difference is computed from those, so freeing it is always enough. Tenths of
    a GB for small figures, so that no model is 0 GB too big.
    """
    missing = max(int(estimate.short_bytes), 1)
    need = max(int(estimate.vram_bytes + estimate.ram_bytes), missing)
    room = need - missing
    parts = 10 if missing < 3 * 2**30 or room < 10 * 2**30 else 1
    need, room = -(-need * parts // 2**30), room * parts // 2**30
    words = (figure(n / parts, ".1f" if parts > 1 else ".0f") for n in (need, room, need - room))
    return Shortfall(*(f"{size}{NARROW}GB" for size in words))


def short_of(estimate: Estimate) -> str:
    """Return the sentence for a model that does not fit: what it needs and what there is."""
    found = shortfall(estimate)
    return tr("Needs {need}. This PC has {room} for it.", need=found.need, room=found.room)


def machine(line: MachineLine) -> str:
    """Return this PC as the page's second line."""
    free = tr("{memory} RAM free", memory=whole_memory(line.ram_free_bytes))
    if not line.gpu:
        cores = tr_n("{n} core", "{n} cores", line.cores)
        words = noted("Estimates for PCs like this: no GPU, {cores}, {free}")
        if line.measured:
            words = noted("Estimates for this PC: no GPU, {cores}, {free}")
        return tr(words, cores=cores, free=free)
    words = noted("Estimates for PCs like this: {gpu} with {memory} for models, {free}")
    if line.measured:
        words = noted("Estimates for this PC: {gpu} with {memory} for models, {free}")
    return tr(
        words,
        gpu=short_name(line.gpu),
        memory=memory(line.vram_budget_bytes),
        free=free,
    )


def time_left(eta_s: float | None) -> str:
    """Format a remaining time: "about 4 min left"; "" if unknown."""
    words = duration(eta_s)
    return tr("{time} left", time=words) if words else ""


def duration(value_s: float | None) -> str:
    """Format an estimated time: "about 20 s", "about 4 min", "about 2 h 10 min"; "" if unknown."""
    if value_s is None:
        return ""
    if value_s < 55:
        return tr("about {time}", time=f"{max(5 * round(value_s / 5), 5)}{NARROW}s")
    minutes = max(round(value_s / 60), 1)
    if minutes < 60:
        return tr("about {time}", time=f"{minutes}{NARROW}min")
    hours, rest = divmod(5 * round(minutes / 5) if minutes < 600 else 60 * round(minutes / 60), 60)
    return tr("about {time}", time=f"{hours}{NARROW}h" + (f" {rest}{NARROW}min" if rest else ""))


def fetched(done: int, total: int) -> str:
    """Format the progress of a download in one unit: "1.9 of 4.3 GB"."""
    if total <= 0:
        return gigabytes(done)
    if total >= 1e8:
        return tr("{done} of {total}", done=figure(done / 1e9, ".1f"), total=gigabytes(total))
    return tr("{done} of {total}", done=figure(done / 1e6, ".0f"), total=gigabytes(total))


def pace(bytes_per_s: float | None) -> str:
    """Format the rate of a download: "38 MB/s", "420 kB/s"; "" if unknown."""
    if bytes_per_s is None or bytes_per_s <= 0:
        return ""
    if bytes_per_s >= 9.95e6:
        return f"{figure(bytes_per_s / 1e6, '.0f')}{NARROW}MB/s"
    if bytes_per_s >= 1e6:
        return f"{figure(bytes_per_s / 1e6, '.1f')}{NARROW}MB/s"
    return f"{bytes_per_s / 1e3:.0f}{NARROW}kB/s"


def stopped_why(download: Download) -> str:
    """Return why a download paused or failed by itself, and what to do; "" if it did not."""
    if download.state not in {"paused", "failed"} or not download.message:
        return ""
    message = plain_figures(download.message)
    if match := _NEEDS.match(message):
        needs = noted("Needs {size} more and 2 GB to spare; {free} free. Free some space, then resume.")
        return tr(needs, **match.groupdict())
    why = protocol.Failed("", download.error, message, download.hint)
    return describe(why, during="download", model=download.name).sentence


def download_lines(download: Download) -> tuple[str, str]:
    """Return the texts below a download's bar: left and right."""
    here = fetched(download.done_bytes, download.total_bytes)
    match download.state:
        case "downloading":
            return " · ".join(part for part in (here, pace(download.bytes_per_s)) if part), time_left(download.eta_s)
        case "queued":
            return tr("Queued"), here if download.done_bytes else gigabytes(download.total_bytes)
        case "paused":
            return f"{tr('Paused')} · {here}", ""
        case "waiting":
            return tr("Waiting for the network"), here
        case "checking":
            return tr("Checking the file"), time_left(download.eta_s)
        case "failed":
            return tr("Stopped"), here
        case _:
            return here, ""
