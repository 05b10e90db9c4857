"""Solves the placement of the paper's models on the paper's machines, from shapes alone, and prints the table of docs.

    python tests/benchmarks/placements.py                     the tables
    python tests/benchmarks/placements.py --write             puts them into docs/placement.md

No model file is read. How often neurons fire is no measurement of ours either: the share that fires and the coverage
curve of each model stand below with where they are from. PowerInfer, sections 3 and 8.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]

from model_shapes import EXPERT_SHAPES, SHAPES, Shape  # noqa: E402 - found by the line above

from engine.config import ModelConfig  # noqa: E402
from engine.errors import HostMemoryError  # noqa: E402
from engine.machine.hardware import choose_gpu, default_threads  # noqa: E402
from engine.machine.measured_hardware import load_profile  # noqa: E402
from engine.placement import memory_plan  # noqa: E402
from engine.placement.activity import Activity, scaled_to  # noqa: E402
from engine.placement.cost_model import Machine, cold_layer_s, gpu_layer_s  # noqa: E402
from engine.placement.greedy import place_greedily, steps_of  # noqa: E402
from engine.placement.model_bytes import ModelBytes, PredictorBytes  # noqa: E402
from engine.placement.placement_problem import FixedBytes, TokenContext, build_problem  # noqa: E402
from engine.placement.solver import solve  # noqa: E402
from native_kernels.codecs import CODECS  # noqa: E402

DOCS = ROOT / "docs" / "placement.md"
MACHINES = ("pc-high", "pc-low")
CODECS_OF = {"FP16": "f16", "INT4": "q4_0"}
CONTEXT, POSITION = 1024, 256
# Bytes of PowerInfer's predictors as a share of the model's: 13B FP16 and 70B Q4_0 as published.
PREDICTOR_SHARE = {"70b": 0.09}
USUAL_PREDICTOR_SHARE = 0.07
EXPECTED_TO_FIRED = 1.3
# Bytes/s at which one core multiplies rows of 2,048 in its cache with AVX2, on a Xeon at 2.8 GHz: the best of 300 runs
# of gemv with 768 rows, HEARTH_KERNELS_ISA=avx2, 2026-11-28.
CORE_BYTES_PER_S = {"q4_0": 10.1e9, "q4_k": 11.7e9, "q6_k": 14.6e9, "mxfp4": 9.9e9, "iq4_xs": 8.3e9, "q3_k": 7.2e9}
LANE_MACHINES, LANE_HITS, LANE_THREADS = ("pc-low", "rtx-3060-12gb"), (0.6, 0.8, 0.9), 3


@dataclass(frozen=True)
class Case:
    """A model of the paper. fired: share of the neurons that fire for a token. covered: the share of a layer's neurons
    that carries 80 % of its activations."""

    name: str
    shape: str
    fired: float
    covered: float


# Fired: OPT and ReluFalcon 0.05 (their authors' 95 % zeros); ReluLLaMA 7B and 13B 0.33 and 0.28 (model cards); of 70B
# nothing is published, taken is 0.25. Covered: 26 % (OPT-30B) and 43 % (LLaMA-70B) in the paper's figure 5.
CASES = [
    Case("OPT-6.7B", "opt-6.7b", 0.05, 0.26),
    Case("OPT-13B", "opt-13b", 0.05, 0.26),
    Case("OPT-30B", "opt-30b", 0.05, 0.26),
    Case("OPT-66B", "opt-66b", 0.05, 0.26),
    Case("OPT-175B", "opt-175b", 0.05, 0.26),
    Case("LLaMA-ReGLU-7B", "7b", 0.33, 0.43),
    Case("LLaMA-ReGLU-13B", "13b", 0.28, 0.43),
    Case("LLaMA-ReGLU-70B", "70b", 0.25, 0.43),
    Case("Falcon-40B", "falcon-40b", 0.05, 0.26),
]
# The same from PowerInfer's published activation files, which are flatter: 57 % and 63 % of a layer.
PUBLISHED = [
    Case("LLaMA-ReGLU-7B", "7b", 0.33, 0.57),
    Case("LLaMA-ReGLU-13B", "13b", 0.28, 0.57),
    Case("LLaMA-ReGLU-70B", "70b", 0.25, 0.63),
]


@dataclass(frozen=True)
class Row:
    model: str
    codec: str
    machine: str
    gigabytes: float
    fits: Literal["gpu", "both", "cpu", "no"]
    hot_share: float | None = None
    gpu_load: float | None = None
    tok_s: float | None = None
    gap: float | None = None
    dense_tok_s: float | None = None
    cpu_tok_s: float | None = None
    solve_s: float | None = None
    greedy_s: float | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into docs/placement.md")
    flags = parser.parse_args()
    rows, flatter = ([solved(one, codec, machine) for machine in MACHINES for codec in CODECS_OF for one in cases]
                     for cases in (CASES, PUBLISHED))  # fmt: skip
    text = {"paper": table(rows), "published": table(flatter), "means": means(rows), "lane": lane_table()}
    print("\n\n".join(text.values()))
    slowest = max(row.solve_s or 0.0 for row in rows)
    slider = max(row.greedy_s or 0.0 for row in rows)
    print(f"\nThe slowest took {slowest:.1f} s of CPU time; the greedy placement of a new budget {slider:.3f} s.")
    if flags.write:
        document = DOCS.read_text(encoding="utf-8")
        for name, lines in text.items():
            head, _, rest = document.partition(f"<!-- {name} -->\n")
            _, end, tail = rest.partition(f"<!-- end of {name} -->")
            document = f"{head}<!-- {name} -->\n{lines}\n{end}{tail}"
        DOCS.write_text(document, encoding="utf-8")
        print(f"Written to {DOCS}.")
    return 0


def solved(case: Case, precision: str, machine_name: str) -> Row:
    """The placement of one model in one codec on one machine."""
    shape, codec = SHAPES[case.shape], CODECS_OF[precision]
    profile = load_profile(machine_name)
    gpu, _ = choose_gpu(profile)
    assert gpu is not None, "the paper's machines have one"
    model = sizes(shape, codec)
    budgets = memory_plan.budgets_of(profile, gpu, None)
    scratch = memory_plan.scratch_bytes(model, CONTEXT)
    on_gpu = memory_plan.gpu_scratch_bytes(model, CONTEXT, gpu, budgets.vram_bytes)
    context = memory_plan.context_bytes(gpu)
    machine = Machine.of(profile, default_threads(profile), gpu)

    def problem_for(mode: Literal["sparse", "dense"], on: Machine) -> Any:
        return build_problem(
            model, activity(case, shape, dense=mode == "dense"), on, mode,
            TokenContext(CONTEXT, POSITION, "f16"), predictors(case, model) if mode == "sparse" else None,
            FixedBytes(context + on_gpu, memory_plan.PROCESS_BYTES + scratch),
        )  # fmt: skip

    started = time.process_time()  # one thread's work, whatever else the machine does
    problem = problem_for("sparse", machine)
    try:
        solution = solve(problem, budgets.vram_bytes, budgets.ram_bytes)
    except HostMemoryError:
        return Row(case.name, precision, machine_name, model.total / 1e9, "no")
    solve_s = time.process_time() - started
    steps = steps_of(problem)
    started = time.process_time()
    place_greedily(problem, budgets.vram_bytes - (1 << 28), budgets.ram_bytes, steps)
    greedy_s = time.process_time() - started
    choice = solution.choice
    assert choice.vram(problem) <= budgets.vram_bytes
    hot = sum(len(problem.hot_neurons(layer, way)) for layer, way in enumerate(choice.ways))
    all_hot = hot == model.n_layers * model.neurons
    dense = problem_for("dense", machine)
    cpu = problem_for("sparse", Machine.of(profile, default_threads(profile), None))
    return Row(
        case.name, precision, machine_name, model.total / 1e9,
        "gpu" if all_hot and choice.head_on_gpu else "both" if choice.uses_gpu(problem) else "cpu",
        hot / (model.n_layers * model.neurons), choice.gpu_load(problem), 1 / solution.seconds, solution.gap,
        1 / solve(dense, budgets.vram_bytes, budgets.ram_bytes).seconds,
        1 / cpu.cpu_alone.seconds(cpu), solve_s, greedy_s,
    )  # fmt: skip


def sizes(shape: Shape, codec: str) -> ModelBytes:
    """Bytes of a model of that shape with every matrix in one codec."""
    config = ModelConfig(
        family=shape.family, n_layers=shape.n_layers, d_model=shape.d_model, d_ff=shape.d_ff, n_heads=shape.n_heads,
        n_kv_heads=shape.n_kv_heads, head_dim=shape.head_dim, vocab_size=shape.vocab_size, max_context=shape.context,
        rope_theta=1e4, norm_eps=1e-5, activation="relu-glu" if shape.gated else "relu",
        tied_embeddings=shape.family == "opt", bos_token_id=None, eos_token_ids=(),
    )  # fmt: skip
    width, kv_width = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    row = CODECS[codec].n_bytes(shape.d_model)
    ones = np.ones(shape.n_layers, np.int64)
    attention = (2 * width + 2 * kv_width) * row + 4 * shape.norms * shape.d_model
    embedding = shape.vocab_size * row + (shape.context * row if shape.family == "opt" else 0)
    codecs = (codec,) * shape.n_layers
    return ModelBytes(
        config, ones * attention, ones * row, ones * (row if shape.gated else 0), ones * row, embedding,
        shape.vocab_size * row, codecs, codecs, codecs, codec, shared=shape.vocab_size * row * (shape.family == "opt"),
    )  # fmt: skip


def activity(case: Case, shape: Shape, dense: bool) -> Activity:
    """Neurons whose hottest share f carries 1 - (1 - f)^a of the activations, the same in every layer."""
    exponent = np.log(0.2) / np.log(1 - case.covered)
    place = (np.arange(shape.d_ff) + 0.5) / shape.d_ff
    of_layer = scaled_to(((1 - place) ** (exponent - 1)).astype(np.float32), case.fired)
    fired = np.tile(of_layer, (shape.n_layers, 1))
    ones = np.ones_like(fired)
    if dense:
        return Activity(ones, ones, ones, ones, "none", case.fired)
    active = np.tile(scaled_to(of_layer, EXPECTED_TO_FIRED * case.fired), (shape.n_layers, 1))
    return Activity(active, np.minimum(fired, active), np.minimum(fired, active), active, "none", case.fired)


def predictors(case: Case, model: ModelBytes) -> PredictorBytes:
    share = PREDICTOR_SHARE.get(case.shape, USUAL_PREDICTOR_SHARE)
    n_bytes = np.full(model.n_layers, int(share * model.total / model.n_layers), np.int64)
    nothing = np.zeros(model.n_layers, np.bool_)
    return PredictorBytes(n_bytes, n_bytes, model.first_codecs, (None,) * model.n_layers, nothing)


def lane_gain(machine_name: str, codec: str, hits: float, core_bytes_per_s: float | None = None) -> float:
    """The share of a token's time that is saved if the GPU reads some of the missed experts over the bus meanwhile.

    Of Qwen3-30B-A3B. hits: share of a token's experts that are on the GPU. For each number of misses in a layer, the
    best division of whole experts counts; a missed expert that the GPU computes needs kernels of its own.
    """
    profile, shape = load_profile(machine_name), EXPERT_SHAPES["qwen3-30b-a3b"]
    gpu, _ = choose_gpu(profile)
    assert gpu is not None, "the machines have one"
    machine, n_used = Machine.of(profile, LANE_THREADS, gpu), shape.n_experts_used
    assert machine.gpu is not None, "as above"
    row = CODECS[codec].n_bytes(shape.d_model)
    arithmetic = LANE_THREADS * (core_bytes_per_s or CORE_BYTES_PER_S[codec])
    alone_rate = min(machine.cpu.gemv(codec), arithmetic)
    beside, bus = min(machine.beside_zero_copy.bytes_per_s, arithmetic), machine.zero_copy.bytes_per_s
    attention = 2 * (shape.n_heads + shape.n_kv_heads) * shape.head_size * row
    alone = together = attention / machine.gpu.gemv(codec) + gpu_layer_s(True, True) + machine.exchange_s
    expert = 3 * shape.d_ff * row
    for missed in range(1, n_used + 1):
        likely = math.comb(n_used, missed) * (1 - hits) ** missed * hits ** (n_used - missed)
        by_cpu = missed * expert / alone_rate
        divided = [
            max(n * expert / bus + gpu_layer_s(False, True), (missed - n) * expert / beside)
            for n in range(1, missed + 1)
        ]
        alone += likely * (by_cpu + cold_layer_s())
        together += likely * (min(by_cpu, *divided) + cold_layer_s())
    return 1 - together / alone


def lane_table() -> str:
    """Markdown: what the GPU's reading of missed experts would save, by codec, machine and hits."""
    cases = [(machine, hits) for machine in LANE_MACHINES for hits in LANE_HITS]
    lines = [f"| codec | {' | '.join(f'{machine}, {hits:.0%} hits' for machine, hits in cases)} |"]
    lines.append("|---" * (1 + len(cases)) + "|")
    for codec in CORE_BYTES_PER_S:
        lines.append(f"| {codec.upper()} | {' | '.join(f'{lane_gain(one, codec, hits):.0%}' for one, hits in cases)} |")
    return "\n".join(lines)


def table(rows: list[Row]) -> str:
    """Markdown: what fits, hot neurons, the GPU's share of the active ones, tokens/s."""
    lines = [
        "| machine | model | weights | fits | hot neurons | active neurons on the GPU | predicted tok/s | every neuron "
        "computed, same budget | CPU alone |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        where = f"| {row.machine} | {row.model} {row.codec} | {row.gigabytes:.1f} GB | "
        if row.fits == "no":
            lines.append(f"{where}no | – | – | – | – | – |")
            continue
        fits = {"gpu": "on the GPU", "both": "GPU and RAM", "cpu": "RAM alone"}[row.fits]
        lines.append(
            f"{where}{fits} | {row.hot_share:.0%} | {row.gpu_load:.0%} | {row.tok_s:.1f} | {row.dense_tok_s:.1f} | "
            f"{row.cpu_tok_s:.1f} |"
        )
    return "\n".join(lines)


def means(rows: list[Row]) -> str:
    """Markdown: the paper's figures beside ours, over the models that fit."""

    def of(machine: str, codec: str) -> list[Row]:
        return [row for row in rows if (row.machine, row.codec) == (machine, codec) and row.tok_s]

    def one(name: str, codec: str, machine: str) -> Row:
        return next(row for row in rows if (row.model, row.codec, row.machine) == (name, codec, machine))

    lines = ["| what | the paper, measured | our prediction |", "|---|---|---|"]
    large = ("OPT-30B", "OPT-66B", "LLaMA-ReGLU-70B", "Falcon-40B")  # beyond the GPU in FP16, all of them
    for codec, mean, peak in (("FP16", 8.32, 16.06), ("INT4", 13.20, 29.08)):
        split = [row.tok_s or 0.0 for row in of("pc-high", codec) if row.fits == "both"]
        larger = [row.tok_s or 0.0 for row in of("pc-high", codec) if row.fits == "both" and row.model in large]
        ours = f"{statistics.mean(split):.2f} tok/s over the {len(split)} that the GPU does not hold"
        ours += f"; {statistics.mean(larger):.2f} over those of 30B to 70B among them"
        lines.append(f"| pc-high {codec}, mean of models | {mean:.2f} tok/s | {ours} |")
        ours = f"{max(split):.2f} tok/s; {max(larger):.2f} of those of 30B to 70B"
        lines.append(f"| pc-high {codec}, peak | {peak:.2f} tok/s | {ours} |")
    big = one("OPT-175B", "INT4", "pc-high")
    lines.append(f"| pc-high OPT-175B INT4 | nearly 2 tok/s | {big.tok_s:.2f} tok/s |")
    loads = [row.gpu_load or 0.0 for row in of("pc-high", "FP16") if row.fits == "both"]
    lines.append("| share of active neurons on the GPU, pc-high | 70 % (llama.cpp: 20 %) | "
                 f"{min(loads):.0%} to {max(loads):.0%} (FP16 models that the GPU does not hold) |")  # fmt: skip
    low = one("OPT-30B", "FP16", "pc-low")
    lines.append(f"| the same of a 60 GB model on 11 GB | 42 % | {low.gpu_load:.0%} (OPT-30B FP16 on pc-low) |"
                 if low.gpu_load is not None else "| a 60 GB model on 11 GB | 42 % | does not fit |")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
