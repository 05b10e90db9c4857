"""A model is loaded onto a GPU, answers in one mode and in another, and is unloaded, while the GPU fails at one of
the calls that this takes. What is wrong with how that went is said in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_gpu import FailingGpu, Failure
from fakes.gpu_machine import FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.service import protocol
from engine.service.host import EngineHost

_ASKED: tuple[tuple[str, str | None], ...] = (
    ("the cat", None), ("a", "dense"), ("why not", "exact"), ("a", None), ("the cat", None),
)  # fmt: skip


class GpuScenario:
    """n_calls: of the GPU where nothing fails, from loading to the last answer."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._model = make_tiny_model(folder / "model", seed=1)
        self._machine = FakeGpuMachine(folder, patch)
        self._engine = {"device": "auto", "threads": 1, "hardware_file": str(folder / "slow.json")}
        self._gpus: list[FailingGpu] = []
        self._texts: dict[str, str] = {}
        ends = self._lived(0, "lost")
        self.n_calls = self._gpus[0].n_calls
        for id, end in ends.items():
            assert isinstance(end, protocol.Finished), end
            self._texts[id] = end.result.get("text", "")
        assert len({*self._texts.values()}) > 3, "answers can be told from each other"

    def faults(self, call: int, failure: Failure) -> list[str]:
        """What is wrong where the first GPU fails at that call, counted from 1."""
        ends = self._lived(call, failure)
        failed = [end for end in ends.values() if isinstance(end, protocol.Failed)]
        found = [f"{end.id}: {end.error}: {end.message} {end.hint}" for end in failed if not _is_told_well(end)]
        if len(failed) > 1:
            found.append(f"{len(failed)} answers failed")
        for id, text in self._texts.items():
            end = ends.get(id)
            if end is None:
                found.append(f"{id} never ended")
            elif isinstance(end, protocol.Finished) and end.result.get("text", "") != text:
                found.append(f"{id} is {end.result.get('text')!r}, not {text!r}")
        if held := [gpu.used_bytes for gpu in self._gpus if gpu.used_bytes]:
            found.append(f"{held} bytes are still held")
        return [f"{failure} at call {call}: {one}" for one in found]

    def _lived(self, call: int, failure: Failure) -> dict[str, protocol.Finished | protocol.Failed]:
        self._gpus = []

        def make() -> FailingGpu:
            self._gpus.append(FailingGpu())
            if call and len(self._gpus) == 1:
                self._gpus[0].fail_after(call, failure)
            return self._gpus[-1]

        self._machine.make = make
        events: list[protocol.Event] = []
        host = EngineHost(events.append)
        host.submit(protocol.Load("load", str(self._model), self._engine))
        for number, (words, mode) in enumerate(_ASKED):
            messages = [{"role": "user", "content": words}]
            host.submit(protocol.Generate(f"{number}", messages, {"max_tokens": 4, "temperature": 0}, mode))
        host.submit(protocol.Unload("unload"))
        host.run_pending()
        for gpu in self._gpus:
            gpu.close()
        return {event.id: event for event in events if isinstance(event, protocol.Finished | protocol.Failed)}


def _is_told_well(end: protocol.Failed) -> bool:
    """Whether it is an answer that ended with the GPU, with what to do now."""
    return end.id.isdigit() and end.error == "DeviceFailedError" and end.hint.startswith("Send the message again")
