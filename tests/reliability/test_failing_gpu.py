"""A GPU that is full or lost, at any moment: at most one answer ends with it, in words, and the next is as ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from failing_gpu import Failure
from gpu_scenario import GpuScenario

from engine.gpu import loaded_part

FAILURES: tuple[Failure, ...] = ("full", "full once", "lost")


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuScenario]:
    with pytest.MonkeyPatch.context() as patch:
        yield GpuScenario(tmp_path_factory.mktemp("gpu"), patch)


def test_at_some_calls(scenario: GpuScenario) -> None:
    for number, call in enumerate(range(3, scenario.n_calls, 9)):
        assert scenario.faults(call, FAILURES[number % len(FAILURES)]) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("failure", [*FAILURES, "late loss"])
def test_at_every_call(scenario: GpuScenario, failure: Failure, monkeypatch: pytest.MonkeyPatch) -> None:
    if failure == "late loss":  # the CPU waits for the GPU until its timeouts is at an end
        monkeypatch.setattr(loaded_part, "PATIENCE_S", 1.0)
    for call in range(1, scenario.n_calls + 1):
        assert scenario.faults(call, failure) == []
