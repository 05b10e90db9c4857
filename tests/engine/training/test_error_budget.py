"""The error budget: which level is found, with how few passes, what is measured, and what is said where none holds."""

from __future__ import annotations

import numpy as np
import pytest
from samples.tiny_model import make_tiny_model

from engine.errors import InvalidRequestError
from engine.model.weights import load_weights, open_model
from engine.sparsity.predictor import LayerPredictor, LowRank, MeasuredText, Predictor
from engine.training.error_budget import Goal, HeldOutText, hold_budget, measure_masked, measure_reference
from engine.training.layer_walk import ModelParts
from engine.training.thresholds import LEVELS
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators

CHAT, PROSE = HeldOutText("chat", [[1, 2, 3]]), HeldOutText("prose", [[1, 2, 3]], prose=True)


class Bench:
    """A model whose agreement is a function of the level."""

    def __init__(self, agreement_at: dict[float, float], rise: float = 0.001) -> None:
        self.passes: list[float] = []
        self._agreement, self._rise = agreement_at, rise

    def build(self, level: float) -> Predictor:
        return Predictor((LayerPredictor(),), text=str(level))

    def measure(self, predictor: Predictor) -> tuple[MeasuredText, ...]:
        level = float(predictor.text or 0)
        self.passes.append(level)
        reached = max(at for at in self._agreement if at <= level)
        return tuple(MeasuredText(text.name, self._rise, self._agreement[reached]) for text in (CHAT, PROSE))

    def hold(self, goal: Goal | None = None) -> Predictor:
        return hold_budget(self.build, self.measure, (CHAT, PROSE), goal or Goal())


@pytest.mark.parametrize("first", LEVELS)
def test_the_lowest_level_that_holds_is_found_in_few_passes(first: float) -> None:
    bench = Bench({0.0: 0.5, first: 0.999})
    found = bench.hold()
    assert found.text == str(first)
    assert found.budget is not None
    assert found.budget.held
    assert found.budget.level == first
    assert found.budget.measured[0].top1_agreement == 0.999
    assert len(bench.passes) == len(set(bench.passes)) <= 5


def test_where_the_finer_goal_is_out_of_reach_the_goal_itself_counts() -> None:
    goal = Goal()
    found = Bench({0.0: 0.5, 0.99: goal.top1_chat}).hold(goal)
    assert found.budget is not None
    assert found.budget.held
    assert found.budget.level == 0.99


@pytest.mark.parametrize("bench", [Bench({0.0: 0.9}), Bench({0.0: 1.0}, rise=0.02), Bench({0.0: 1.0}, rise=np.nan)])
def test_where_nothing_holds_it_says_so(bench: Bench) -> None:
    found = bench.hold()
    assert found.budget is not None
    assert not found.budget.held
    assert found.budget.measured


def test_prose_may_agree_less_than_chat() -> None:
    goal = Goal(0.01, 0.97, 0.95)

    def measured(chat: float, prose: float) -> list[MeasuredText]:
        return [MeasuredText("chat", 0.0, chat), MeasuredText("prose", 0.0, prose)]

    assert goal.holds((CHAT, PROSE), measured(0.97, 0.95))
    assert not goal.holds((CHAT, PROSE), measured(0.96, 0.95))
    assert not goal.holds((CHAT, PROSE), measured(0.97, 0.94))


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ModelParts:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("relu")))
    return ModelParts(opened.config, load_weights(opened), ReferenceOperators())


def _expecting(parts: ModelParts, threshold: float) -> Predictor:
    """Every neuron's score is 0."""
    a = PackedMatrix.pack(np.zeros((4, parts.config.d_model), np.float32), "f32")
    b = PackedMatrix.pack(np.zeros((parts.config.d_ff, 4), np.float32), "f32")
    return Predictor(tuple(LayerPredictor(LowRank(a, b, threshold=threshold)) for _ in range(parts.config.n_layers)))


def test_a_predictor_of_everything_loses_nothing_and_one_of_nothing_a_lot(parts: ModelParts) -> None:
    rng = np.random.default_rng(0)
    texts = [
        HeldOutText(name, rng.integers(0, parts.config.vocab_size, (3, 20)).tolist(), name == "prose")
        for name in ("chat", "prose")
    ]
    reference = measure_reference(parts, texts)
    everything = measure_masked(parts, texts, _expecting(parts, -1), reference)
    assert [one.text for one in everything] == ["chat", "prose"]
    for one in everything:
        assert one.top1_agreement == 1
        assert one.perplexity_rise == pytest.approx(0, abs=1e-5)
    nothing = measure_masked(parts, texts, _expecting(parts, 1), reference)
    assert max(abs(one.perplexity_rise) for one in nothing) > 1e-3
    assert min(one.top1_agreement for one in nothing) < 1


def test_a_text_with_nothing_to_score_is_refused(parts: ModelParts) -> None:
    with pytest.raises(InvalidRequestError, match="fewer than two tokens"):
        measure_reference(parts, [HeldOutText("chat", [[1]])])
