"""Choose the tokenizer and the context window of a model before it is loaded."""

from __future__ import annotations

import hashlib
import logging
import re

from engine.config import KvCodec, ModelConfig
from engine.errors import InvalidRequestError, ModelNotFoundError
from engine.model.kv_cache import KVCache
from engine.model.model_files import OpenedModel
from engine.text.gguf_vocabulary import tokens_of
from engine.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_FILLING = re.compile(r"\[PAD\d+\]")  # how converters of GGUF files name rows without a token
KV_SHARE_OF_FREE_RAM = 0.25  # maximum share of a default context's KV cache


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
            f"{files.path} has no tokenizer: neither tokenizer.json nor tokenizer.model.",
            "Download the model's tokenizer.json into the same folder.",
        )
    for note in tokenizer.notes:
        log.info("%s: %s", opened.name, note)
    tokenizer.check_against(opened.config)
    tokenizer.use_template(opened.name, template)
    return tokenizer


def vocabulary_fingerprint(opened: OpenedModel) -> str:
    """Return the SHA-256 of all tokens: ids, texts, and which are special. Models with the same one share token ids.

    Rows that only fill an embedding do not count, because models of one family have different numbers of them.
    Cost: 0.1 s for 150,000 tokens of a GGUF file, otherwise that of `read_tokenizer`. Raises: as `read_tokenizer`.
    """
    if opened.files.tokenizer is None and "tokenizer.ggml.tokens" in opened.source.metadata:
        tokens = tokens_of(opened.source.metadata)
    else:
        tokens = read_tokenizer(opened).tokens
    digest = hashlib.sha256()
    for i, text, is_special in tokens:
        if not _FILLING.fullmatch(text):
            digest.update(f"{i} {is_special:d} {text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


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
