"""Vectors of texts equal those of transformers, however the files say that they are pooled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig
from engine.conversion.convert import convert
from engine.errors import Cancelled, InvalidRequestError, ModelFormatError
from engine.job import Job
from engine.library.owned.installed import Library
from engine.loading.embedding_models import pooling_of, prompt_of
from engine.model.weights import open_model
from engine.session.embeddings import embed, n_tokens, tokens_of
from engine.session.loaded_model import LoadedModel

TEXTS = ["the cat sat on the mat", "a dog", "dog dog dog cat"]


def loaded(folder: Path, pooling: str = "") -> LoadedModel:
    make_tiny_model(folder)
    if pooling:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    return LoadedModel.load(folder, EngineConfig(device="cpu", threads=1))


def hidden_states(folder: Path, ids: list[int]) -> np.ndarray:
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return np.asarray(model(torch.tensor([ids])).last_hidden_state[0])


def of_length_1(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / np.linalg.norm(vector))


def test_the_mean_of_all_states(tmp_path: Path) -> None:
    model = loaded(tmp_path / "m")
    assert pooling_of(model.opened) is None
    for text, vector in zip(TEXTS, embed(model, TEXTS), strict=True):
        ids = model.tokenizer.encode(text, add_bos=model.tokenizer.adds_bos)
        wanted = of_length_1(hidden_states(tmp_path / "m", ids).mean(axis=0))
        assert np.allclose(vector, wanted, atol=1e-3)
        assert vector.dtype == np.float32


def test_the_last_state_after_the_end_token(tmp_path: Path) -> None:
    model = loaded(tmp_path / "m", "lasttoken")
    assert pooling_of(model.opened) == "last"
    end = model.opened.config.eos_token_ids[0]
    for text, vector in zip(TEXTS, embed(model, TEXTS), strict=True):
        ids = [*model.tokenizer.encode(text, add_bos=model.tokenizer.adds_bos), end]
        assert n_tokens(model, text) == len(ids)
        assert np.allclose(vector, of_length_1(hidden_states(tmp_path / "m", ids)[-1]), atol=1e-3)


def test_a_qwen3_model_as_in_transformers(tmp_path: Path) -> None:
    norms = {
        f"model.layers.{i}.self_attn.{name}_norm.weight": np.linspace(0.5, 1.5, 8, dtype=np.float32)
        for i in range(2)
        for name in "qk"
    }
    of_qwen3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    folder = make_tiny_model(tmp_path / "m", activation="silu", config=of_qwen3, tensors=norms)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    model = LoadedModel.load(folder, EngineConfig(device="cpu", threads=1))
    for text, vector in zip(TEXTS, embed(model, TEXTS), strict=True):
        wanted = of_length_1(hidden_states(folder, tokens_of(model, text))[-1])
        assert vector @ wanted > 0.9999


@pytest.mark.parametrize("pooling", ["", "lasttoken"])
def test_a_gpu_finds_the_same_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pooling: str) -> None:
    wanted = list(embed(loaded(tmp_path / "m", pooling), TEXTS))
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    model = machine.load(tmp_path / "m")
    try:
        assert model.device == "cuda"
        for vector, same in zip(embed(model, TEXTS), wanted, strict=True):
            assert vector @ same > 0.9999
    finally:
        for gpu in machine.gpus:
            gpu.close()


@pytest.mark.gpu
@pytest.mark.usefixtures("own_gpu")
def test_a_real_gpu_finds_the_vectors_of_the_cpu() -> None:
    on_cpu, on_gpu = (LoadedModel.load("starter-chat", EngineConfig(device=name)) for name in ("cpu", "cuda"))
    try:
        for vector, same in zip(embed(on_gpu, TEXTS), embed(on_cpu, TEXTS), strict=True):
            assert vector @ same > 0.999
    finally:
        on_gpu.close()


def test_fewer_dimensions_have_length_1_again(tmp_path: Path) -> None:
    model = loaded(tmp_path / "m")
    (whole,), (part,) = embed(model, TEXTS[:1]), embed(model, TEXTS[:1], 8)
    assert np.allclose(part, of_length_1(whole[:8]), atol=1e-6)
    for wrong in (0, -1, model.opened.config.d_model + 1):
        with pytest.raises(InvalidRequestError, match=str(model.opened.config.d_model)):
            list(embed(model, TEXTS, wrong))


def test_a_long_text_is_cut_at_the_context_and_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(tmp_path / "m", "lasttoken")
    long = "the cat sat on the mat " * 50
    (whole,) = embed(model, [long])
    assert n_tokens(model, long) == model.context
    monkeypatch.setattr("engine.session.embeddings._CHUNK_TOKENS", 7)
    (pieces,) = embed(model, [long])
    assert np.allclose(whole, pieces, atol=1e-4)


def test_a_text_without_tokens_is_refused_and_a_cancel_stops(tmp_path: Path) -> None:
    model = loaded(tmp_path / "m")
    with pytest.raises(InvalidRequestError):
        list(embed(model, [[]]))
    for bad in (-1, model.opened.config.vocab_size):
        with pytest.raises(InvalidRequestError, match=str(bad)):
            list(embed(model, [[3, bad]]))
    with pytest.raises(Cancelled):
        list(embed(model, TEXTS, job=Job(lambda: True)))


@pytest.mark.parametrize(("number", "pooling"), [(1, "mean"), (3, "last"), (2, None), ("x", None)])
def test_gguf_files_say_how(tmp_path: Path, number: object, pooling: str | None) -> None:
    from dataclasses import replace

    make_tiny_model(tmp_path / "m")
    opened = open_model(tmp_path / "m")
    files = replace(opened.files, kind="gguf")
    stated = replace(opened, files=files, metadata={"general.architecture": "qwen3", "qwen3.pooling_type": number})
    assert pooling_of(stated) == pooling


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "\\ud800", "[" * 100_000])
def test_a_damaged_pooling_file_says_nothing(tmp_path: Path, text: str) -> None:
    make_tiny_model(tmp_path / "m")
    (tmp_path / "m" / "1_Pooling").mkdir()
    (tmp_path / "m" / "1_Pooling" / "config.json").write_text(text)
    assert pooling_of(open_model(tmp_path / "m")) is None


@pytest.mark.parametrize("copied", ["bundle", "library"])
def test_a_copy_is_pooled_in_the_same_way(tmp_path: Path, copied: str) -> None:
    loaded(tmp_path / "m", "lasttoken")
    prompts = {"query": "q: ", "document": "d: "}
    (tmp_path / "m" / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    if copied == "bundle":
        copy = open_model(convert(tmp_path / "m", tmp_path / "b", "f16").bundle)
    else:
        copy = open_model(Path(Library(tmp_path / "models").add(tmp_path / "m", copy=True).path))
    assert copy.files.path != tmp_path / "m"
    assert (pooling_of(copy), prompt_of(copy, "query"), prompt_of(copy, "passage")) == ("last", "q: ", "d: ")


def test_vectors_that_are_no_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(tmp_path / "m")
    monkeypatch.setattr(type(model.transformer("dense")), "last_norm", lambda self, x: x * np.float32(np.nan))
    with pytest.raises(ModelFormatError):
        next(embed(model, TEXTS))
