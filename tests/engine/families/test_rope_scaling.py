"""Positions that turn by the length of the sequence: across the border, back over it, and as transformers generates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import (
    CONTEXT,
    LONGROPE,
    LONGROPE_BORDER,
    PROMPT,
    SHAPE,
    Reference,
    all_logits,
    greedy,
    make_reference,
)

from engine.config import BackendName, ModelConfig
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.loading.backends import choose_backend
from engine.model.families import config_from_gguf, config_from_hf
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.session.generate import decode_one_token, prefill

CLOSE = 2e-4
BORDERS = {"phi3-longrope": LONGROPE_BORDER, "llama-dynamic": 48}


class Both:
    """A tiny model as transformers has it, and as we have it, in the reference or in the CPU kernels."""

    def __init__(self, name: str, reference: Reference, backend: BackendName = "reference") -> None:
        import transformers

        kind = getattr(transformers, f"{reference.case.kind}ForCausalLM")
        self.theirs = kind.from_pretrained(reference.folder, attn_implementation="eager").eval()
        opened, computing = open_model(reference.folder), choose_backend(backend, 2)
        weights = load_weights(opened)
        executor = DenseExecutor(opened.config, weights, computing.operators)
        decoder = computing.decoder(opened.config, weights, "dense", executor.counters, None)
        assert (decoder is None) == (backend == "reference")
        self.ours = Transformer(opened.config, weights, executor, computing.operators, decoder)
        self.border = BORDERS[name]

    def all_of(self, tokens: np.ndarray, pieces: list[int] | None = None) -> np.ndarray:
        """Our logits of every position of one sequence whose length is known from the start."""
        cache, done, out = KVCache(self.ours.config, CONTEXT), 0, []
        for piece in pieces or [len(tokens)]:
            part = tokens[done : done + piece]
            done += piece
            out.append(self.ours.logits(self.ours.forward(part, cache, len(tokens) - done)))
        return np.concatenate(out)


def test_ministral_3_without_rope_parameters_has_those_of_transformers(tmp_path: Path) -> None:
    reference = make_reference("ministral3", tmp_path / "m", {"rope_parameters": None})
    file = reference.folder / "config.json"
    config = json.loads(file.read_text())
    del config["rope_parameters"]
    file.write_text(json.dumps(config))
    computing, opened = choose_backend("reference", 1), open_model(reference.folder)
    weights = load_weights(opened)
    executor = DenseExecutor(opened.config, weights, computing.operators)
    model = Transformer(opened.config, weights, executor, computing.operators)
    found = model.logits(model.forward(reference.tokens, KVCache(opened.config, CONTEXT)))
    assert np.abs(found - reference.logits).max() < CLOSE
    stated = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 500.0}
    scaling = config_from_hf(config | stated, {}).rope_scaling
    assert scaling is not None
    assert scaling.kind == "linear"


@pytest.fixture(scope="module", params=[(name, backend) for name in BORDERS for backend in ("reference", "kernels")])
def both(request: pytest.FixtureRequest, references: Callable[[str], Reference]) -> Both:
    name, backend = request.param
    return Both(name, references(name), backend)


def test_sequences_up_to_the_border_and_beyond(both: Both) -> None:
    border = both.border
    for length in (3, border - 1, border, border + 1, border + 13):
        wanted = all_logits(both.theirs, PROMPT[:length])
        assert np.abs(both.all_of(PROMPT[:length]) - wanted).max() < CLOSE
        assert np.abs(both.all_of(PROMPT[:length], [2, length - 2]) - wanted).max() < CLOSE


def test_an_answer_that_grows_across_the_border(both: Both) -> None:
    """Step by step, as transformers generates: LongRoPE computes all again there, dynamic NTK leaves the keys."""
    start = both.border - 8
    tokens, steps = greedy(both.theirs, PROMPT[:start], 24)
    cache = KVCache(both.ours.config, CONTEXT)
    logits = prefill(both.ours, PROMPT[:start].tolist(), cache)
    for step, token in enumerate(tokens[start:]):
        assert np.abs(logits - steps[step]).max() < CLOSE, f"step {step}"
        logits = decode_one_token(both.ours, int(token), cache)
    assert cache.length == len(tokens)
    np.testing.assert_array_equal(cache.tokens[: len(tokens)], tokens)


def test_a_conversation_that_is_cut_back_across_the_border(references: Callable[[str], Reference]) -> None:
    both = Both("phi3-longrope", references("phi3-longrope"))
    cache = KVCache(both.ours.config, CONTEXT)
    both.ours.forward(PROMPT[:40], cache)
    cache.truncate(9)
    hidden = both.ours.forward(PROMPT[50:55], cache)
    wanted = all_logits(both.theirs, np.concatenate([PROMPT[:9], PROMPT[50:55]]))
    assert np.abs(both.ours.logits(hidden) - wanted[9:]).max() < CLOSE
    cache.truncate(9)
    hidden = both.ours.forward(PROMPT[9:40], cache)
    assert np.abs(both.ours.logits(hidden) - all_logits(both.theirs, PROMPT[:40])[9:]).max() < CLOSE


def test_both_lists_of_divisors_matter(both: Both) -> None:
    """The border is no matter of taste: one token more turns every position otherwise."""
    border = both.border
    short, long = (both.all_of(PROMPT[:length])[: border - 1] for length in (border, border + 12))
    assert np.abs(short - long).max() > 20 * CLOSE


def config(rope: dict[str, Any], **changes: Any) -> ModelConfig:
    return config_from_hf({**SHAPE, "model_type": "llama", "hidden_act": "silu", "rope_scaling": rope, **changes}, {})


def test_what_configurations_leave_out_is_what_transformers_takes() -> None:
    yarn = config({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100})
    assert yarn.max_context == 400  # the file keeps the length before
    assert yarn.rope_scaling is not None
    assert yarn.rope_scaling.attention_factor == pytest.approx(0.1 * np.log(4) + 1)
    both_scales = config({"type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0})
    assert both_scales.rope_scaling is not None
    assert both_scales.rope_scaling.attention_factor == 1.0
    assert both_scales.rope_scaling.original_context == 128
    for kind in ("su", "longrope", "yarn"):  # the first files of Phi-3 128k say su or yarn
        long = config({**{k: v for k, v in LONGROPE.items() if "factor" in k}, "type": kind, "rope_type": None},
                      original_max_position_embeddings=32)  # fmt: skip
        assert long.rope_scaling is not None
        assert (long.rope_scaling.kind, long.max_context) == ("longrope", 128)
        assert long.rope_scaling.attention_factor == pytest.approx(np.sqrt(1 + np.log(4) / np.log(32)))
    assert config({"type": "dynamic", "factor": 2.0}).max_context == 256


@pytest.mark.parametrize(
    ("rope", "words"),
    [
        ({"type": "yarn"}, "lacks 'factor'"),
        ({"type": "yarn", "factor": 4.0, "beta_fast": 1.0, "beta_slow": 2.0}, "invalid"),
        ({"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": -100.0}, "mscale_all_dim"),
        ({"type": "yarn", "factor": 4.0, "rope_theta": 1.0}, "base 1.0"),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0}, "original_max_position_embeddings"),
        ({"type": "longrope"}, "lacks 'short_factor'"),
        ({"type": "longrope", "short_factor": [1.0], "long_factor": ["x"]}, "short_factor|long_factor"),
        ({"type": "longrope", "short_factor": [1.0] * 3, "long_factor": [1.0] * 3}, "3 .* 4"),
        ({"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0] * 3}, "invalid"),
        ({"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [0.0] * 4}, "invalid"),
        ({"type": "dynamic", "factor": -2.0}, "invalid"),
    ],
)
def test_senseless_scalings(rope: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFormatError, match=words):
        config(rope)


GGUF = {"block_count": 3, "context_length": 128, "embedding_length": 32, "attention.head_count": 4,
        "feed_forward_length": 80, "attention.layer_norm_rms_epsilon": 1e-6, "vocab_size": 96,
        "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 32}  # fmt: skip


def gguf_config(names: set[str] | None = None, **changes: Any) -> ModelConfig:
    metadata = {f"phi3.{key.replace('__', '.')}": value for key, value in {**GGUF, **changes}.items()}
    return config_from_gguf(metadata | {"general.architecture": "phi3"}, names or set())


def test_gguf_keys() -> None:
    yarn = gguf_config(rope__scaling__yarn_beta_fast=16.0, rope__scaling__yarn_beta_slow=2.0)
    assert yarn.max_context == 256
    assert yarn.rope_scaling is not None
    assert (yarn.rope_scaling.beta_fast, yarn.rope_scaling.beta_slow) == (16.0, 2.0)
    assert yarn.rope_scaling.attention_factor == pytest.approx(0.1 * np.log(8) + 1)
    usual = gguf_config(rope__scaling__yarn_attn_factor=np.float32(0.1 * np.log(8) + 1).item())
    assert usual.rope_scaling == gguf_config().rope_scaling
    for key, value in (("yarn_attn_factor", 1.5), ("yarn_ext_factor", 0.5), ("yarn_log_multiplier", 0.1)):
        with pytest.raises(UnsupportedModelError, match=key):
            gguf_config(**{f"rope__scaling__{key}": value})
    both = {"rope_factors_long.weight", "rope_factors_short.weight"}
    stated = gguf_config(both, rope__scaling__type="longrope", rope__scaling__factor=1.0)
    silent = gguf_config(both, rope__scaling__type=None, rope__scaling__factor=None)
    assert stated.rope_scaling == silent.rope_scaling
    with pytest.raises(UnsupportedModelError, match="longrope"):
        gguf_config(rope__scaling__type="longrope")
