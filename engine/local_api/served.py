"""The models that requests of the local API can name: the loaded one, and those on this PC if it may load them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine
from engine.bundle.bundle import write_json
from engine.errors import EngineError, ModelFormatError, ModelNotFoundError
from engine.formats.json_text import read_object
from engine.loading.embedding_models import check_answers, pooling_of
from engine.local_api.failures import ApiError, no_model
from engine.plain_config import from_plain
from engine.session.resolve_model import STARTER_NAMES
from engine.tool_calls.call_style import call_style

if TYPE_CHECKING:
    from engine.library.records import InstalledModel
    from engine.model.model_files import OpenedModel
    from engine.session.loaded_model import LoadedModel
    from engine.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_MOST_FILES = 1000  # of a model's folder
_STARTED_AT = int(time.time())  # of this process, because a model's creation time is unknown


@dataclass(frozen=True)
class Target:
    """The model that a request means. name: as replies have it. load: the argument that loads it; "": it cannot be
    loaded by a request. path: its files; None: the name alone decides.
    """

    name: str
    load: str = ""
    path: Path | None = None

    def is_model(self, model: LoadedModel) -> bool:
        if self.path is None:
            return answers_to(model, self.name)
        return _spelled(self.path) == _spelled(model.opened.files.path)

    def check_answers(self) -> None:
        """Raise UnsupportedModelError for an encoder. Cost: opens the model, and leaves one that fails to its load."""
        from engine.session.resolve_model import open_named

        try:
            opened = open_named(self.load)
        except EngineError:
            return
        check_answers(opened)


class ServedModels:
    """Thread-safe. loads: whether requests may name any model on this PC, which is then loaded."""

    def __init__(self, loaded: Callable[[], LoadedModel | None]) -> None:
        self.loads = False
        self.loaded = loaded
        self._known: dict[str, tuple[tuple[str, ...], Target]] = {}  # names, of models loaded so far by their paths
        self._facts = _KnownFacts()

    def remember(self, model: LoadedModel, load: str) -> None:
        """Note which argument loaded a model, so that requests can load it again."""
        path = model.opened.files.path
        self._known[_spelled(path)] = (_names(model), Target(model.name, load, path))

    def find(self, name: str) -> Target:
        """Return the model that a request names. Cost: reads the list of models unless it is loaded.

        Raises: ApiError if there is none, or none is loaded and requests cannot load one.
        """
        model = self.loaded()
        if model is not None and answers_to(model, name):
            path = model.opened.files.path
            known = self._known.get(_spelled(path)) if self.loads else None
            return Target(model.name, "", path) if known is None else known[1]
        shown = name if len(name) <= 80 else f"{name[:80]}…"
        if not self.loads:
            if model is None:
                raise no_model()
            raise _unknown(f"There is no model {shown!r} here; {model.name!r} is loaded.")
        from engine.library.owned.installed import Library

        try:
            found = Library().look_up(name)
        except ModelNotFoundError as error:
            raise _unknown(f"{error.message} {error.hint}") from None
        if found is None:
            for names, target in list(self._known.values()):
                if name.casefold() in names:
                    return target
            raise _unknown(f"There is no model {shown!r} on this PC; GET /v1/models lists those that can be asked.")
        if found.state == "broken":
            raise _unknown(f"{found.name} cannot be loaded. {found.reason}")
        return Target(found.name, _load_of(found), _path_of(found))

    def listed(self) -> list[dict[str, Any]]:
        """Return the models as /v1/models lists them: the loaded one first.

        Cost: opens each model whose files are new or have changed, up to 1 s for a large vocabulary.
        """
        model = self.loaded()
        found = [] if model is None else [loaded_values(model)]
        if not self.loads:
            return found
        from engine.library.owned.installed import Library

        others = [one for one in Library().models() if one.state != "broken"]
        paths = {_spelled(_path_of(one)) for one in others} | ({_spelled(model.opened.files.path)} if model else set())
        names = [one.name.casefold() for one in others]
        for one in others:
            if model is None or not Target("", path=_path_of(one)).is_model(model):
                name = one.name if names.count(one.name.casefold()) == 1 else one.id
                found += self._values(name, _load_of(one), _path_of(one))
        for key, (_, target) in list(self._known.items()):
            if key not in paths and target.path is not None:
                found += self._values(target.name, target.load, target.path)
        self._facts.save()
        return found

    def values(self, target: Target) -> dict[str, Any]:
        """Return a model as /v1/models lists it. Raises: ApiError if its files cannot be read any more."""
        model = self.loaded()
        if model is not None and target.is_model(model):
            return loaded_values(model)
        assert target.path is not None, "it is not the loaded model"
        for values in self._values(target.name, target.load, target.path):
            return values
        raise _unknown(f"The files of {target.name} cannot be read.")

    def _values(self, name: str, load: str, path: Path) -> list[dict[str, Any]]:
        """Return a model that is not loaded as /v1/models lists it; [] if it cannot be read."""
        try:
            return [_values(name, self._facts.of(load, path), False)]
        except (EngineError, OSError):
            return []


@dataclass(frozen=True)
class _Facts:
    """The facts about a model's files that /v1/models reports."""

    context_length: int
    size_bytes: int
    tools: bool
    thinking: tuple[str, ...]
    schema: bool
    embeddings: bool


class _KnownFacts:
    """The facts of models that are not loaded, kept in a file: to open a model takes up to 1 s."""

    def __init__(self) -> None:
        import platformdirs

        self._file = Path(platformdirs.user_cache_dir("Hearth", appauthor=False), "listed-models.json")
        self._known: dict[str, Any] | None = None  # by the path, template and version: the stamp and the facts
        self._is_changed = False
        self._lock = threading.Lock()  # requests come in several threads

    def of(self, load: str, path: Path) -> _Facts:
        """Raises: EngineError, OSError."""
        from engine.loading.opening import read_tokenizer
        from engine.session.resolve_model import find_model, open_named

        template = find_model(load).template or ""
        key = f"{engine.__version__}|{template}|{path}"
        with self._lock:
            stamp = _stamp(path)
            if self._known is None:
                self._known = self._read()
            found = self._known.get(key)
            if isinstance(found, dict) and found.get("stamp") == stamp:
                with suppress(ModelFormatError):
                    facts: _Facts = from_plain(_Facts, found.get("facts"), self._file.name)
                    return facts
            opened = open_named(load)
            facts = _facts(opened, read_tokenizer(opened, template or None), opened.config.max_context)
            self._known = {one: kept for one, kept in self._known.items() if not one.endswith(f"|{path}")}
            self._known[key] = {
                "stamp": stamp,
                "facts": {**asdict(facts), "thinking": list(facts.thinking)},
            }  # as in the file
            self._is_changed = True
            return facts

    def save(self) -> None:
        with self._lock:
            if not self._is_changed:
                return
            self._is_changed = False
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._file, self._known or {})
            except OSError as error:
                log.info("The list of models cannot be kept in %s: %s", self._file, error)

    def _read(self) -> dict[str, Any]:
        """Return the saved list of models; {} if the file is missing, damaged or unreadable."""
        try:
            return read_object(self._file, max_bytes=8 << 20, max_values=1 << 18)
        except EngineError:
            return {}


def _stamp(path: Path) -> str:
    """Return the sizes and times of a model's files, as a digest. Raises: OSError."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())[:_MOST_FILES]
    stats = [(str(one), one.stat()) for one in files]
    text = json.dumps([(name, found.st_size, found.st_mtime_ns) for name, found in stats])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def answers_to(model: LoadedModel, name: str) -> bool:
    """Return whether this is the model's name, or that of its folder or file, ignoring case."""
    return name.casefold() in _names(model)


def loaded_values(model: LoadedModel) -> dict[str, Any]:
    """Return the loaded model as /v1/models lists it. Cost: renders the chat template several times when it is new."""
    return _values(model.name, _facts(model.opened, model.tokenizer, model.context), True)


def _facts(opened: OpenedModel, tokenizer: Tokenizer, context: int) -> _Facts:
    template = tokenizer.template
    return _Facts(
        context_length=context,
        size_bytes=sum(opened.codecs.values()),
        tools=template is not None and call_style(template).renders,
        thinking=tuple(tokenizer.thinking.levels),
        schema=bool(tokenizer.stop_token_ids | frozenset(opened.config.eos_token_ids)),
        embeddings=pooling_of(opened) is not None,
    )


def _values(name: str, facts: _Facts, is_loaded: bool) -> dict[str, Any]:
    """Return a model with the fields of OpenAI's and of Anthropic's API, and own ones."""
    return {
        "id": name,
        "object": "model",
        "created": _STARTED_AT,
        "owned_by": "hearth",
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(_STARTED_AT, UTC).isoformat(),
        "max_model_len": facts.context_length,
        "context_length": facts.context_length,
        "size_bytes": facts.size_bytes,
        "loaded": is_loaded,
        "abilities": {
            "tools": facts.tools,
            "thinking": list(facts.thinking),
            "schema": facts.schema,
            "embeddings": facts.embeddings,
        },
    }


def _names(model: LoadedModel) -> tuple[str, ...]:
    return model.name.casefold(), model.opened.files.path.name.casefold()


def _load_of(model: InstalledModel) -> str:
    """Return the Load.model of an installed model: its id, or the window's own name for the shipped one."""
    return STARTER_NAMES[0] if model.origin == "shipped" else model.id


def _path_of(model: InstalledModel) -> Path:
    return Path(model.prepared or model.path)


def _spelled(path: Path) -> str:
    return os.path.normcase(os.path.realpath(path))


def _unknown(message: str) -> ApiError:
    return ApiError(404, "model_not_found", message, "model")
