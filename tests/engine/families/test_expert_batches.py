"""A prompt through the experts of every family as one program equals the reference: logits, counts, every neuron."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from family_models import CASES, CONTEXT, Reference
from support.repetitions import some_daily

from engine.config import ModelConfig
from engine.executor import dense, exact
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights, load_weights, open_model
from native_kernels.backend import Operators
from native_kernels.cpu.ffn import expert_batch
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

KERNELS = CpuOperators(Pool(3))
CLOSE = 1e-4
Kind = type[DenseExecutor] | type[ExactExecutor]


FAMILIES = ("mixtral", "turbosparse-mixtral", "qwen2-moe", "qwen3-moe", "smallthinker", "gpt-oss")
DAILY = ("turbosparse-mixtral", "qwen2-moe", "smallthinker-21b", "gpt-oss")


@pytest.fixture(scope="module", params=some_daily([name for name in CASES if name.startswith(FAMILIES)], DAILY))
def reference(request: pytest.FixtureRequest, references: Callable[[str], Reference]) -> Reference:
    return references(request.param)


def run(
    config: ModelConfig, weights: ModelWeights, kind: Kind, operators: Operators, tokens: np.ndarray,
    pieces: int,
) -> tuple[np.ndarray, DenseExecutor | ExactExecutor]:  # fmt: skip
    executor = kind(config, weights, operators)
    executor.counters.record_per_neuron()
    model, cache = Transformer(config, weights, executor, operators), KVCache(config, CONTEXT)
    return np.concatenate(
        [model.logits(model.forward(part, cache)) for part in np.array_split(tokens, pieces)]
    ), executor


@pytest.mark.parametrize("hold", ["mapped", pytest.param("f32", marks=pytest.mark.slow)])
def test_a_prompt_in_any_pieces(reference: Reference, hold: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_model(reference.folder)
    config, weights = opened.config, load_weights(opened, hold=hold)  # type: ignore[arg-type]
    tokens = reference.tokens[:40]
    kinds: list[Kind] = [DenseExecutor, ExactExecutor] if config.has_zeros else [DenseExecutor]
    references = [run(config, weights, kind, ReferenceOperators(), tokens, 1) for kind in kinds]
    monkeypatch.delattr(dense, "through_blocks")
    monkeypatch.delattr(exact, "through_blocks")
    monkeypatch.setattr(exact, "PER_TOKEN_LIMIT", 0)
    monkeypatch.setattr(expert_batch, "MOST_BYTES", 200_000)  # so that a prompt is taken in parts
    for kind, (wanted, slow) in zip(kinds, references, strict=True):
        for pieces in (1, 3, 20):
            found, fast = run(config, weights, kind, KERNELS, tokens, pieces)
            assert np.abs(found - wanted).max() < CLOSE * max(1, np.abs(wanted).max())
            np.testing.assert_array_equal(fast.counters.layers[:, :3], slow.counters.layers[:, :3])
            np.testing.assert_array_equal(fast.counters.per_neuron, slow.counters.per_neuron)
            assert fast.counters.tokens == slow.counters.tokens
