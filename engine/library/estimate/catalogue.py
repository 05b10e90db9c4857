"""The catalogue of models, from assets/catalogue.json, with estimates for a machine.

It downloads nothing and does not know what is installed. docs/catalogue.md states the sources of the figures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from engine.assets import asset_root
from engine.config import parse_activation
from engine.errors import EngineError, ModelFormatError, ModelNotFoundError
from engine.formats.json_text import read_object
from engine.library.estimate.coverage import check_coverage
from engine.library.estimate.estimates import as_prepared, noted, solve_estimate
from engine.library.estimate.machines import KnownMachine
from engine.library.estimate.mixtures import main_codec
from engine.library.estimate.shapes import config_of, parameters_of
from engine.library.records import CatalogueEntry, Estimate, ModelShape, Sparsity
from engine.plain_config import from_plain
from engine.text.chat_templates import TEMPLATE_NAMES

SCHEMA_VERSION = 1
FLUENT_TOK_S = 20.0  # most models think before they answer, and their user waits for that
ABLE_PARAMETERS = 4_000_000_000  # smaller models know too little to be preferred for being fluent
READING_TOK_S = 8.0  # people read about five words a second
SPARE_DISK_BYTES = 2_000_000_000  # that no download takes
_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
# The codec in names of GGUF files: "Q4_K_M" in "Qwen3-8B-Q4_K_M.gguf".
_CODEC_IN_NAME = re.compile(r"[-._]((?:q[2-8]_(?:k(?:_(?:xs|s|m|l|xl))?|[01])|iq4_(?:xs|nl)|mxfp4|bf16|f16|f32))\b")
# Files of a repository that the engine reads.
_READ = ("*.gguf", "*.safetensors", "*.json", "*.model", "merges.txt", "activation/*.pt", "*.jinja")


@dataclass(frozen=True)
class Catalogue:
    """The entries, recommended ones first."""

    entries: tuple[CatalogueEntry, ...]

    def get(self, entry_id: str) -> CatalogueEntry:
        """Return the entry with this id. Raises: ModelNotFoundError."""
        found = self.find(entry_id)
        if found is None:
            raise ModelNotFoundError(
                f"The catalogue has no model {entry_id[:80]!r}.",
                "`catalogue` lists those it has; a repository is named as owner/name.",
            )
        return found

    def find(self, entry_id: str) -> CatalogueEntry | None:
        """Return the entry with this id, or None."""
        return next((entry for entry in self.entries if entry.id == entry_id), None)

    def of_repository(self, repo: str, variant: str = "") -> CatalogueEntry | None:
        """Return the entry of a repository's variant, which has more information than the files; None if none or
        several match.
        """
        same = [entry for entry in self.entries if entry.repo.lower() == repo.lower()]
        if variant:
            same = [entry for entry in same if variant == entry.codec or any(variant in name for name in entry.files)]
        return same[0] if len(same) == 1 else None

    def matching(self, query: str) -> tuple[CatalogueEntry, ...]:
        """Return the entries in which every word of the query occurs: in name, maker, family, kind, repository or
        licence.
        """
        words = query.lower().split()
        return tuple(entry for entry in self.entries if all(word in _words(entry) for word in words))


def load_catalogue(file: Path | None = None) -> Catalogue:
    """Return the catalogue that ships with Hearth, or that of another file; all fields are checked.

    Raises: ModelFormatError with the entry, ModelNotFoundError if the file is missing.
    """
    return _load(asset_root() / "catalogue.json" if file is None else file)


@lru_cache(maxsize=4)
def _load(file: Path) -> Catalogue:
    values = read_object(file, max_bytes=1 << 20, max_values=1 << 15, finite=True)
    version, curves = values.get("schema_version"), values.get("curves", {})
    if version != SCHEMA_VERSION:
        raise ModelFormatError(f"{file.name} has schema version {version!r}; this Hearth reads {SCHEMA_VERSION}.")
    given = values.get("models")
    if not isinstance(given, list) or not isinstance(curves, dict):
        raise ModelFormatError(f"{file.name} has no list of models.")
    entries = [_entry(value, curves, f"{file.name}, model {number}") for number, value in enumerate(given)]
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise ModelFormatError(f"{file.name} has two models {entry.id!r}.")
        seen.add(entry.id)
    return Catalogue(tuple(sorted(entries, key=lambda entry: (entry.rank, entry.name, entry.n_bytes))))


def _entry(value: object, curves: dict[str, object], where: str) -> CatalogueEntry:
    """curves: 20 points by name; an entry's coverage may name one."""
    if isinstance(value, dict):
        where = f"{where} ({str(value.get('id', ''))[:60]})"
        sparsity = value.get("sparsity")
        if isinstance(sparsity, dict) and isinstance(sparsity.get("coverage"), str):
            name = sparsity["coverage"]
            if name not in curves:
                raise ModelFormatError(f"{where} has the curve {name[:60]!r}, which is not there.")
            value = {**value, "sparsity": {**sparsity, "coverage": curves[name]}}
        value = {**_derived(value, where), **value}
    try:
        entry: CatalogueEntry = from_plain(CatalogueEntry, value, where, strict=True)
        _check(entry, where)
    except ModelFormatError:
        raise
    except EngineError as error:
        raise ModelFormatError(f"{where}: {error.message}") from error
    return entry


def _derived(value: dict[str, object], where: str) -> dict[str, object]:
    """Return defaults for omitted fields: a dense chat model in one GGUF file.

    The codec follows from the file's name, the number of parameters from the shape.
    """
    files = value.get("files")
    first = str(files[0]).lower() if isinstance(files, list) and files else ""
    is_gguf = first.endswith(".gguf")
    found: dict[str, object] = {
        "kind": "chat", "format": "gguf" if is_gguf else "safetensors", "n_bytes_source": "published",
        "sparsity": {"source": "published"},
    }  # fmt: skip
    if is_gguf and (codec := _CODEC_IN_NAME.search(first)):
        found["codec"] = codec[1]
    if "parameters" not in value and "shape" in value:
        with suppress(EngineError):  # the shape is refused with its own reason when the entry is checked
            found["parameters"] = parameters_of(from_plain(ModelShape, value["shape"], f"{where}.shape", strict=True))
    return found


def _check(entry: CatalogueEntry, where: str) -> None:
    """Check an entry. Raises: ModelFormatError or another EngineError with the problem."""

    def require(sound: bool, what: str) -> None:
        if not sound:
            raise ModelFormatError(f"{where}: {what}.")

    require(bool(_ID.fullmatch(entry.id)), "the id is lower case, digits, dots and hyphens")
    require(bool(_REPO.fullmatch(entry.repo)), "the repository is owner/name")
    require(not entry.predictor_repo or bool(_REPO.fullmatch(entry.predictor_repo)), "predictor_repo is owner/name")
    for text in ("name", "maker", "family", "summary", "licence", "revision"):
        require(bool(getattr(entry, text).strip()), f"{text} is empty")
    require(bool(entry.files), "no files are named")
    for pattern in entry.files:
        inside = not pattern.startswith("/") and ".." not in pattern and "\\" not in pattern
        require(inside and any(fnmatchcase(pattern, read) for read in _READ), f"{pattern[:60]!r} is not read by Hearth")
    require(entry.n_bytes > 0 and entry.parameters > 0, "sizes are above 0")
    require(entry.n_draft_layers >= 0, "n_draft_layers is 0 or more")
    require(not entry.template or entry.template in TEMPLATE_NAMES, f"there is no template {entry.template[:40]!r}")
    if entry.activation:
        parse_activation(entry.activation)
    config = config_of(entry.shape)
    main_codec(entry.codec)
    share = entry.sparsity.active_share
    unknown = config.has_zeros and share is None and entry.sparsity == Sparsity(source="family")
    require(
        (share is None) == (not config.has_zeros) or unknown, "active_share is of models whose activation makes zeros"
    )
    require(share is None or 0 < share <= 1, "active_share is above 0 and at most 1")
    require(0 <= entry.sparsity.predictor_share < 0.5, "predictor_share is from 0 to 0.5")
    require(share is None or bool(entry.sparsity.source_note), "source_note is empty")
    if share is not None:
        check_coverage(entry.sparsity.coverage, f"{where}: coverage")


def _words(entry: CatalogueEntry) -> str:
    return " ".join(
        (entry.id, entry.name, entry.maker, entry.family, entry.kind, entry.repo, entry.licence, entry.codec)
    ).lower()


# --- for a machine


@dataclass(frozen=True)
class Estimated:
    """An entry with its estimate for one machine."""

    entry: CatalogueEntry
    estimate: Estimate


class Estimates:
    """Cached estimates of the catalogue, by state of the machine, budget and context. Thread-safe."""

    _MOST_STATES = 64

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._cached: dict[tuple[str, float | None, int | None], dict[tuple[object, ...], Estimate]] = {}

    def one(
        self,
        entry: CatalogueEntry,
        machine: KnownMachine,
        vram_budget_gib: float | None = None,
        context: int | None = None,
    ) -> Estimate:
        """Return the estimate of an entry. Raises: as `estimate`."""
        key = (machine.state, vram_budget_gib, context)
        of_state = self._cached.get(key)
        if of_state is None:
            if len(self._cached) >= self._MOST_STATES:
                self._cached = {}
            of_state = self._cached.setdefault(key, {})
        # Several forms of a model are the same once they are prepared.
        of_model = (entry.shape, *as_prepared(entry.shape, entry.codec, entry.format), entry.sparsity)
        found = of_state.get(of_model)
        if found is None:
            case = (entry.shape, entry.codec, entry.format, entry.sparsity, machine, vram_budget_gib, context)
            of_state[of_model] = found = solve_estimate(*case).estimate
        return noted(found, entry.shape, entry.codec, entry.format)

    def all(
        self, machine: KnownMachine, vram_budget_gib: float | None = None, context: int | None = None
    ) -> tuple[Estimated, ...]:
        """Return every entry with its estimate, in the catalogue's order. Raises: as `estimate`."""
        return tuple(
            Estimated(entry, self.one(entry, machine, vram_budget_gib, context)) for entry in self.catalogue.entries
        )


def recommended(estimated: Sequence[Estimated], disk_free_bytes: int | None = None) -> Estimated | None:
    """Return the chat model to offer at the first launch: the best that fits and answers fluently, else at reading
    speed, else the fastest that fits. Models that would leave the GPU unused come last. A model that reads experts from
    the disk is the offer only if no other fits.

    disk_free_bytes: of the disk for models; None: unlimited.
    """
    room = None if disk_free_bytes is None else disk_free_bytes - SPARE_DISK_BYTES
    chat = [one for one in estimated if one.entry.kind == "chat" and not one.entry.gated]
    chat = [one for one in chat if one.estimate.fits != "no" and (room is None or one.entry.n_bytes <= room)]
    chat = [one for one in chat if one.estimate.fits != "disk"] or chat
    for least in (FLUENT_TOK_S, READING_TOK_S):
        quick = [one for one in chat if (one.estimate.low_tok_s or 0) >= least]
        if least == FLUENT_TOK_S:
            quick = [one for one in quick if one.entry.parameters >= ABLE_PARAMETERS]
        if quick:
            return min(quick, key=lambda one: (one.estimate.leaves_gpu_unused, one.entry.rank))
    return max(chat, key=lambda one: one.estimate.predicted_tok_s or 0, default=None)


def what_would_fit(
    estimated: Sequence[Estimated], entry: CatalogueEntry | None = None, limit: int = 3
) -> tuple[Estimated, ...]:
    """Return models that fit instead of one that does not: of its kind, the same family first if possible, the largest
    first among those that answer at reading speed.
    """
    kind = entry.kind if entry is not None else "chat"
    fitting = [one for one in estimated if one.estimate.fits != "no" and (entry is None or one.entry.id != entry.id)]

    def worth(one: Estimated) -> tuple[bool, bool, bool, bool, int]:
        is_readable = (one.estimate.low_tok_s or 0) >= READING_TOK_S
        same_family = entry is not None and one.entry.family == entry.family
        in_memory = one.estimate.fits != "disk"
        return one.entry.kind == kind, in_memory, is_readable, same_family, one.entry.parameters

    return tuple(sorted(fitting, key=worth, reverse=True)[:limit])
