"""Products of many tokens on one thread: their share of the CPU's peak, and their rate beside llama.cpp's.

    python tests/benchmarks/cpu_gemm.py                        shares of the peak, at 2 to 512 tokens
    python tests/benchmarks/cpu_gemm.py --llama PYTHON --model FILE.gguf
                                                               and 512 tokens through all matrices of a model, beside
                                                               llama.cpp's prefill of it (llama-cpp-python in PYTHON)
    ... --record                                               write the figures to tests/benchmarks/results/

The peak is that of independent multiply-adds in registers: of floats, of bytes where the product is one of bytes, or of
tiles of bfloat16, several of which make a product of numbers in two parts. It is sampled before each product. Times are
of the thread's CPU time, so that what other processes take does not count; figures are medians, with the best
tenth beside them. llama.cpp's figure is its whole prefill (attention, norms and all, CPU time of its process);
ours is the sum of the matrix products, quantising and packing of the tokens.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
SHAPES = [(5632, 2048), (2048, 5632)]
TOKENS = (2, 4, 8, 16, 32, 128, 512)
CODECS = ("f16", "bf16", "f32", "q4_0", "q8_0", "q4_k", "q6_k")
ROUNDS = 15
PREFILL = 512

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

LLAMA = """
import sys, time
import llama_cpp as lib
path, count, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lib.llama_backend_init()
model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
wanted = lib.llama_context_default_params()
wanted.n_ctx, wanted.n_batch, wanted.n_ubatch, wanted.n_threads, wanted.n_threads_batch = 2 * count, count, count, 1, 1
context = lib.llama_init_from_model(model, wanted)
tokens = (lib.llama_token * count)(*[i * 37 % 30000 + 100 for i in range(count)])
for _ in range(rounds):
    lib.llama_memory_clear(lib.llama_get_memory(context), True)
    start = time.process_time()
    assert lib.llama_decode(context, lib.llama_batch_get_one(tokens, count)) == 0
    lib.llama_synchronize(context)
    print(time.process_time() - start, flush=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--llama", metavar="PYTHON", help="an interpreter that imports llama_cpp")
    parser.add_argument("--model", metavar="FILE", action="append", default=[], help="a GGUF, may be given repeatedly")
    parser.add_argument("--codecs", default=",".join(CODECS), help="comma-separated; empty: no shares of the peak")
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)), help="comma-separated")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    from engine.machine.hardware import probe
    from native_kernels.cpu.runtime import isa

    print(f"{isa.chosen().name}; one thread; CPU time")
    counts = [int(count) for count in flags.tokens.split(",")]
    rows = [row for codec in flags.codecs.split(",") if codec for row in shares(codec, counts)]
    models = [beside_llama(flags.llama, Path(model)) for model in flags.model]
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": "python tests/benchmarks/cpu_gemm.py --llama PYTHON --model FILE.gguf --record",
            "hardware": {
                "cpu": probe().cpu.name,
                "logical_cpus": os.cpu_count(),
                "python": platform.python_version(),
                "instruction_set": isa.chosen().name,
            },
            "products": rows,
            "prefill": models,
        }
        file = RESULTS / f"cpu-gemm-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def shares(codec: str, counts: list[int]) -> list[dict[str, Any]]:
    """The products of one codec, shape by shape."""
    import gemm_peaks
    from samples import random_blocks

    from native_kernels.backend import PackedMatrix
    from native_kernels.cpu.gemm import gemm, gemm_amx
    from native_kernels.cpu.runtime import call

    rows = []
    for n_rows, n_cols in SHAPES:
        data = np.tile(random_blocks.weights(codec, 64, n_cols), (n_rows // 64, 1))
        w = PackedMatrix.view(data, n_rows, n_cols, codec)
        for n_tokens in counts:
            form = gemm.form_of(codec, n_tokens)
            peak, products = gemm_peaks.peak_call(form, 100_000 if form.endswith("tiles") else 1_000_000)
            if form.endswith("tiles"):
                products //= gemm_amx.partial_products(codec)
            x, out = call.aligned_empty((n_tokens, n_cols)), call.aligned_empty((n_tokens, n_rows))
            x[:] = np.random.default_rng(1).standard_normal(x.shape)
            tokens, panels = np.array([n_tokens]), gemm.Panels.make(n_tokens, n_cols, form)
            scratch = gemm.Scratch.make(1)
            pack = gemm.pack_calls(x, tokens, panels)
            product = gemm.matmul_calls(panels, w, tokens, out, scratch)
            work = n_tokens * n_rows * n_cols
            call.run([peak, *pack, *product])
            samples = [
                (seconds(lambda peak=peak: call.run([peak])) / products, seconds(lambda p=pack: call.run(p)),
                 seconds(lambda p=product: call.run(p)))
                for _ in range(ROUNDS)
            ]  # fmt: skip
            rates = sorted(work / taken / 1e9 for _, _, taken in samples)
            row = {
                "codec": codec, "tokens": n_tokens, "shape": [n_rows, n_cols], "form": form,
                "gmac_s": statistics.median(rates), "gmac_s_best_tenth": rates[-max(1, ROUNDS // 10)],
                "share_of_peak": statistics.median(work * one / taken for one, _, taken in samples),
                "peak_gmac_s": statistics.median(1e-9 / one for one, _, _ in samples),
                "packing_ms": statistics.median(packing for _, packing, _ in samples) * 1e3,
                "weights_gb_s": data.nbytes * statistics.median(rates) * 1e9 / work / 1e9,
            }  # fmt: skip
            rows.append(row)
            print(
                f"{codec:6} {n_rows:5} x {n_cols:5} {n_tokens:4} tokens  {row['gmac_s']:6.1f} GMAC/s "
                f"(best {row['gmac_s_best_tenth']:6.1f})  {row['share_of_peak']:5.2f} of the peak "
                f"{row['peak_gmac_s']:5.0f} of {form}  weights {row['weights_gb_s']:5.1f} "
                f"GB/s  packing {row['packing_ms']:.2f} ms",
                flush=True,
            )
    return rows


def beside_llama(python: str | None, path: Path) -> dict[str, Any]:
    """512 tokens through every matrix of the model's layers, in turn with llama.cpp's prefill."""
    from engine.formats.gguf import open_gguf
    from native_kernels.backend import PackedMatrix
    from native_kernels.cpu.gemm import gemm
    from native_kernels.cpu.runtime import call

    source = open_gguf(path)
    matrices = []
    for name, info in source.tensors.items():
        if name.startswith("blk.") and len(info.shape) == 2:
            matrices.append(PackedMatrix.view(source.view(name), info.shape[0], info.shape[1], info.codec))
    tokens, scratch = np.array([PREFILL]), gemm.Scratch.make(1)
    inputs: dict[tuple[int, gemm.Form], Any] = {}
    calls = []
    widest = max(w.n_rows for w in matrices)
    flat = call.aligned_empty(PREFILL * widest)
    for w in matrices:
        key = (w.n_cols, gemm.form_of(w.codec, PREFILL))
        if key not in inputs:
            x = call.aligned_empty((PREFILL, w.n_cols))
            x[:] = np.random.default_rng(1).standard_normal(x.shape)
            inputs[key] = (x, gemm.Panels.make(PREFILL, *key))
        x, panels = inputs[key]
        out = flat[: PREFILL * w.n_rows].reshape(PREFILL, w.n_rows)
        calls += gemm.pack_calls(x, tokens, panels)  # more often than needed: q, k and v share one
        calls += gemm.matmul_calls(panels, w, tokens, out, scratch)
    call.run(calls)
    ours = [PREFILL / seconds(lambda: call.run(calls)) for _ in range(3)]
    theirs = []
    if python:
        command = [python, "-c", LLAMA, str(path), str(PREFILL), "4"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        theirs = [PREFILL / float(line) for line in done.stdout.split()][1:]
    ours += [PREFILL / seconds(lambda: call.run(calls)) for _ in range(3)]
    row = {"model": path.name, "tokens_s": statistics.median(ours), "llama_tokens_s": None, "ratio": None}
    print(f"{path.name}: matrix products {row['tokens_s']:.1f} tokens/s", end="")
    if theirs:
        row["llama_tokens_s"] = statistics.median(theirs)
        row["ratio"] = row["tokens_s"] / row["llama_tokens_s"]
        print(f", llama.cpp's prefill {row['llama_tokens_s']:.1f}: {row['ratio']:.2f}", end="")
    print()
    return row


if __name__ == "__main__":
    raise SystemExit(main())
