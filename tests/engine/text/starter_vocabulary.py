"""The shipped starter model's vocabulary for tests: as its GGUF file holds it, and as a model directory would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.assets import starter_model
from engine.formats.gguf import open_gguf
from engine.model.weights import find_model_files
from engine.text.tokenizer import Tokenizer

SPECIALS = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|pad|>"]
STARTER_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

_metadata: dict[str, Any] = {}


def metadata() -> dict[str, Any]:
    """What the shipped GGUF file says of its vocabulary; a copy to spoil."""
    if not _metadata:
        source = open_gguf(find_model_files(starter_model()).weights[0])
        _metadata.update({key: value for key, value in source.metadata.items() if key.startswith("tokenizer.")})
    return {key: list(value) if isinstance(value, list) else value for key, value in _metadata.items()}


def as_files(folder: Path, *, config: dict[str, Any] | None = None, **changes: Any) -> Tokenizer:
    """The same vocabulary as a Hugging Face directory would hold it."""
    return Tokenizer.from_files(*written(folder, config=config, **changes))


def written(folder: Path, *, config: dict[str, Any] | None = None, **changes: Any) -> tuple[Path, Path]:
    facts = metadata()
    document = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}
            for i, text in enumerate(SPECIALS)
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {text: i for i, text in enumerate(facts["tokenizer.ggml.tokens"])},
            "merges": [line.split(" ") for line in facts["tokenizer.ggml.merges"]],
        },
        **changes,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    if config is None:
        config = {"bos_token": "<|begin|>", "eos_token": {"content": "<|end|>"}, "add_bos_token": True,
                  "chat_template": STARTER_TEMPLATE}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder / "tokenizer.json", folder / "tokenizer_config.json"
