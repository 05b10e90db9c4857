"""A card that is full or lost, at any moment: at most one answer ends with it, in words, and the next is as ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from card_scenario import CardScenario
from failing_card import Failure

from engine.gpu import placed_part

FAILURES: tuple[Failure, ...] = ("full", "full once", "lost")


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CardScenario]:
    with pytest.MonkeyPatch.context() as patch:
        yield CardScenario(tmp_path_factory.mktemp("card"), patch)


def test_at_some_calls(scenario: CardScenario) -> None:
    for number, call in enumerate(range(3, scenario.n_calls, 9)):
        assert scenario.faults(call, FAILURES[number % len(FAILURES)]) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("failure", [*FAILURES, "late loss"])
def test_at_every_call(scenario: CardScenario, failure: Failure, monkeypatch: pytest.MonkeyPatch) -> None:
    if failure == "late loss":  # the processor waits for the card until its patience is at an end
        monkeypatch.setattr(placed_part, "PATIENCE_S", 1.0)
    for call in range(1, scenario.n_calls + 1):
        assert scenario.faults(call, failure) == []
