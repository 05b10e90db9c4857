"""Resolve a model before it is loaded: its files, its tokenizer, its context window."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from engine.config import KvCodec, ModelConfig
from engine.errors import InvalidRequestError, ModelNotFoundError
from engine.model.kv_cache import KVCache
from engine.model.model_files import OpenedModel, open_model
from engine.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

STARTER_NAMES = ("starter-chat", "pip")
KV_SHARE_OF_FREE_RAM = 0.25  # maximum share of a default context's KV cache


@dataclass(frozen=True)
class FoundModel:
    """The meaning of a MODEL argument. name, activation, template: from the list of installed models."""

    path: Path
    name: str = ""
    activation: str = ""
    template: str = ""


def resolve_model(name: str) -> Path:
    """Return the path for a MODEL argument: a path, or the name of an installed model."""
    return find_model(name).path


def open_named(name: str, activation: str | None = None) -> OpenedModel:
    """Open the model of a MODEL argument, with the given activation or the one in the list of models.

    Raises: as `find_model` and `open_model`.
    """
    found = find_model(name)
    return open_model(found.path, activation or found.activation or None)


def find_model(name: str) -> FoundModel:
    """Resolve a MODEL argument: a path, or the id or name of an installed model.

    Raises: ModelNotFoundError if it matches nothing, several models, or a broken one; LibraryError if the list of
    models cannot be read.
    """
    from engine.assets import starter_model
    from engine.library.owned.installed import Library

    path = Path(os.path.expanduser(name))  # Path.expanduser raises for an unknown user
    try:
        path.stat()
        return FoundModel(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):  # it exists but is inaccessible, or the name is impossible
            raise ModelNotFoundError(f"{path} cannot be opened: {error.strerror or error}.") from error
    except ValueError:  # a zero byte
        pass
    if name.lower() in STARTER_NAMES:  # must work even if the list is damaged
        return FoundModel(starter_model())
    found = Library().find(name)
    if found is None:
        raise ModelNotFoundError(
            f"There is no file, folder or installed model called {name!r}.",
            "Give the path of a model, a name that `list` shows, or starter-chat for the one that comes with Hearth.",
        )
    return FoundModel(found.path, found.name, found.activation, found.template)


def read_tokenizer(opened: OpenedModel, template: str | None = None) -> Tokenizer:
    """Return the model's tokenizer, checked against its configuration, with its or the given chat template."""
    files = opened.files
    if files.tokenizer is not None:
        tokenizer = Tokenizer.from_files(files.tokenizer, files.tokenizer_config)
    elif "tokenizer.ggml.model" in opened.metadata or opened.files.kind == "gguf":
        tokenizer = Tokenizer.from_gguf(opened.source.metadata)
    elif (vocab := files.path / "vocab.json").is_file() and (merges := files.path / "merges.txt").is_file():
        tokenizer = Tokenizer.from_pair(vocab, merges, files.tokenizer_config)
    elif (pieces := files.path / "tokenizer.model").is_file():
        tokenizer = Tokenizer.from_sentencepiece(pieces, files.tokenizer_config)
    else:
        raise ModelNotFoundError(
            f"{files.path} holds no tokenizer: neither tokenizer.json nor tokenizer.model.",
            "Download the model's tokenizer.json into the same folder.",
        )
    for note in tokenizer.notes:
        log.info("%s: %s", opened.name, note)
    tokenizer.check_against(opened.config)
    tokenizer.use_template(opened.name, template)
    return tokenizer


def choose_context(opened: OpenedModel, wanted: int | None, free_bytes: int, kv_codec: KvCodec = "f32") -> int:
    """Return the tokens of context: as requested, else as trained, halved until the KV cache is small enough."""
    trained = opened.config.max_context
    if wanted is not None:
        if wanted > trained:
            raise InvalidRequestError(
                f"A context of {wanted} tokens was asked for; {opened.name} was trained with {trained}.",
                f"Ask for at most {trained}.",
            )
        return wanted
    return default_context(opened.config, free_bytes, kv_codec)


def default_context(config: ModelConfig, free_bytes: int, kv_codec: KvCodec = "f32") -> int:
    """Return the default context, also for a model that is not downloaded yet."""
    context = config.max_context
    while context > 512 and KVCache.bytes_for(config, context, kv_codec) > KV_SHARE_OF_FREE_RAM * free_bytes:
        context //= 2
    return context
