"""Filters, sorts and searches the rows of the Models page. Pure functions, no Qt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from app.models.model_labels import stopped_why
from app.models.model_rows import ModelRow
from app.translation import noted, tr

Filter = Literal["recommended", "here", "gpu", "well", "chat", "research", "all"]
Sort = Literal["best", "speed", "size", "name"]

FILTERS: tuple[tuple[Filter, str], ...] = (
    ("recommended", noted("Recommended")), ("here", noted("On this PC")), ("gpu", noted("Fits the GPU")),
    ("well", noted("Runs well here")), ("chat", noted("Chat")), ("research", noted("Research")), ("all", noted("All")),
)  # fmt: skip
SORTS: tuple[tuple[Sort, str], ...] = (
    ("best", noted("recommended")), ("speed", noted("speed here")), ("size", noted("size")), ("name", noted("name")),
)  # fmt: skip
GB = 10**9
SIZES: tuple[tuple[str, str, int, int], ...] = (
    ("", noted("any"), 0, 10**18), ("s", noted("up to 5 GB"), 0, 5 * GB), ("m", noted("5 to 15 GB"), 5 * GB, 15 * GB),
    ("l", noted("15 to 40 GB"), 15 * GB, 40 * GB), ("xl", noted("over 40 GB"), 40 * GB, 10**18),
)  # fmt: skip
RECOMMENDED = 12  # of the catalogue, besides what is already here
SLOWEST_TOK_S = 2.0  # a slower model is not recommended for chatting
ALTERNATIVES = 4


@dataclass(frozen=True)
class Choice:
    """The page's filters. family, size: empty for any; size is a key of SIZES."""

    filter: Filter = "recommended"
    sort: Sort = "best"
    family: str = ""
    size: str = ""
    text: str = ""


def is_here(row: ModelRow) -> bool:
    """Return whether a model is on this PC or being downloaded."""
    return row.installed is not None or row.download is not None


def is_research(row: ModelRow) -> bool:
    """Return whether a model is for measuring rather than chatting."""
    return row.entry is not None and row.entry.research


def fits(row: ModelRow) -> bool:
    """Return whether a model would run here, as far as is known."""
    return row.estimate is None or row.estimate.fits != "no"


def select(rows: Iterable[ModelRow], choice: Choice, offered: str = "") -> list[ModelRow]:
    """Return the rows to show, in order. offered: id of the one to recommend first."""
    _, _, least, most = next(size for size in SIZES if size[0] == choice.size)
    found = [
        row
        for row in rows
        if (not choice.family or row.family == choice.family)
        and (not choice.size or least < row.n_bytes <= most)
        and matches(row, choice.text)
        and (not is_research(row) or choice.filter == "research" or bool(choice.text) or is_here(row))
    ]
    if choice.filter == "recommended":
        best = sorted((row for row in found if not is_here(row) and _is_worth_it(row)), key=_by_rank)
        wanted = {row.id for row in best[:RECOMMENDED]} | {offered}
        found = [row for row in found if is_here(row) or row.id in wanted]
    else:
        found = [row for row in found if _passes(row, choice.filter)]
    found.sort(key=_ORDERS[choice.sort])
    if choice.sort == "best" and offered:
        found.sort(key=lambda row: (not row.in_use, row.id != offered))  # the others keep their order
    return found


def _is_worth_it(row: ModelRow) -> bool:
    speed = speed_of(row)
    return (
        fits(row)
        and not row.reads_disk
        and row.kind not in ("base", "embedding")
        and (speed is None or speed >= SLOWEST_TOK_S)
    )


def _passes(row: ModelRow, wanted: Filter) -> bool:
    match wanted:
        case "here":
            return is_here(row)
        case "gpu":
            return row.estimate is not None and row.estimate.fits == "gpu"
        case "well":
            return row.estimate is not None and fits(row) and not row.reads_disk and not row.is_slow
        case "chat":
            return row.kind == wanted
        case "research":
            return row.kind == "base" or is_research(row)
        case _:
            return True


def _by_rank(row: ModelRow) -> tuple[object, ...]:
    return (
        not row.in_use,
        not fits(row),
        row.reads_disk,
        row.is_slow,
        row.leaves_gpu_unused,
        row.rank,
        row.name.casefold(),
    )


def _by_speed(row: ModelRow) -> tuple[object, ...]:
    return (not fits(row), -(speed_of(row) or 0.0), row.name.casefold())


def _by_size(row: ModelRow) -> tuple[object, ...]:
    return (row.n_bytes, row.name.casefold())


def _by_name(row: ModelRow) -> tuple[object, ...]:
    return (tuple(int(part) if part.isdigit() else part for part in _pieces(row.name)), row.id)


def _pieces(name: str) -> list[str]:
    # Numbers are compared as numbers, so 7B comes before 13B. The split alternates text and numbers, text first.
    return re.split(r"(\d+)", name.casefold())


_ORDERS = {"best": _by_rank, "speed": _by_speed, "size": _by_size, "name": _by_name}


def speed_of(row: ModelRow) -> float | None:
    """Return the rate that a row shows, in tokens/s."""
    return row.rate.tok_s if row.rate is not None else None


def matches(row: ModelRow, text: str) -> bool:
    """Return whether every word of a search occurs in a row."""
    repo = row.entry.repo if row.entry else row.installed.repo if row.installed else ""
    said = " ".join((row.name, row.maker, row.family, row.kind, row.licence, row.codec, repo)).casefold()
    return all(word in said for word in text.casefold().split())


def families(rows: Iterable[ModelRow]) -> list[str]:
    """Return all families, sorted."""
    return sorted({row.family for row in rows if row.family}, key=str.casefold)


def what_would_fit(rows: Iterable[ModelRow], too_big: ModelRow) -> list[ModelRow]:
    """Return similar models that would run here: same family first, then the largest. Embedding models are for those
    alone.
    """
    answers = too_big.kind != "embedding"
    others = [row for row in rows if row.id != too_big.id and (row.kind != "embedding") == answers]
    able = [row for row in others if row.estimate is not None and row.estimate.fits != "no"]

    def nearness(row: ModelRow) -> tuple[object, ...]:
        related = bool(too_big.family) and row.family == too_big.family
        return (row.reads_disk, not related, -row.parameters, row.kind != too_big.kind, -row.n_bytes, row.name)

    return sorted(able, key=nearness)[:ALTERNATIVES]


def work_figure(rows: Iterable[ModelRow]) -> str:
    """Return the progress of downloads, else of preparing, in percent; else whether a download paused or failed by
    itself; "" if nothing is running."""
    rows = list(rows)
    gets = [row.download for row in rows if row.download is not None]
    going = [get for get in gets if get.state in {"queued", "downloading", "waiting", "checking"}]
    if total := sum(get.total_bytes for get in going):
        return f"{100 * sum(get.done_bytes for get in going) // total}%"
    for row in rows:
        if row.preparing is not None and row.preparing.total:
            return f"{100 * row.preparing.done // row.preparing.total}%"
    stopped = {get.state for get in gets if stopped_why(get)}
    return tr("Stopped") if "failed" in stopped else tr("Paused") if stopped else ""


def is_working(rows: Iterable[ModelRow]) -> bool:
    """Return whether work on a model is running, not only waiting for the network or its turn."""
    return any(
        row.preparing is not None or (row.download is not None and row.download.state in {"downloading", "checking"})
        for row in rows
    )


_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,95})"
_ADDRESS = re.compile(rf"https?://[^/\s]+/(?:models/)?({_PART}/{_PART})(?:[/?#].*)?")
_REPO = re.compile(rf"{_PART}/{_PART}")


def repository(text: str) -> str:
    """Return the repository in a pasted text, "owner/name"; "" if there is none."""
    text = text.strip().removesuffix(".git")
    if address := _ADDRESS.fullmatch(text):
        owner = address[1].split("/")[0]
        return "" if owner in {"datasets", "spaces", "docs", "blog", "papers", "collections"} else address[1]
    return text if _REPO.fullmatch(text) else ""
