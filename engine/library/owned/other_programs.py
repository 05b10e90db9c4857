"""Models of other programs on this PC: LM Studio, Ollama, Jan and GPT4All.

Models are used in place. Nothing is copied, written or deleted in these folders. The header of a file tells whether
Hearth can run it; the caller checks.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.formats.json_text import read_object
from engine.formats.shards import first_shards, shard_paths
from engine.library.owned.stored_models import FoundModel
from engine.library.records import Origin

_MOST_FILES = 2000  # per program; more is an archive, and reading all headers would take minutes
_DEEPEST = 4  # folders below a models folder: publisher, repository, quantisation, parts
_MANIFEST_BYTES = 1 << 20
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_ADAPTER = "application/vnd.ollama.image.adapter"
_OLLAMA_HUB = "registry.ollama.ai"  # the folder of its own registry; model names omit it and "library"
_PART = re.compile(r"-\d{5}-of-\d{5}$")


def models_of_other_programs() -> Iterator[FoundModel]:
    """Yield every model file of the programs found, by program and name.

    Cost: lists folders, reads the small manifests of Ollama. Raises nothing: unreadable files are skipped.
    """
    for root in _lm_studio_folders():
        yield from _in_folder(root, "LM Studio")
    for root in _ollama_folders():
        yield from _in_ollama(root)
    for root in _jan_folders():
        yield from _in_folder(root, "Jan")
    for root in _gpt4all_folders():
        yield from _in_folder(root, "GPT4All")


# --- folders of GGUF files


def _in_folder(root: Path, program: Origin) -> Iterator[FoundModel]:
    """Yield the GGUF models below a folder.

    The path gives owner and name: publisher/repository/file.gguf in LM Studio, model/model.gguf in Jan, file.gguf in
    GPT4All.
    """
    for first in first_shards(_ggufs(root)):
        try:
            shards = shard_paths(first)
        except EngineError:
            continue  # a part is not there yet
        folder, stem = first.parent, _PART.sub("", first.stem)
        above = folder.relative_to(root).parts
        if stem.casefold() == "model" and above:
            stem = above[-1]
        repo = "/".join(above[:2]) if program == "LM Studio" and len(above) >= 2 else ""
        owner = above[0] if repo else program.replace(" ", "-").lower()
        yield FoundModel(
            program, f"{owner}/{stem}", stem, folder, first.name, tuple(path.name for path in shards), repo
        )


def _ggufs(root: Path) -> list[Path]:
    """Return the model files below a folder, sorted. Image encoders (mmproj) are not models."""
    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=None, followlinks=False):
        here = Path(folder)
        if len(here.relative_to(root).parts) >= _DEEPEST:
            folders.clear()
        folders.sort()
        found += [
            here / name
            for name in sorted(names)
            if name.lower().endswith(".gguf") and "mmproj" not in name.lower() and (here / name).is_file()
        ]
        if len(found) >= _MOST_FILES:
            return found[:_MOST_FILES]
    return found


# --- Ollama


def _in_ollama(root: Path) -> Iterator[FoundModel]:
    """Yield the models whose manifests are below `root`, which holds manifests/ and blobs/."""
    manifests, number = root / "manifests", 0
    for folder, folders, names in os.walk(manifests, onerror=None, followlinks=False):
        folders.sort()
        for tag in sorted(names):
            number += 1
            if number > _MOST_FILES:
                return
            path = Path(folder) / tag
            blob = _model_blob(path)
            above = path.relative_to(manifests).parts[:-1]
            if blob is None or len(above) < 2 or not (root / "blobs" / blob).is_file():
                continue
            parts = [part for part in above if part not in (_OLLAMA_HUB, "library")]
            name = f"{'/'.join(parts)}:{tag}"
            yield FoundModel("Ollama", f"ollama/{'-'.join((*parts, tag))}", name, root / "blobs", blob, (blob,))


def _model_blob(manifest: Path) -> str | None:
    """Return the name of the weights' file in a manifest; None without one, or with an adapter, without which the model
    would answer differently.
    """
    try:
        layers: Any = read_object(manifest, max_bytes=_MANIFEST_BYTES, max_values=1 << 12).get("layers")
    except EngineError:
        return None
    if not isinstance(layers, list):
        return None
    layers = [layer for layer in layers if isinstance(layer, dict)]
    weights = [layer for layer in layers if layer.get("mediaType") == _OLLAMA_MODEL]
    if len(weights) != 1 or any(layer.get("mediaType") == _OLLAMA_ADAPTER for layer in layers):
        return None
    digest = _DIGEST.fullmatch(str(weights[0].get("digest")))
    return f"sha256-{digest[1]}" if digest else None


# --- where they keep them


def _lm_studio_folders() -> list[Path]:
    home = _home() / ".lmstudio"
    pointer = _text(_home() / ".lmstudio-home-pointer").strip()
    if pointer and os.path.isabs(pointer):
        home = Path(pointer)
    folders = [home / "models", _home() / ".cache" / "lm-studio" / "models"]
    try:
        chosen = read_object(home / "settings.json", max_bytes=_MANIFEST_BYTES, max_values=1 << 14)
    except EngineError:
        chosen = {}
    given = chosen.get("downloadsFolder")
    return _existing([Path(given)] if isinstance(given, str) and os.path.isabs(given) else [], folders)


def _ollama_folders() -> list[Path]:
    given = os.environ.get("OLLAMA_MODELS", "")
    folders = [_home() / ".ollama" / "models"]
    if sys.platform == "linux":  # its service runs as a separate user
        folders += [Path("/usr/share/ollama/.ollama/models"), Path("/var/lib/ollama/.ollama/models")]
    return _existing([Path(given)] if os.path.isabs(given) else [], folders)


def _jan_folders() -> list[Path]:
    roots = [_home() / "jan", _roaming() / "Jan" / "data", _data() / "Jan" / "data"]
    return _existing([root / "llamacpp" / "models" for root in roots], [root / "models" for root in roots])


def _gpt4all_folders() -> list[Path]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(_text(_roaming() / "nomic.ai" / "GPT4All.ini") or "[General]")
        given = parser.get("General", "modelPath", fallback="")
    except configparser.Error:
        given = ""
    return _existing([Path(given)] if os.path.isabs(given) else [], [_data() / "nomic.ai" / "GPT4All"])


def _existing(chosen: list[Path], usual: list[Path]) -> list[Path]:
    """Return the existing folders, each once."""
    found = [folder for folder in (*chosen, *usual) if folder.is_dir()]
    return list({os.path.realpath(folder): folder for folder in reversed(found)}.values())[::-1]


def _home() -> Path:
    return Path(os.path.expanduser("~"))


def _roaming() -> Path:
    """Return the folder for settings of programs: APPDATA on Windows, XDG_CONFIG_HOME elsewhere."""
    given = os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", "")
    return Path(given) if given else _home() / ".config"


def _data() -> Path:
    """Return the folder for data of programs: LOCALAPPDATA on Windows, XDG_DATA_HOME elsewhere."""
    given = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_DATA_HOME", "")
    return Path(given) if given else _home() / ".local" / "share"


def _text(path: Path) -> str:
    """Return the beginning of a small text file; empty without one."""
    try:
        if not path.is_file():
            return ""
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
