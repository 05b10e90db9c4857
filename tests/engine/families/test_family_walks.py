"""The walk layer by layer sees and computes what the graph does sequence by sequence, for every family."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from family_cover import of_cover
from family_models import CASES, Reference
from support.walked_sequences import BATCH, CLOSE, OPS, by_sequence, check_batches, sequences_of

from engine.errors import UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.job import Job
from engine.model.weights import load_weights, open_model
from engine.training import layer_walk
from engine.training.layer_walk import LayerBatch, ModelParts, walk_layers

SHARING = [
    name
    for name, case in CASES.items()
    if {"num_kv_shared_layers", "enable_moe_block", "layers_block_type"} & case.arguments.keys()
]


@pytest.fixture(scope="module", params=of_cover(name for name in CASES if name not in SHARING))
def reference(request: pytest.FixtureRequest, references: Callable[[str], Reference]) -> Reference:
    return references(request.param)


def test_it_sees_what_the_graph_sees(reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_walk, "BATCH_POSITIONS", BATCH)
    opened = open_model(reference.folder)
    config, weights = opened.config, load_weights(opened)
    texts = sequences_of(config)
    dense = DenseExecutor(config, weights, OPS)
    dense.counters.record_per_neuron()
    seen, wanted = by_sequence(config, weights, dense, texts)
    walked: list[LayerBatch] = []
    progress: list[tuple[int, int]] = []
    with walk_layers(
        ModelParts(config, weights, OPS), texts, walked.append, job=Job(progress=lambda *step: progress.append(step))
    ) as behind:
        np.testing.assert_allclose(behind.logits(0, len(wanted)), wanted, atol=5 * CLOSE)
    check_batches(config, weights, walked, seen)
    assert progress[-1] == (len(wanted) * config.n_layers, len(wanted) * config.n_layers)
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    counts = np.stack([sum(b.fired_counts for b in walked if b.layer == i) for i in range(config.n_layers)])
    assert dense.counters.per_neuron is not None
    # A value that is zero to rounding may fall on either side.
    assert np.abs(counts - dense.counters.per_neuron).sum() <= 2


@pytest.mark.parametrize("name", SHARING)
def test_layers_that_need_more_than_the_stream_are_refused(name: str, references: Callable[[str], Reference]) -> None:
    opened = open_model(references(name).folder)
    with pytest.raises(UnsupportedModelError, match="cannot be run layer by layer"):
        walk_layers(ModelParts(opened.config, load_weights(opened), OPS), [[1, 2]])
