"""The vocabularies in llama.cpp's source, models/ggml-vocab-*.gguf, with its texts and the ids that it expects.

HEARTH_LLAMA_CPP names the folder of that source, which is vendor/llama.cpp in llama-cpp-python's source package.
"""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from engine.formats.gguf_header import Budget, read_header
from engine.text.tokenizer import Tokenizer

TEXTS = sorted(Path(os.environ.get("HEARTH_LLAMA_CPP", "/nowhere"), "models").glob("ggml-vocab-*.gguf.inp"))
pytestmark = pytest.mark.skipif(not TEXTS, reason="HEARTH_LLAMA_CPP names no source of llama.cpp")
COMPOSED = ("qwen35",)  # as its tokenizer.json wants; llama.cpp leaves accents apart, and so do its expected ids


@pytest.mark.parametrize("texts", TEXTS, ids=lambda path: path.name.removeprefix("ggml-vocab-").partition(".")[0])
def test_texts_have_the_ids_that_llama_cpp_expects(texts: Path) -> None:
    file, name = texts.with_suffix(""), texts.name.removeprefix("ggml-vocab-").partition(".")[0]
    metadata = read_header(file.name, np.fromfile(file, np.uint8), Budget()).metadata
    tokenizer = Tokenizer.from_gguf(metadata)
    given = texts.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    expected = texts.with_suffix(".out").read_text(encoding="utf-8").split("\n")
    assert len(given) > 40
    for text, ids in zip(given, expected, strict=False):
        if name not in COMPOSED or unicodedata.is_normalized("NFC", text):
            assert tokenizer.encode(text) == [int(one) for one in ids.split()], text
