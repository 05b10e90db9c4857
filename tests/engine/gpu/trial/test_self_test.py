"""The trial of a GPU: what it finds wrong, what follows from it, and what is remembered."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.gpu import FakeGpu

import native_kernels.cuda
from engine.gpu.trial import self_test, trial
from engine.gpu.trial.kernel_checks import CHECKS, failures_of
from engine.gpu.trial.self_test import Findings, decide, find, tried
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError, Device

GOOD = Findings((), True, 12e-6, 20e-6, 50e9)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine fails no GPU."""
    monkeypatch.setattr(trial, "PATIENCE_S", 60.0)
    monkeypatch.setattr(self_test, "_PATIENCE_S", 60.0)


@pytest.fixture
def gpu() -> Iterator[FakeGpu]:
    made = FakeGpu()
    yield made
    made.close()


def wrong_in(operator: str) -> type[FakeGpu]:
    """A GPU that leaves something out of one operator."""

    def missing(self: FakeGpu, *arguments: Any, **named: Any) -> None:
        self.do(operator, lambda: None)

    return type("Wrong", (FakeGpu,), {operator: missing})


def test_a_gpu_that_computes_right_has_no_failures(gpu: FakeGpu) -> None:
    assert failures_of(gpu) == ()
    assert gpu.used_bytes == 0


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ("quantise", "numbers are rounded wrong"),
        ("multiply", "products of f16 rows are wrong"),
        ("expect", "expectations from f16 rows are wrong"),
        ("hidden", "neurons of f16 rows are wrong"),
        ("down", "sums over neurons of f16 rows are wrong"),
        ("activate", "activations are wrong"),
        ("softcap", "capped numbers are wrong"),
        ("attend", "attention over 1 positions is wrong"),
        ("rotate_and_store", "attention over 1 positions is wrong"),
        ("angles", "attention over 1 positions is wrong"),
        ("place_latent", "latent attention over 1 positions is wrong"),
        ("multiply_each", "latent attention over 1 positions is wrong"),
        ("gated_delta", "layers with a state are wrong over 1 positions"),
        ("predict_streams", "predictions of streams are wrong"),
        ("correct_streams", "corrections of streams are wrong"),
        ("add_beside", "sizes of streams are wrong"),
        ("scale_alike", "sizes of streams are wrong"),
        ("cut_off", "cut-offs are wrong"),
        ("choose", "the choice of experts is wrong"),
        ("short_conv", "short convolutions are wrong over 1 positions"),
    ],
)
def test_what_a_gpu_leaves_out_is_told(operator: str, words: str) -> None:
    gpu = wrong_in(operator)()
    try:
        assert words in failures_of(gpu)
        assert gpu.used_bytes == 0
    finally:
        gpu.close()


def test_exchanges_are_made_and_measured(gpu: FakeGpu) -> None:
    found = find(gpu, lambda _: ())
    assert found.failures == ()
    assert found.captures
    assert 0 < found.exchange_s <= found.slow_exchange_s
    assert found.host_bytes_per_s > 0
    assert gpu.n_launches >= self_test.N_EXCHANGES
    assert (gpu.used_bytes, gpu.works) == (0, {})


def test_a_wrong_number_in_an_exchange_is_seen() -> None:
    class Late(FakeGpu):
        """Forgets once what the CPU left."""

        adds = 0

        def advance(self, *arguments: Any, **named: Any) -> None:
            super().advance(*arguments, **named)
            stream = arguments[0]

            def spoil() -> None:
                self.adds += 1
                if self.adds == 100:
                    self.array(stream, 1)[0] += 1

            self.do("spoil", spoil)

    gpu = Late()
    try:
        (failure,) = find(gpu, lambda _: ()).failures
        assert "exchange 100 " in failure
        assert gpu.used_bytes == 0
    finally:
        gpu.close()


def test_a_driver_that_captures_nothing_is_worked_with_operator_by_operator() -> None:
    class Plain(FakeGpu):
        def captured(self, work: Any) -> Any:
            raise CudaError("cuStreamBeginCapture_v2", 801, "CUDA_ERROR_NOT_SUPPORTED")

    gpu = Plain()
    try:
        found = find(gpu, lambda _: ())
        assert found.failures == ()
        assert not found.captures
        assert decide(found, 8).execution == "eager"
    finally:
        gpu.close()


def test_a_gpu_that_does_not_answer_is_given_up(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "PATIENCE_S", 0.05)
    monkeypatch.setattr(gpu, "publish", lambda *arguments, **named: None)
    found = find(gpu)
    assert len(found.failures) == 1
    assert "did not answer" in found.failures[0]


def test_a_flag_that_never_comes_is_a_failure(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "_PATIENCE_S", 0.05)
    publish = gpu.publish

    def only_to_settle(flag: int, epoch: int, *arguments: object) -> None:
        if not arguments:
            publish(flag, epoch)

    monkeypatch.setattr(gpu, "publish", only_to_settle)
    (failure,) = find(gpu, lambda _: ()).failures
    assert "late" in failure


def test_a_full_gpu_is_a_failure() -> None:
    gpu = FakeGpu(memory_bytes=1 << 16)
    try:
        found = find(gpu)
        assert "OUT_OF_MEMORY" in found.failures[0]
        assert gpu.used_bytes == 0
    finally:
        gpu.close()


def test_a_gpu_that_failed_is_not_used_and_says_why() -> None:
    use = decide(Findings(("norms are wrong", "exchange 3 brought wrong numbers")), 8)
    assert not use.usable
    (reason,) = use.reasons
    assert "norms are wrong; exchange 3 brought wrong numbers" in reason


@pytest.mark.parametrize(("processors", "most"), [(1, 1), (2, 1), (16, 15)])
def test_a_cpu_is_left_for_the_driver(processors: int, most: int) -> None:
    use = decide(GOOD, processors)
    assert (use.usable, use.execution, use.most_threads) == (True, "segments", most)
    assert any("12 us" in reason for reason in use.reasons)


def test_a_gpu_that_others_use_is_told() -> None:
    assert not any("screen" in reason for reason in decide(GOOD, 8).reasons)
    shared = Findings((), True, 12e-6, 17e-3, 50e9)
    assert any("screen" in reason for reason in decide(shared, 8).reasons)


def test_a_gpu_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> None:
    answers = [GOOD]
    monkeypatch.setattr(self_test, "find", lambda _: answers.pop())
    assert tried(gpu, "GPU-1", "580.1", tmp_path) == GOOD
    assert tried(gpu, "GPU-1", "580.1", tmp_path) == GOOD
    answers = [GOOD, GOOD]
    tried(gpu, "GPU-2", "580.1", tmp_path)
    tried(gpu, "GPU-1", "581.0", tmp_path)
    assert answers == []


def test_other_kernels_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> None:
    answers = [GOOD, GOOD]
    monkeypatch.setattr(self_test, "find", lambda _: answers.pop())
    tried(gpu, "GPU-1", "580.1", tmp_path)
    monkeypatch.setattr(self_test, "sources_digest", lambda: "others")
    tried(gpu, "GPU-1", "580.1", tmp_path)
    assert answers == []


def test_every_kernel_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = shutil.copytree(native_kernels.cuda.__path__[0], tmp_path / "cuda")
    monkeypatch.setattr(native_kernels.cuda, "__path__", [str(copied)])
    before = self_test.sources_digest()
    with next(copied.rglob("*.cu")).open("a") as kernel:
        kernel.write("// another\n")
    assert self_test.sources_digest() != before


def test_failures_are_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> None:
    answers = [GOOD, Findings(("norms are wrong",))]
    monkeypatch.setattr(self_test, "find", lambda _: answers.pop())
    assert tried(gpu, "GPU-1", "580.1", tmp_path).failures
    assert tried(gpu, "GPU-1", "580.1", tmp_path) == GOOD


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"exchange_s": "x"}', '{"captures": true}'])
def test_a_damaged_memory_is_no_memory(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu
) -> None:
    monkeypatch.setattr(self_test, "find", lambda _: GOOD)
    tried(gpu, "GPU-1", "580.1", tmp_path)
    file = next(tmp_path.iterdir())
    key = next(iter(json.loads(file.read_text("utf-8"))))
    file.write_text(damage if not damage.startswith('{"') else json.dumps({key: json.loads(damage)}), "utf-8")
    assert tried(gpu, "GPU-1", "580.1", tmp_path) == GOOD


def test_only_some_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> None:
    monkeypatch.setattr(self_test, "find", lambda _: GOOD)
    for number in range(20):
        tried(gpu, f"GPU-{number}", "580.1", tmp_path)
    assert len(json.loads(next(tmp_path.iterdir()).read_text("utf-8"))) == 8


def test_the_checks_are_the_same_every_time(gpu: FakeGpu) -> None:
    with trial.GpuTrial(gpu) as first, trial.GpuTrial(gpu) as second:
        assert np.array_equal(first.numbers(8), second.numbers(8))
    assert len(set(CHECKS)) == len(CHECKS)


@pytest.mark.gpu
def test_this_machines_gpu_passes() -> None:
    try:
        real = CudaGpu(Device(0))
    except (CudaUnavailableError, CudaError) as error:
        pytest.skip(f"no GPU: {error}")
    try:
        found = find(real)
        assert found.failures == ()
        assert found.captures
        assert found.exchange_s < 1e-3
        assert found.host_bytes_per_s > 1e9
    finally:
        real.close()
