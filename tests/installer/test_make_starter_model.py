"""The starter model's file: the same input gives the same bytes, and a foreign reader agrees with ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from samples.tiny_model import CHAT_TEMPLATE, MERGES, SPECIAL_TOKENS, VOCAB_SIZE, make_tiny_gguf, make_tiny_model

from engine.formats.gguf import open_gguf
from installer.make_starter_model import main, make_gguf


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    source = make_tiny_model(tmp_path / "m")
    for name in ("a.gguf", "b.gguf"):
        make_gguf(source, tmp_path / name)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_gguf_s_own_reader_agrees(tmp_path: Path) -> None:
    import gguf

    path = make_tiny_gguf(tmp_path / "m.gguf")
    theirs, ours = gguf.GGUFReader(path), open_gguf(path)
    assert [tensor.name for tensor in theirs.tensors] == list(ours.tensors)
    for tensor in theirs.tensors:
        assert tensor.data_offset == ours.tensors[tensor.name].offset
        wanted = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours.read_f32(tensor.name), wanted)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            assert ours.metadata[key] == field.contents()


def test_the_tokenizer_travels_along(tmp_path: Path) -> None:
    metadata = open_gguf(make_tiny_gguf(tmp_path / "m.gguf")).metadata
    assert metadata["tokenizer.ggml.model"] == "gpt2"
    assert metadata["tokenizer.ggml.tokens"][: len(SPECIAL_TOKENS)] == list(SPECIAL_TOKENS)
    assert len(metadata["tokenizer.ggml.tokens"]) == VOCAB_SIZE
    assert metadata["tokenizer.ggml.merges"] == [" ".join(pair) for pair in MERGES]
    assert metadata["tokenizer.ggml.token_type"] == [3] * len(SPECIAL_TOKENS) + [1] * (VOCAB_SIZE - len(SPECIAL_TOKENS))
    assert [metadata[f"tokenizer.ggml.{kind}_token_id"] for kind in ("bos", "eos", "padding")] == [0, 1, 5]
    assert metadata["tokenizer.ggml.add_bos_token"] is True
    assert metadata["tokenizer.chat_template"] == CHAT_TEMPLATE


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_tiny_model(tmp_path / "m")
    (source / "MODEL_CARD.md").write_text("A card.")
    assert main([str(source), str(tmp_path / "tiny")]) == 0
    assert sorted(file.name for file in (tmp_path / "tiny").iterdir()) == ["MODEL_CARD.md", "tiny-q8_0.gguf"]
    assert "tiny-q8_0.gguf" in capsys.readouterr().out
    assert main([]) == 2
