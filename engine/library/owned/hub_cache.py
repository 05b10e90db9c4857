"""Models in the hub client's own cache on this PC, used in place. Changes nothing in it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from engine.errors import EngineError
from engine.formats.shard_index import INDEX_NAME, TORCH_INDEX_NAME, indexed_files
from engine.formats.shards import first_shards, shard_paths
from engine.library.owned.stored_models import FoundModel, as_part

_MAX_REPOSITORIES = 2000
_PART = re.compile(r"-\d{5}-of-\d{5}$")


def cache_folder() -> Path:
    """Return the cache folder according to the environment, as the hub's own client does. It may not exist."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if given := os.environ.get(variable):
            return _expanded(given)
    if given := os.environ.get("HF_HOME"):
        return _expanded(given) / "hub"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return _expanded(cache) / "huggingface" / "hub"


def cached_models(root: Path) -> Iterator[FoundModel]:
    """Yield the complete models in the cache. Cost: lists folders; reads indexes of safetensors."""
    for folder in _folders(root)[:_MAX_REPOSITORIES]:
        kind, *names = folder.name.split("--")
        if kind != "models" or len(names) < 2:
            continue
        snapshot = _snapshot(folder)
        if snapshot is not None:
            yield from _models_in("/".join(names[:2]), snapshot)


def _models_in(repo: str, snapshot: Path) -> Iterator[FoundModel]:
    try:
        files = {path.name: path for path in sorted(snapshot.iterdir()) if path.is_file()}
        # a repository may have a folder for each quantisation
        deeper = [path for folder in _folders(snapshot) for path in sorted(folder.glob("*.gguf")) if path.is_file()]
    except OSError:
        return
    if "config.json" in files and (weights := _weights(files)):
        beside = [name for name in files if name.endswith((".json", ".txt", ".model", ".jinja")) or "LICENSE" in name]
        names = tuple(dict.fromkeys([*weights, *beside]))
        yield _found(repo, "", snapshot, "", names)
    ggufs = [path for name, path in files.items() if name.lower().endswith(".gguf")] + deeper
    for first in first_shards(ggufs):
        try:
            shards = shard_paths(first)
        except EngineError:
            continue  # a part is not there yet
        below = [path.relative_to(snapshot).as_posix() for path in shards]
        yield _found(repo, _PART.sub("", first.stem), snapshot, below[0], tuple(below))


def _found(repo: str, variant: str, snapshot: Path, path: str, names: tuple[str, ...]) -> FoundModel:
    """variant: one of several GGUF files of the repository; empty for a folder of safetensors."""
    part = as_part(variant, "") if variant else ""
    id, name = f"{repo}-{part}" if part else repo, variant or repo.rpartition("/")[2]
    return FoundModel("hub cache", id, name, snapshot, path, names, repo, snapshot.name)


def _weights(files: dict[str, Path]) -> list[str]:
    for whole, index in (("model.safetensors", INDEX_NAME), ("pytorch_model.bin", TORCH_INDEX_NAME)):
        if whole in files:
            return [whole]
        if index in files:
            with contextlib.suppress(EngineError):  # a part is not there yet
                return [index, *(path.name for path in indexed_files(files[index]))]
    return []


def _snapshot(folder: Path) -> Path | None:
    """Return the snapshot of the branch main, else the newest."""
    try:
        with (folder / "refs" / "main").open("rb") as file:
            revision = file.read(100).decode("ascii", "replace").strip()
        named = folder / "snapshots" / revision
        if revision.isalnum() and named.is_dir():
            return named
    except OSError:
        pass
    try:
        return max(_folders(folder / "snapshots"), key=lambda path: path.stat().st_mtime_ns, default=None)
    except OSError:
        return None


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return []


def _expanded(path: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(os.path.expandvars(path))))
