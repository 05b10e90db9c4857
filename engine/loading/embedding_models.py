"""What a model's files say of its use for vectors of texts: how states are pooled, and what stands before a text."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from engine.errors import UnsupportedModelError
from engine.model.model_files import OpenedModel

Pooling = Literal["mean", "first", "last"]
Role = Literal["", "query", "passage"]  # of a text in a search; "": it is read as it is
ROLES: tuple[Role, ...] = ("", "query", "passage")

# llama.cpp's numbers, and the keys of sentence-transformers.
_IN_GGUF: dict[int, Pooling] = {1: "mean", 2: "first", 3: "last"}
_IN_FOLDER: dict[str, Pooling] = {"lasttoken": "last", "mean_tokens": "mean", "cls_token": "first"}
# Files of a folder that say it, as sentence-transformers writes them.
_POOLING, _PROMPTS_FILE = FILES = ("1_Pooling/config.json", "config_sentence_transformers.json")
_LONGEST_PROMPT = 1000
_FOR_BGE = "Represent this sentence for searching relevant passages: "
_FOR_INSTRUCTED = "Instruct: Given a question, retrieve the passages of documents that answer it\nQuery:"
# What stands before queries and passages of models whose files do not say it, by name. Source: their model cards.
_PROMPTS: tuple[tuple[str, str, str], ...] = (
    (r"qwen3-embedding", _FOR_INSTRUCTED, ""),
    (r"e5-\w+-instruct", f"{_FOR_INSTRUCTED} ", ""),
    (r"\be5-(small|base|large)", "query: ", "passage: "),
    (r"nomic-embed", "search_query: ", "search_document: "),
    (r"embeddinggemma", "task: search result | query: ", "title: none | text: "),
    (r"arctic-embed-\w+-v2", "query: ", ""),
    (r"bge-\w+-en|arctic-embed", _FOR_BGE, ""),
    (r"bge-\w+-zh", "为这个句子生成表示以用于检索相关文章：", ""),
)


def check_answers(opened: OpenedModel) -> None:
    """Raise UnsupportedModelError for an encoder."""
    if not opened.config.causal:
        raise UnsupportedModelError(
            f"{opened.name} turns texts into vectors and cannot answer.",
            "Choose it under “Search by meaning” in “Manage documents…”, and another model for chats.",
        )


def pooling_of(opened: OpenedModel) -> Pooling | None:
    """Return how the files say that the model is pooled; None: it was not made for vectors.

    Source: `<architecture>.pooling_type` of a GGUF file, or 1_Pooling/config.json of sentence-transformers. Encoders
    whose files say nothing: the mean. The first token's state says nothing of a text in a decoder.
    """
    usual: Pooling | None = None if opened.config.causal else "mean"
    stated = opened.metadata.get(f"{opened.metadata.get('general.architecture')}.pooling_type")
    if isinstance(stated, int) and stated in _IN_GGUF:
        found: Pooling | None = _IN_GGUF[stated]
    else:
        values = _beside(opened, _POOLING)
        found = next((one for key, one in _IN_FOLDER.items() if values.get(f"pooling_mode_{key}") is True), None)
        if found is None:
            short = {key.partition("_")[0]: one for key, one in _IN_FOLDER.items()}
            found = short.get(str(values.get("pooling_mode")))
    return usual if found is None or (found == "first" and opened.config.causal) else found


def prompt_of(opened: OpenedModel, role: Role) -> str:
    """Return what stands before a query or a passage: as config_sentence_transformers.json says, else by name."""
    if not role:
        return ""
    prompts = _beside(opened, _PROMPTS_FILE).get("prompts")
    if isinstance(prompts, dict) and "query" in prompts:
        stated = prompts.get(role, prompts.get("document", "") if role == "passage" else "")
        return stated[:_LONGEST_PROMPT] if isinstance(stated, str) else ""
    name = re.sub(r"[\s_]+", "-", f"{opened.name} {opened.files.path.name}".casefold())
    found = next(((query, passage) for known, query, passage in _PROMPTS if re.search(known, name)), ("", ""))
    return found[role == "passage"]


def _beside(opened: OpenedModel, name: str) -> dict[str, Any]:
    """Return the values of a JSON file in the model's folder; {} for a GGUF file, or without such a file."""
    path = opened.files.path
    file = (path if path.is_dir() else path.parent) / name
    try:
        values: Any = json.loads(file.read_text(encoding="utf-8")) if opened.files.kind != "gguf" else None
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
