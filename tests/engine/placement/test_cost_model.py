"""Predicted seconds: they follow bytes, rates, modes and devices as the formula says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from samples.placement_cases import MIB, a_config, a_model, a_problem, a_profile, some_stats

from engine.errors import InvalidRequestError
from engine.placement.activity import activity_of
from engine.placement.cost_model import EXCHANGE_S, Machine, cpu_layer_s, cpu_token_s, ffn_speeds
from engine.placement.model_bytes import PredictorBytes
from engine.placement.placement_problem import TokenContext, build_problem


def way_of(problem: object, attention: bool, blocks: int) -> int:
    ways = problem.attention_on_gpu == attention  # type: ignore[attr-defined]
    return int(np.flatnonzero(ways & (problem.blocks == blocks))[0])  # type: ignore[attr-defined]


def test_dense_on_the_cpu_is_bytes_by_rates() -> None:
    config = a_config("silu-glu")
    model, machine = a_model(config), Machine.of(a_profile(), 7, None)
    problem = build_problem(model, activity_of(config, "dense"), machine, "dense", TokenContext(512, 256, "f16"))
    cpu = machine.cpu
    ffn = config.d_ff * (16384 / cpu.gemv("f16") + 8192 / cpu.sums("f16"))
    layer = MIB / cpu.gemv("f16") + model.kv_of_layer(256, "f16")[0] / (0.8 * cpu.gemv("f16")) + ffn
    expected = 4 * (layer + cpu_layer_s(64)) + model.head / cpu.gemv("f16") + cpu_token_s()
    assert problem.cpu_alone.seconds(problem) == pytest.approx(expected)


def test_a_split_layer_takes_as_long_as_its_slower_side_and_the_exchange() -> None:
    problem = a_problem()
    alone = a_problem(profile=a_profile(exchange_s=12e-6))
    whole = int(problem.blocks.max())
    rates = Machine.of(a_profile(), 7, a_profile().gpus[0])
    exchange = rates.exchange(8 * 64 + 256 // 8)
    nothing, half, everything = (problem.seconds[0, way_of(problem, True, k)] for k in (0, whole // 2, whole))
    cold_half = alone.seconds[0, way_of(alone, True, whole // 2)]
    assert half == cold_half
    assert everything + exchange < half < nothing  # the CPU is the slower side as long as anything is cold
    assert nothing - half < nothing


def test_modes_read_less_and_less() -> None:
    config = a_config()
    size = np.full(4, 1000, np.int64)
    predictors = PredictorBytes(size, size, ("f16",) * 4, (0.22,) * 4, np.zeros(4, np.bool_))
    times = [
        problem.cpu_alone.seconds(problem)
        for mode in ("dense", "exact", "sparse")
        for problem in [a_problem(config, mode, predictors=predictors if mode == "sparse" else None)]  # type: ignore[arg-type]
    ]
    assert times == sorted(times, reverse=True)
    assert times[2] < 0.6 * times[0]


def test_a_down_stored_row_by_row_is_read_whole() -> None:
    by_neuron, row_wise = a_problem(), a_problem(row_wise=True)
    assert row_wise.cpu_alone.seconds(row_wise) > by_neuron.cpu_alone.seconds(by_neuron)
    of_cpu = Machine.of(a_profile(), 7, None).cpu
    assert ffn_speeds(of_cpu, "exact", "f16", "f16", True)[2] == of_cpu.gemv("f16")


def test_a_predictor_costs_its_bytes() -> None:
    config = a_config()
    times = []
    for n_bytes in (0, 4 * MIB):
        size = np.full(4, n_bytes, np.int64)
        known = PredictorBytes(size, size, ("f16",) * 4, (0.22,) * 4, np.zeros(4, np.bool_))
        problem = a_problem(config, "sparse", predictors=known)
        times.append(problem.cpu_alone.seconds(problem))
    expected = 16 * MIB / Machine.of(a_profile(), 7, None).cpu.short("f16")
    assert times[1] - times[0] == pytest.approx(expected)


def test_more_cores_and_codecs_that_cost_arithmetic() -> None:
    profile = a_profile(cpu_gb_s=500)
    one, eight = (Machine.of(profile, threads, None).cpu for threads in (1, 8))
    for codec in ("f16", "q4_0", "q8_0", "q4_k"):
        assert one.gemv(codec) < eight.gemv(codec) <= 500e9  # one core does not compute as fast as that memory is
    slow = Machine.of(a_profile(cpu_gb_s=10), 1, None).cpu
    assert slow.gemv("f16") > slow.rows("f16", 4096)
    assert slow.rows("f16", 4096) < slow.rows("f16", 8192) < slow.rows("f16", 16384) == slow.rows("f16", 1 << 20)
    assert slow.rows("q4_0", 4096) == slow.rows("q4_0", 1 << 20)
    assert slow.gemv("q4_0") > slow.gemv("q4_k")


def test_what_both_sides_read_of_the_ram_at_once_is_taken_as_measured_where_it_was() -> None:
    profile = a_profile(cpu_gb_s=100)
    guessed = Machine.of(profile, 7, profile.gpus[0])
    gpu = replace(profile.gpus[0], reach_bytes_per_s=20e9, beside_share=0.7)
    measured = Machine.of(profile, 7, gpu)
    assert (measured.zero_copy.gemv("f16"), measured.beside_zero_copy.gemv("f16")) == (18e9, 63e9)
    assert guessed.zero_copy.gemv("f16") < 25e9
    assert guessed.zero_copy.gemv("f16") + guessed.beside_zero_copy.gemv("f16") < 100e9
    half = Machine.of(profile, 7, replace(gpu, beside_share=None))
    assert half.zero_copy.gemv("f16") == guessed.zero_copy.gemv("f16")


def test_what_nobody_measured_is_said() -> None:
    profile = a_profile(exchange_s=None)
    gpu = replace(profile.gpus[0], bytes_per_s=None, pcie_bytes_per_s=None)
    machine = Machine.of(profile, 4, gpu)
    assert machine.exchange_s == EXCHANGE_S
    (note,) = machine.notes
    assert "A GPU" in note
    assert "250 GB/s" in note
    assert machine.gpu is not None
    unknown = replace(profile, cpu=replace(profile.cpu, bytes_per_s=None))
    with pytest.raises(InvalidRequestError, match=r"cpu\.bytes_per_s"):
        Machine.of(unknown, 4, None)


def test_keys_and_values_are_read_up_to_the_position() -> None:
    config = a_config()
    activity, machine = activity_of(config, "exact", some_stats(config)), Machine.of(a_profile(), 7, None)
    near, far = (
        build_problem(a_model(config), activity, machine, "exact", TokenContext(512, position, "f16"))
        for position in (1, 512)
    )
    assert near.cpu_alone.seconds(near) < far.cpu_alone.seconds(far)
    assert near.cpu_alone.ram(near) == far.cpu_alone.ram(far)
