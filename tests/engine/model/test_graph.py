"""The graph as data: what it says of each kind of model, and that every emitter knows every step."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from engine.config import ModelConfig
from engine.decode.decode_calls import DecodeCalls
from engine.errors import ModelFormatError
from engine.gpu.batch.batch_steps import BatchSteps
from engine.gpu.prefill.layer_pass import LayerPass
from engine.gpu.token.token_steps import TokenSteps
from engine.library.estimate.shapes import config_of, shape_of
from engine.model.graph import (
    Attend,
    AttendLatent,
    Convolve,
    Correct,
    Ffn,
    Inject,
    Laurel,
    Norm,
    Predict,
    Recur,
    Scale,
    Select,
    Step,
    emit,
    graph_of,
)
from engine.model.transformer import EagerLayer
from engine.placement.gpu_bytes import why_not_on_gpu
from native_kernels.reference import factors_of
from native_kernels.specs import DeltaSpec, ExpertGroups, LatentSpec, ShortConvSpec, Temperature

EMITTERS = (EagerLayer, DecodeCalls, TokenSteps, BatchSteps, LayerPass)
DELTA = DeltaSpec(key_heads=2, value_heads=4, key_dim=8, value_dim=8, conv_width=4)
LATENT = LatentSpec(rank=12, key_dim=8, value_dim=6)

CONFIG = ModelConfig(
    family="llama", n_layers=3, d_model=64, d_ff=96, n_heads=4, n_kv_heads=2, head_dim=16, vocab_size=100,
    rope_theta=1e4, norm_eps=1e-6, activation="relu-glu", max_context=64, tied_embeddings=False, bos_token_id=None,
    eos_token_ids=(),
)  # fmt: skip


class Recorder:
    """Writes down what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda layer, step: self.asked.append((f"{name} {type(step).__name__}", layer))


@pytest.mark.parametrize("emitter", EMITTERS, ids=lambda emitter: emitter.__name__)
@pytest.mark.parametrize("step", get_args(Step), ids=lambda step: step.__name__)
def test_every_emitter_knows_every_step(emitter: type, step: type) -> None:
    method = getattr(emitter, re.sub("(?<!^)(?=[A-Z])", "_", step.__name__).lower(), None)
    assert callable(method)


def test_each_step_is_asked_for_under_its_own_name() -> None:
    spec, of_ffn = graph_of(CONFIG).attention(0), graph_of(CONFIG).ffn(0).spec
    asked = Recorder()
    steps = [
        Norm("ffn_norm", "ffn_in"), Select("ffn_in", of_ffn), Attend(spec, "stream"),
        AttendLatent(spec, LATENT, "stream"), Recur(DELTA, "stream"),
        Convolve(ShortConvSpec(64, 3), "stream"), Ffn("ffn_in", of_ffn), Inject(of_ffn), Scale(),
        Predict(), Correct(), Laurel("attention_in"),
    ]  # fmt: skip
    assert {type(step) for step in steps} == set(get_args(Step))
    emit(2, steps, asked)
    assert asked.asked == [
        ("norm Norm", 2),
        ("select Select", 2),
        ("attend Attend", 2),
        ("attend_latent AttendLatent", 2),
        ("recur Recur", 2),
        ("convolve Convolve", 2),
        ("ffn Ffn", 2),
        ("inject Inject", 2),
        ("scale Scale", 2),
        ("predict Predict", 2),
        ("correct Correct", 2),
        ("laurel Laurel", 2),
    ]


def kinds(config: ModelConfig) -> list[tuple[str, str]]:
    """The first layer's steps, each with the value that it reads or, of a norm, makes."""
    return [
        (type(step).__name__, step.to if isinstance(step, Norm) else step.reads) for step in graph_of(config).layers[0]
    ]


def test_where_norms_stand() -> None:
    before = [("Norm", "attention_in"), ("Attend", "attention_in"), ("Norm", "ffn_in"), ("Select", "ffn_in")]
    assert kinds(CONFIG) == kinds(replace(CONFIG, norms="both")) == [*before, ("Ffn", "ffn_in")]
    assert kinds(replace(CONFIG, norms="post")) == [
        ("Attend", "stream"), ("Norm", "stream"), ("Select", "stream"), ("Ffn", "stream"), ("Norm", "stream")
    ]  # fmt: skip
    afters = [
        [step.after for step in graph_of(replace(CONFIG, norms=norms)).layers[0] if isinstance(step, Attend | Ffn)]
        for norms in ("pre", "both")
    ]
    assert afters == [[None, None], ["post_attention_norm", "post_ffn_norm"]]


def test_a_parallel_block_reads_what_attention_reads_and_selects_before_it() -> None:
    one = replace(CONFIG, parallel=True, shared_norm=True)
    assert kinds(one) == [
        ("Norm", "attention_in"), ("Select", "attention_in"), ("Attend", "attention_in"), ("Ffn", "attention_in")
    ]  # fmt: skip
    assert kinds(replace(one, shared_norm=False)) == [
        ("Norm", "attention_in"), ("Norm", "ffn_in"), ("Select", "ffn_in"), ("Attend", "attention_in"),
        ("Ffn", "ffn_in"),
    ]  # fmt: skip


def test_an_early_router_reads_the_layers_input() -> None:
    config = replace(CONFIG, n_experts=4, n_experts_used=2, early_router=True)
    assert kinds(config)[0] == ("Select", "stream")
    assert sum(kind == "Select" for kind, _ in kinds(config)) == 1


def test_attention_of_each_layer() -> None:
    config = replace(CONFIG, windows=(8, 0, 8), rope_theta_local=500.0, unrotated=(2,), attention_softcap=30.0)
    graph = graph_of(config)
    specs = [graph.attention(i) for i in range(3)]
    assert [spec.window for spec in specs] == [8, None, 8]
    assert [spec.rotated for spec in specs] == [16, 16, 0]
    assert [(table.theta, table.scaled) for table in graph.angles] == [(1e4, True), (500.0, False)]
    assert [graph.angles[spec.angles].theta for spec in specs[:2]] == [500.0, 1e4]
    assert {(spec.scale, spec.softcap, spec.q_width, spec.kv_width) for spec in specs} == {(0.25, 30.0, 64, 32)}
    assert graph_of(replace(config, attention_scale=0.5)).attention(0).scale == 0.5


def test_a_gated_delta_net_stands_where_attention_would() -> None:
    graph = graph_of(replace(CONFIG, delta=DELTA, delta_layers=(0, 2), gated_attention=True))
    assert [[type(step).__name__ for step in layer][1] for layer in graph.layers] == ["Recur", "Attend", "Recur"]
    assert graph.rows == (0, 0, 1)
    assert graph.attention(1).gated
    for wrong in ((0, 1, 2), (3,), (1, 0), ()):
        with pytest.raises(ModelFormatError):
            replace(CONFIG, delta=DELTA, delta_layers=wrong)
    with pytest.raises(ModelFormatError, match="share"):
        replace(CONFIG, delta=replace(DELTA, value_heads=3), delta_layers=(0,))


def test_learned_positions_have_no_angles() -> None:
    graph = graph_of(replace(CONFIG, positions="learned", rope_theta_local=500.0))
    assert [table.rotated for table in graph.angles] == [0]
    assert graph.attention(0).rotated == graph.attention(0).angles == 0


def test_latent_attention_stands_where_attention_would() -> None:
    config = replace(CONFIG, latent=LATENT, n_kv_heads=1, head_dim=16, rotary_dim=4, attention_scale=0.25)
    graph = graph_of(config)
    assert [type(step).__name__ for step in graph.layers[0]] == ["Norm", "AttendLatent", "Norm", "Select", "Ffn"]
    assert (graph.attention(0).scale, graph.attention(0).rotated, graph.rows) == (0.25, 4, (0, 1, 2))
    layout = config.kv_layout("f16")
    assert (layout.shared, layout.block_bytes) == (True, 32 * 16 * 2)
    for wrong in (
        {"n_kv_heads": 2}, {"rotary_dim": 6}, {"windows": (4, 0, 0)}, {"qk_norm": True}, {"biases": ("q",)},
        {"latent": replace(LATENT, value_dim=0)}, {"latent": replace(LATENT, query_rank=-1)}, {"norm": "layer"},
    ):  # fmt: skip
        with pytest.raises(ModelFormatError):
            replace(config, **wrong)


@pytest.mark.parametrize(
    ("groups", "used", "words"), [(3, 1, "invalid"), (4, 5, "invalid"), (0, 0, "invalid"), (8, 4, "too few"),
                                  (2, 1, ""), (4, 1, "too few")],
)  # fmt: skip
def test_groups_of_experts(groups: int, used: int, words: str) -> None:
    shape = {"n_experts": 8, "n_experts_used": 3, "n_groups": groups, "n_groups_used": used}
    if not words:
        routing = graph_of(replace(CONFIG, **shape, selection_bias=True)).ffn(0).spec.routing
        assert routing is not None
        assert routing.groups == ExpertGroups(2, 1, by_two=True)
        return
    with pytest.raises(ModelFormatError, match=words):
        replace(CONFIG, **shape)


def test_queries_that_grow_with_their_position() -> None:
    config = replace(CONFIG, attention_temperature=Temperature(0.1, 32))
    growth = graph_of(config).attention(0).temperature
    assert growth is not None
    wanted = 1 + 0.1 * np.log([1, 1, 2, 4])
    np.testing.assert_allclose(factors_of(growth, np.array([0, 31, 32, 100])), wanted, rtol=1e-6)
    assert not why_not_on_gpu(config)
    assert config_of(shape_of(config)).attention_temperature == config.attention_temperature
    for wrong in (Temperature(0.0, 32), Temperature(0.1, 0), Temperature(float("nan"), 32)):
        with pytest.raises(ModelFormatError, match="invalid"):
            replace(config, attention_temperature=wrong)
