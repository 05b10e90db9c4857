"""Experts that the RAM cannot hold: which are read ahead, in which order, and at what rate the disk gives them."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from samples.experts_gguf import N_EXPERTS, make_tiny_mixtral

from engine.model import expert_reads
from engine.model.expert_reads import ExpertReads, disk_rate
from engine.model.prefetch import evict_pages, parts_of, spans_of, spans_to_read
from engine.model.weights import ModelWeights, load_weights, open_model

PAGE = 4096


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> ModelWeights:
    path: Path = make_tiny_mixtral(tmp_path_factory.mktemp("experts") / "e.gguf")
    return load_weights(open_model(path), hold="mapped", reads_experts=True)


def asked(weights: ModelWeights, layer: int, experts: list[int]) -> list[int]:
    """The first addresses of what is read."""
    found: list[int] = []
    reads = ExpertReads(weights.layers, lambda at, n: found.append(at))
    reads.choose(layer, experts)
    reads.wait()
    return found


def first_page(weights: ModelWeights, layer: int, expert: int, name: str) -> int:
    return int(getattr(weights.layers[layer].routed[expert], name).data.ctypes.data) // PAGE * PAGE


def test_only_a_model_that_memory_cannot_hold_reads_experts(tmp_path: Path) -> None:
    opened = open_model(make_tiny_mixtral(tmp_path / "e.gguf"))
    assert load_weights(opened, hold="mapped").expert_reads is None
    assert load_weights(opened, hold="f32", reads_experts=True).expert_reads is None
    assert load_weights(opened, hold="mapped", reads_experts=True).expert_reads is not None


def test_chosen_experts_are_read_in_the_order_of_the_products(weights: ModelWeights) -> None:
    down = "down" if weights.layers[0].routed[0].down is not None else "down_t"
    expected = [first_page(weights, 0, 2, name) for name in ("gate", "up", down)]
    assert asked(weights, 0, [2]) == expected


def test_the_next_layer_is_read_too_where_most_experts_are_chosen(weights: ModelWeights) -> None:
    following = {first_page(weights, 1, expert, "gate") for expert in range(N_EXPERTS)}
    assert not following & set(asked(weights, 0, [1, 3]))
    assert following & set(asked(weights, 0, list(range(N_EXPERTS))))
    assert asked(weights, 1, list(range(N_EXPERTS)))  # nothing comes after the last layer


def test_what_was_read_as_a_guess_is_not_read_again(weights: ModelWeights) -> None:
    found: list[int] = []
    reads = ExpertReads(weights.layers, lambda at, n: found.append(at))
    everyone = list(range(N_EXPERTS))
    reads.choose(0, everyone)
    reads.wait()
    found.clear()
    reads.choose(1, everyone)
    reads.wait()
    assert found == []


def test_a_newer_request_ends_an_older_one(weights: ModelWeights) -> None:
    found: list[int] = []
    reads = ExpertReads(weights.layers, lambda at, n: (found.append(at), reads.choose(1, []))[0])
    reads.choose(0, list(range(0, N_EXPERTS, 2)))
    reads.wait()
    assert len(found) == 1


def test_experts_are_prefetched_last_and_the_hottest_of_them_first(weights: ModelWeights) -> None:
    parts = parts_of(weights)
    heat = np.zeros((len(weights.layers), N_EXPERTS), np.float32)
    heat[1, 3] = 9
    order = [start for start, _ in spans_to_read(weights, parts, heat)]
    routed = {id(one) for layer in weights.layers for block in layer.routed for one in block.matrices}
    others = spans_of(part for part in parts if id(part[0]) not in routed)
    assert order[: len(others)] == [start for start, _ in others]
    assert order[len(others)] == first_page(weights, 1, 3, "up")


# --- the disk


def test_the_disk_is_timed_with_experts_that_are_not_in_memory(
    weights: ModelWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [layer.routed for layer in weights.layers]
    done: dict[int, int] = {}

    def read(at: int, n: int) -> bool:
        done[at] = n
        return True

    clock = iter(float(second) for second in range(1000))
    monkeypatch.setattr(expert_reads, "_SAMPLE_S", 1e9)
    monkeypatch.setattr(expert_reads.time, "perf_counter", lambda: next(clock))
    rate = disk_rate(layers, 1, read, lambda at, n: done.get(at, 0))
    assert rate is not None
    assert 0 < rate < sum(done.values())  # more than a second passed


@pytest.mark.parametrize("resident", [0, 1 << 40], ids=["the system does not tell", "all in memory"])
def test_no_rate_is_invented(weights: ModelWeights, resident: int) -> None:
    layers = [layer.routed for layer in weights.layers]
    assert disk_rate(layers, 2, lambda at, n: True, lambda at, n: resident) is None
    assert disk_rate(layers, 2, lambda at, n: False, lambda at, n: 0) is None


# --- beside a GPU


class Pages:
    """Pages that are in RAM if they were read and not evicted since."""

    def __init__(self) -> None:
        self.there: dict[int, int] = {}

    def reads(self, weights: ModelWeights) -> ExpertReads:
        def read(at: int, n: int) -> None:
            self.there[at] = n

        def evict(at: int, n: int) -> None:
            for start in [one for one in self.there if at <= one < at + n]:
                del self.there[start]

        found = ExpertReads(weights.layers, read, evict, lambda at, n: self.there.get(at, 0))
        found.function[0] = 1  # as on Linux
        return found


def test_experts_are_requested_once_and_leave_ram_when_evicted(weights: ModelWeights) -> None:
    pages, block = Pages(), weights.layers[0].routed[1]
    reads = pages.reads(weights)
    assert not reads.is_in_ram(block)
    missing = reads.request([block]).result()
    assert sorted(start for start, _ in missing) == sorted(pages.there)
    assert reads.is_in_ram(block)
    assert reads.request([block]).result() == []
    reads.evict_matrices(block.matrices)
    reads.wait()
    assert not reads.is_in_ram(block)


def test_nothing_is_requested_while_a_gpu_holds_what_ram_does_not(weights: ModelWeights) -> None:
    found: list[int] = []
    reads = ExpertReads(weights.layers, lambda at, n: found.append(at))
    reads.is_needed = False
    reads.choose(0, [1])
    reads.wait()
    assert not found
    assert reads.function[0] == 0
    assert reads.is_in_ram(weights.layers[0].routed[0])
    reads.is_needed = True
    assert (reads.function[0] != 0) == (sys.platform == "linux")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems evict nothing on request")
def test_evicted_pages_are_read_again_alike(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    values = np.random.default_rng(1).bytes(64 * PAGE)
    path.write_bytes(values)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    array = np.frombuffer(mapped, np.uint8)
    assert array.tobytes() == values
    evict_pages(array.ctypes.data, len(array))
    assert array.tobytes() == values
