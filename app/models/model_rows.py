"""Rows of the Models page and the model menu: one for each model, with all that is known of it. Plain data, no Qt.

`rows_of` joins what catalogue, library and downloads know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from app.library_messages import remark
from app.models.model_labels import Rate, rate_of, shortfall, speed
from app.translation import noted, tr
from engine.library.records import CatalogueEntry, Download, Estimate, InstalledModel

SHIPPED_RANK, OWN_RANK, FETCHED_RANK = 900, 1000, 1100  # after the catalogue's recommendations

SHIPPED_ID = "hearth/starter-chat"  # of the shipped model, as in engine/library/owned/installed.py
STARTER = "starter-chat"  # its name in the chat
SHIPPED_NAMES = (STARTER, "pip")  # its other names, as in engine/loading/opening.py

_FITS = {
    "gpu": (noted("Fits the GPU"), "ok"),
    "hybrid": (noted("GPU + CPU"), "cold"),
    "cpu": (noted("CPU only"), "warn"),
    "disk": (noted("Partly on the disk"), "warn"),
}
SLOW_TOK_S = 5.0  # slower than people read: the label says so instead of the placement


@dataclass(frozen=True)
class Preparing:
    """A model that is being prepared. stage: of PrepareStep; empty before the first."""

    model: str  # its installed id
    stage: str = ""
    done: int = 0
    total: int = 0
    eta_s: float | None = None


@dataclass(frozen=True)
class ModelRow:
    """A model and all that is known of it. Sizes in bytes; parameters 0 and texts empty if unknown.

    download: running or failed; a finished one shows as `installed`. verdict: text of its label, empty if unknown;
    verdict_token: the label's colour (ok, cold, warn, bad, hot).
    """

    id: str  # of the catalogue, else of the library; for a downloading repository: its future id
    name: str
    maker: str
    family: str
    kind: str
    licence: str
    summary: str
    parameters: int
    codec: str
    n_bytes: int
    entry: CatalogueEntry | None
    installed: InstalledModel | None
    download: Download | None
    estimate: Estimate | None
    preparing: Preparing | None
    in_use: bool
    loading: bool
    rank: int
    verdict: str = ""
    verdict_token: str = ""

    @property
    def measured_tok_s(self) -> float | None:
        """The decode rate of its last longer answer on this PC."""
        return self.installed.measured_tok_s if self.installed is not None else None

    @property
    def rate(self) -> Rate | None:
        """Its rate here: measured, else estimated; none for a model that does not answer."""
        return None if self.kind == "embedding" else rate_of(self.estimate, self.measured_tok_s)

    @property
    def speed(self) -> tuple[str, str]:
        """The texts of `rate`, also if there is none; ("–", "") for a model that does not answer."""
        return ("–", "") if self.kind == "embedding" else speed(self.estimate, self.measured_tok_s)

    @property
    def is_slow(self) -> bool:
        """Whether it would answer more slowly than people read."""
        return self.rate is not None and self.rate.tok_s < SLOW_TOK_S

    @property
    def leaves_gpu_unused(self) -> bool:
        """Whether it runs on the CPU alone although there is a GPU."""
        return self.estimate is not None and self.estimate.leaves_gpu_unused

    @property
    def reads_disk(self) -> bool:
        """Whether some of its experts would be read from the disk when they are chosen."""
        return self.estimate is not None and self.estimate.fits == "disk"


def rows_of(
    catalogue: Iterable[tuple[CatalogueEntry, Estimate | None]],
    installed: Iterable[InstalledModel],
    downloads: Iterable[Download],
    preparing: Preparing | None,
    in_use: str = "",
    loading: str = "",
    estimates: Mapping[str, Estimate] | None = None,
) -> list[ModelRow]:
    """Return one row for each model: the catalogue in order of recommendation, then other installed models, then
    downloads.

    in_use, loading: id or path of the loaded or loading model. estimates: of installed models, by id; preferred over
    the catalogue's, since they use the model's own statistics.
    """
    estimates = estimates or {}
    owned = list(installed)
    open_downloads = [download for download in downloads if download.state != "done"]
    rows: list[ModelRow] = []

    def add(entry: CatalogueEntry | None, model: InstalledModel | None, download: Download | None,
            estimate: Estimate | None) -> None:  # fmt: skip
        if model is not None:
            estimate = estimates.get(model.id, estimate)
        rows.append(_row(entry, model, download, estimate, preparing, in_use, loading))

    for entry, estimate in sorted(catalogue, key=lambda known: (known[0].rank, known[0].name)):
        mine = [model for model in owned if model.catalogue_id == entry.id]
        best = min(mine, key=lambda model: model.state == "broken", default=None)
        if best is not None:
            owned.remove(best)
        add(entry, best, _take(open_downloads, entry.id, best), estimate)
    for model in owned:
        add(None, model, _take(open_downloads, "", model), None)
    for download in open_downloads:
        add(None, None, download, None)
    return _distinguished(rows)


def _distinguished(rows: list[ModelRow]) -> list[ModelRow]:
    """Add the file's name, and its folder if needed, to models with equal names.

    Catalogue entries and the shipped model keep theirs.
    """
    for parts in (1, 2, 100):
        counts = Counter(row.name.casefold() for row in rows)
        rows = [row if counts[row.name.casefold()] == 1 else _with_file(row, parts) for row in rows]
    return rows


def _with_file(row: ModelRow, parts: int) -> ModelRow:
    if row.installed is None or row.entry is not None or row.installed.origin == "shipped":
        return row
    name, path = row.installed.name, PurePath(row.installed.path)
    return replace(row, name=f"{name} ({'/'.join(path.parts[-parts:])})")


def _take(downloads: list[Download], catalogue_id: str, model: InstalledModel | None) -> Download | None:
    """Remove and return a row's download from the list."""
    for download in downloads:
        if (catalogue_id and download.catalogue_id == catalogue_id) or (model and download.model == model.id):
            downloads.remove(download)
            return download
    return None


def _row(
    entry: CatalogueEntry | None,
    model: InstalledModel | None,
    download: Download | None,
    estimate: Estimate | None,
    preparing: Preparing | None,
    in_use: str,
    loading: str,
) -> ModelRow:
    shipped = model is not None and model.origin == "shipped"
    names = {model.id, model.path, *(SHIPPED_NAMES if shipped else ())} if model else set()
    mine = preparing if preparing and preparing.model in names else None
    used, comes = bool(in_use) and in_use in names, bool(loading) and loading in names
    verdict, token = verdict_of(model, estimate, mine is not None, used, comes)
    row_id = entry.id if entry else model.id if model else download.model if download else ""
    if entry is not None:
        return ModelRow(
            entry.id, entry.name, entry.maker, entry.family, entry.kind, entry.licence, tr(entry.summary),
            entry.parameters, entry.codec, model.n_bytes if model else entry.n_bytes, entry, model, download, estimate,
            mine, used, comes, entry.rank, verdict, token,
        )  # fmt: skip
    if model is not None:
        return ModelRow(
            row_id, model.name, tr("comes with Hearth") if shipped else _owner(model.id), "", model.kind, model.licence,
            _about(model, shipped), 0, "", model.n_bytes, None, model, download, estimate,
            mine, used, comes, SHIPPED_RANK if shipped else OWN_RANK, verdict, token,
        )  # fmt: skip
    assert download is not None, "a row has at least one part"
    return ModelRow(
        row_id, download.name, _owner(download.repo), "", "", "", "", 0, "", download.total_bytes, None, None,
        download, estimate, None, False, False, FETCHED_RANK, verdict, token,
    )  # fmt: skip


def _about(model: InstalledModel, shipped: bool) -> str:
    """Return why a model is broken, else its file."""
    if model.state == "broken":
        return remark(model.reason)
    return "" if shipped else PurePath(model.path).name


def _owner(name: str) -> str:
    owner, _, rest = name.partition("/")
    return owner if rest and owner != "local" else ""


def listed_id(model: str) -> str:
    """Return the library's id of a model, given by any of its names."""
    return SHIPPED_ID if model.lower() in SHIPPED_NAMES else model


def verdict_of(
    model: InstalledModel | None, estimate: Estimate | None, preparing: bool, in_use: bool, loading: bool
) -> tuple[str, str]:
    """Return the text and colour of a row's label. What is happening now comes before what is possible."""
    if preparing:
        return tr("Preparing"), "hot"
    if loading:
        return tr("Loading"), "hot"
    if in_use:
        return tr("In use"), "hot"
    if model is not None and model.state == "broken":
        return tr("Broken"), "bad"
    if estimate is not None and estimate.fits == "no":
        return too_big(estimate), "bad"
    if model is not None and (model.state == "ready" or estimate is None):
        return tr("Ready"), "ok"
    return fit_text(estimate, model.measured_tok_s if model is not None else None)


def fit_text(estimate: Estimate | None, measured_tok_s: float | None = None) -> tuple[str, str]:
    """Return how a model would run on this PC, and the colour for that; empty if unknown.

    Running on the CPU is a warning only if there is a GPU.
    """
    if estimate is None:
        return "", ""
    if estimate.fits == "no":
        return too_big(estimate), "bad"
    rate = rate_of(estimate, measured_tok_s)
    if rate is not None and rate.tok_s < SLOW_TOK_S:
        return tr("Slow here"), "warn"
    if estimate.fits == "cpu" and not estimate.leaves_gpu_unused:
        return tr("Fits this PC"), "ok"
    words, token = _FITS[estimate.fits]
    return tr(words), token


def too_big(estimate: Estimate) -> str:
    """Return "8 GB too big", as `shortfall` counts it."""
    return tr("{size} too big", size=shortfall(estimate).missing)


def recommended(rows: Iterable[ModelRow], disk_free_bytes: int | None = None, offered: str = "") -> ModelRow | None:
    """Return the bigger model to offer at the first launch: a chat model that anyone may download, for which there is
    disk space; the best one that answers fluently, else at reading speed, else the fastest. Models that would leave the
    GPU unused come last. A model that reads experts from the disk is the offer only if no other fits.

    None once the user has or downloads a model besides the shipped one. offered: id of the row offered before; it stays
    the offer while it is downloaded and prepared, until it is in use.
    """
    rows = list(rows)
    taken = [row for row in rows if row.download or (row.installed and row.installed.origin != "shipped")]
    if taken:
        return next((row for row in taken if row.id == offered and len(taken) == 1 and not row.in_use), None)
    fitting = [row for row in rows if row.entry and _is_offer(row.entry, row.estimate, disk_free_bytes)]
    fitting = [row for row in fitting if not row.reads_disk] or fitting
    for least in (FLUENT_TOK_S, READING_TOK_S):
        quick = [row for row in fitting if row.estimate and (row.estimate.low_tok_s or 0.0) >= least]
        if least == FLUENT_TOK_S:
            quick = [row for row in quick if row.entry and row.entry.parameters >= ABLE_PARAMETERS]
        if quick:
            return min(quick, key=lambda row: (row.leaves_gpu_unused, row.rank, row.name))
    return max(fitting, key=lambda row: (row.estimate and row.estimate.predicted_tok_s) or 0.0, default=None)


FLUENT_TOK_S = 20.0  # most models think before they answer, and their user waits for that
ABLE_PARAMETERS = 4_000_000_000  # smaller models know too little to be preferred for being fluent
READING_TOK_S = 8.0  # people read about five words a second; a slower model makes a poor first impression
DISK_SPARE_BYTES = 2_000_000_000


def _is_offer(entry: CatalogueEntry, estimate: Estimate | None, disk_free_bytes: int | None) -> bool:
    return (
        entry.kind == "chat"
        and not entry.gated
        and estimate is not None
        and estimate.fits != "no"
        and bool(estimate.predicted_tok_s)
        and (disk_free_bytes is None or disk_free_bytes >= entry.n_bytes + DISK_SPARE_BYTES)
    )
