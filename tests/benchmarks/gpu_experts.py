"""Decode and prefill of models with experts within several VRAM budgets, against the floor and llama.cpp.

    python tests/benchmarks/gpu_experts.py --shape qwen3-30b-a3b --codec q4_0 --budget cpu --budget 9 --budget all
    python tests/benchmarks/gpu_experts.py --shape gpt-oss-120b --codec mxfp4 --folder /dev/shm --in-memory --budget 24
    python tests/benchmarks/gpu_experts.py --llama-bench llama-bench --ncmoe 48,24,0 --record

The script makes the model (make_model.py) unless the folder has it, and loads it once per budget; `cpu` is no GPU.
Greedy answers follow the text that the model was made with, so that consecutive tokens share experts as published.
The first answer starts with the placement of the load and is recorded, but not part of the medians.

The hit rate is the share of the chosen experts that were on the GPU. The floor is the least time for the bytes of a
token where they are: per layer attention and router, then the experts of both sides at once, with an exchange if both
have some. The RAM's rate is measured with the engine's threads before and after the answers of each budget; the
median of all readings counts. With `cpu` as the first budget, answers of the others are compared with it: the text,
and the RMS difference of the last logits as a share of their standard deviation.

llama-bench reads the same file with as many threads, once per value of --ncmoe; `cpu` hides the GPU from it. A budget
is compared with the fastest of its runs that took no more GPU memory. Its decode feeds random tokens.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from gpu_anchors import found_in_memory  # noqa: E402 - found by the lines above
from make_model import Recipe, make_model  # noqa: E402
from model_shapes import EXPERT_SHAPES, N_SPECIAL  # noqa: E402

from engine.config import EngineConfig  # noqa: E402
from engine.errors import EngineError  # noqa: E402
from engine.evaluation.bench import measured, ram_rate  # noqa: E402
from engine.evaluation.token_bytes import TokenBytes  # noqa: E402
from engine.gpu.token.decode_program import GpuDecodeProgram  # noqa: E402
from engine.machine.graphics import used_bytes  # noqa: E402
from engine.machine.hardware import choose_gpu, default_threads, probe  # noqa: E402
from engine.model.kv_cache import KVCache  # noqa: E402
from engine.placement.cost_model import UNKNOWN_GPU_BYTES_PER_S  # noqa: E402
from engine.session.generate import decode_one_token, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

RESULTS = Path(__file__).parent / "results"
GIB = 2**30
PROMPT_TOKENS = 16  # before an answer
TIMED_TOKENS = 16  # with the GPU's times, which cost time themselves
SETTLING_S = 60.0  # for what is done behind the load
LOOK_S = 0.1  # between two looks at the GPU's memory


@dataclass(frozen=True, eq=False)
class Answer:
    """A greedy answer. missed [L]: choices per token that the CPU computed. logits: after the last token. stages_s:
    the CPU's, of all tokens."""

    tokens: list[int]
    logits: np.ndarray[Any, np.dtype[np.float32]]
    seconds: float
    missed: np.ndarray[Any, np.dtype[np.float64]]
    exchanged: int
    exchange_s: float
    stages_s: dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=EXPERT_SHAPES, default="qwen3-30b-a3b")
    parser.add_argument("--codec", choices=("f16", "q4_0", "q4_k", "q6_k", "q8_0", "mxfp4"), default="q4_0")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "hearth-benchmark-models")
    parser.add_argument("--budget", action="append", metavar="GIB", help="or `cpu` or `all`; may be repeated")
    parser.add_argument("--threads", type=int, help="default: as many as the engine takes by itself")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--gen-tokens", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=2, help="answers, and prompts of each length, that count")
    parser.add_argument("--prefill", type=_numbers, default=(512,), help="tokens of prompts (default: 512)")
    parser.add_argument(
        "--in-memory", action="store_true",
        help="the folder is in memory, as in /dev/shm: what the model takes there counts as free",
    )  # fmt: skip
    parser.add_argument("--llama-bench", type=Path, metavar="PATH", help="also run this program on the file")
    parser.add_argument("--ncmoe", type=_numbers, help="layers whose experts llama.cpp leaves on the CPU; several")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    if max(flags.prefill) > flags.context or PROMPT_TOKENS + flags.gen_tokens + TIMED_TOKENS > flags.context:
        parser.error("the context is too short for these prompts and answers")
    flags.folder.mkdir(parents=True, exist_ok=True)
    path = flags.folder / f"{flags.shape}-{flags.codec}-experts.gguf"
    if not path.exists():
        began = time.perf_counter()
        n_bytes = make_model(path, Recipe(flags.shape, flags.codec))
        print(f"Made {path.name}: {n_bytes / 1e9:.2f} GB in {time.perf_counter() - began:.0f} s", flush=True)
    hardware = probe()
    flags.threads = flags.threads or default_threads(hardware)
    runs: dict[str, dict[str, Any]] = {}
    reference: Answer | None = None
    for budget in flags.budget or ["cpu", "all"]:
        try:
            runs[budget], first = run(flags, path, budget, reference)
        except EngineError as error:
            runs[budget] = {"error": str(error)}
        else:
            reference = first if budget == "cpu" else reference
        if "error" in runs[budget]:
            print(line(budget, runs[budget]), flush=True)
    peers = llama_runs(flags, path, list(runs)) if flags.llama_bench else []
    add_floors(runs, peers)
    for budget, found in runs.items():
        print(line(budget, found))
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/gpu_experts.py", *sys.argv[1:]]),
            "hardware": hardware.to_json(), "file_bytes": path.stat().st_size, "threads": flags.threads,
            "runs": runs, "llama_cpp": peers,
        }  # fmt: skip
        file = RESULTS / f"gpu-experts-{flags.shape}-{flags.codec}-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0 if all("error" not in found for found in runs.values()) else 1


def run(
    flags: argparse.Namespace, path: Path, budget: str, reference: Answer | None
) -> tuple[dict[str, Any], Answer]:  # fmt: skip
    """Return the figures of one load, and its first answer. Raises: EngineError."""
    began = time.perf_counter()
    model = load(flags, path, budget)
    load_s = time.perf_counter() - began
    try:
        model.wait_for_weights(SETTLING_S)
        config = model.opened.config
        rates = [ram_rate(measured(model))]
        first, *answers = [answer(model, flags.gen_tokens, number) for number in range(1 + flags.repeat)]
        prompts = {n: prefill_rates(model, n, flags.repeat) for n in flags.prefill}
        rates.append(ram_rate(measured(model)))
        missed = np.mean([one.missed for one in answers], axis=0)
        moved = bytes_of_token(model, missed, PROMPT_TOKENS + flags.gen_tokens // 2)
        steps = flags.gen_tokens * flags.repeat
        return {
            "decode_tok_s": statistics.median(flags.gen_tokens / one.seconds for one in answers),
            "prefill_tok_s": {str(n): statistics.median(found) for n, found in prompts.items()},
            "answers": [
                {
                    "decode_tok_s": flags.gen_tokens / one.seconds,
                    "hit_rate": hit_rate(one, config.n_experts_used),
                    "exchanged_per_token": one.exchanged / flags.gen_tokens,
                }
                for one in (first, *answers)
            ],
            "hit_rate": statistics.mean(hit_rate(one, config.n_experts_used) for one in answers),
            "exchanged_per_token": sum(one.exchanged for one in answers) / steps,
            "exchange_s_per_token": sum(one.exchange_s for one in answers) / steps,
            "resident_share": resident_share(model),
            "cpu_stages_s": {
                name: sum(one.stages_s.get(name, 0.0) for one in answers) / steps for name in answers[-1].stages_s
            },
            "gpu_stages_s": gpu_stages(model),
            "bytes_per_token": {"gpu": moved.on_gpu, "cpu": moved.in_ram},
            "moved": moved, "dram_bytes_per_s": rates,
            "gpu_bytes_per_s": None if model.gpu is None else model.gpu.bytes_per_s or UNKNOWN_GPU_BYTES_PER_S,
            "vram_bytes": model.vram_bytes, "vram_parts_bytes": None if model.gpu is None else model.gpu.part_bytes,
            "budget_bytes": None if budget in ("cpu", "all") else float(budget) * GIB,
            "load_s": load_s, "device": model.device, "mode": model.mode,
            "same_text_as_cpu": None if reference is None else first.tokens == reference.tokens,
            "logits_off": None if reference is None else difference(first, reference),
        }, first  # fmt: skip
    finally:
        model.close()


def load(flags: argparse.Namespace, path: Path, budget: str) -> LoadedModel:
    """Load the model within a budget. Raises: EngineError."""
    engine = EngineConfig(
        device="cpu" if budget == "cpu" else "cuda", threads=flags.threads, context=flags.context,
        vram_budget_gib=None if budget in ("cpu", "all") else float(budget),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        return LoadedModel.load(path, found_in_memory(engine, path, folder) if flags.in_memory else engine)


def answer(model: LoadedModel, n_tokens: int, number: int) -> Answer:
    """Decode greedily; each number starts elsewhere in the model's text."""
    transformer, cache = model.transformer(), model.new_cache()
    config, decoder = model.opened.config, transformer.decoder
    slots = decoder.slots if isinstance(decoder, GpuDecodeProgram) else None
    logits = prefill(transformer, text(config.vocab_size, PROMPT_TOKENS, number), cache)
    if decoder is not None:
        decoder.measure_stages()
    before = (0, 0.0) if slots is None else (slots.exchanged, slots.exchange_s)
    missed = np.zeros(config.n_layers)
    tokens = []
    began = time.perf_counter()
    for _ in range(n_tokens):
        tokens.append(int(np.argmax(logits)))
        logits = decode_one_token(transformer, tokens[-1], cache)
        if slots is not None:
            missed += slots.missing
    seconds = time.perf_counter() - began
    stages = {} if decoder is None else decoder.stage_seconds()
    missed /= n_tokens
    homes = ["cpu"] * config.n_layers if model.gpu is None else model.gpu.placement.attention
    missed[[home == "cpu" for home in homes]] = config.n_experts_used
    after = before if slots is None else (slots.exchanged, slots.exchange_s)
    return Answer(tokens, logits, seconds, missed, after[0] - before[0], after[1] - before[1], stages)


def prefill_rates(model: LoadedModel, n_tokens: int, repeat: int) -> list[float]:
    """Return tokens/s of prompts; the one before them warms caches."""
    found = []
    cache = model.new_cache()
    for number in range(1 + repeat):
        cache.truncate(0)
        prompt = text(model.opened.config.vocab_size, n_tokens, number)
        began = time.perf_counter()
        prefill(model.transformer(), prompt, cache)
        found.append(n_tokens / (time.perf_counter() - began))
    return found[1:]


def gpu_stages(model: LoadedModel) -> dict[str, float]:
    """Return the GPU's mean seconds by stage; empty without a GPU that can tell."""
    decoder = model.transformer().decoder
    if not isinstance(decoder, GpuDecodeProgram):
        return {}
    cache, sums = model.new_cache(), dict[str, float]()
    for token in text(model.opened.config.vocab_size, TIMED_TOKENS, 0):
        timed = decoder.timed_step(token, cache)
        for name, seconds in ({} if timed is None else timed.gpu_s).items():
            sums[name] = sums.get(name, 0.0) + seconds / TIMED_TOKENS
    return sums


def text(vocab_size: int, n_tokens: int, number: int) -> list[int]:
    """Return consecutive tokens of the text that the model was made with."""
    words = vocab_size - N_SPECIAL
    return [N_SPECIAL + (4001 * number + i) % words for i in range(n_tokens)]


def hit_rate(one: Answer, n_used: int) -> float:
    return 1 - float(one.missed.mean()) / n_used


def resident_share(model: LoadedModel) -> float:
    if model.gpu is None:
        return 0.0
    placement = model.gpu.placement
    return placement.hot_neurons / (placement.n_layers * placement.neurons)


def difference(one: Answer, other: Answer) -> float:
    """Return the RMS difference of the last logits, in standard deviations."""
    return float(np.sqrt(np.mean((one.logits - other.logits) ** 2)) / other.logits.std())


def bytes_of_token(model: LoadedModel, missed: np.ndarray[Any, np.dtype[np.float64]], position: int) -> TokenBytes:
    """Return what a token reads, by where it is. missed [L]: choices that the CPU computes."""
    config, weights = model.opened.config, model.weights
    head_on_gpu = model.gpu is not None and model.gpu.placement.head == "gpu"
    homes = ["cpu"] * config.n_layers if model.gpu is None else model.gpu.placement.attention
    at_home = np.array([home == "gpu" for home in homes])
    kv = KVCache.bytes_for(config, position, model.kv_codec) / config.n_layers
    before, experts = np.zeros(config.n_layers), np.zeros(config.n_layers)
    for i, layer in enumerate(weights.layers):
        matrices = (*layer.qkv, layer.o, layer.router)
        before[i] = kv + sum(one.n_bytes for one in matrices if one is not None)
        block = layer.experts[0]
        experts[i] = sum(one.n_bytes for one in (block.gate, block.up, block.down, block.down_t) if one is not None)
    head = float(weights.head.n_bytes)
    return TokenBytes(
        (np.where(at_home, before, 0.0), np.where(at_home, 0.0, before)),
        ((config.n_experts_used - missed) * experts, missed * experts),
        (head, 0.0) if head_on_gpu else (0.0, head),
        0.0,
    )


def llama_runs(flags: argparse.Namespace, path: Path, budgets: list[str]) -> list[dict[str, Any]]:
    """Return llama-bench's figures for each of --ncmoe, and for the CPU alone if it is among the budgets."""
    layers = flags.ncmoe or tuple(EXPERT_SHAPES[flags.shape].n_layers * share // 4 for share in (4, 3, 2, 1, 0))
    found = [llama_bench(flags, path, None)] if "cpu" in budgets else []
    return found + [llama_bench(flags, path, n) for n in layers]


def llama_bench(flags: argparse.Namespace, path: Path, ncmoe: int | None) -> dict[str, Any]:
    """Run llama-bench once and return its rates and the GPU memory that it took. ncmoe None: without a GPU."""
    command = [str(flags.llama_bench), "-m", str(path), "-t", str(flags.threads), "-r", str(flags.repeat)]
    command += ["-n", str(flags.gen_tokens), "-o", "json", "-p", ",".join(map(str, flags.prefill))]
    environment = dict(os.environ)
    if ncmoe is None:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    else:
        command += ["-ngl", "99", "-fa", "1", "-ncmoe", str(ncmoe)]
    gpu, _ = choose_gpu(probe())
    index = None if gpu is None else gpu.index
    before = peak = used_bytes(index) or 0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, text=True, env=environment)
        try:
            while process.poll() is None:
                peak = max(peak, used_bytes(index) or 0)
                time.sleep(LOOK_S)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        own: dict[str, Any] = {"ncmoe": ncmoe, "command": " ".join(command), "peak_gpu_bytes": peak - before}
        if process.returncode:
            return own | {"error": err.read().strip()[-2000:]}
        tests = json.load(out)
    return own | {
        "decode_tok_s": next(test["avg_ts"] for test in tests if test["n_gen"]),
        "prefill_tok_s": {str(test["n_prompt"]): test["avg_ts"] for test in tests if not test["n_gen"]},
        "build": tests[0].get("build_commit"),
    }


def add_floors(runs: dict[str, dict[str, Any]], peers: list[dict[str, Any]]) -> None:
    """Add each budget's floor at the median of all readings of the RAM, and its ratios to llama.cpp."""
    done = {budget: found for budget, found in runs.items() if "error" not in found}
    if not done:
        return
    dram = statistics.median(rate for found in done.values() for rate in found["dram_bytes_per_s"])
    for budget, found in done.items():
        moved: TokenBytes = found.pop("moved")
        floor = moved.least_s(found["gpu_bytes_per_s"] or UNKNOWN_GPU_BYTES_PER_S, dram)
        found |= {"floor_dram_bytes_per_s": dram, "floor_s": floor, "share_of_floor": floor * found["decode_tok_s"]}
        fitting = [peer for peer in peers if "error" not in peer and _fits(peer, budget, found["budget_bytes"])]
        if not fitting:
            continue
        found["against_llama_cpp"] = {
            "decode": found["decode_tok_s"] / max(peer["decode_tok_s"] for peer in fitting),
            "prefill": {
                n: rate / max(peer["prefill_tok_s"][n] for peer in fitting)
                for n, rate in found["prefill_tok_s"].items()
            },
        }


def _fits(peer: dict[str, Any], budget: str, budget_bytes: float | None) -> bool:
    if budget == "cpu" or peer["ncmoe"] is None:
        return budget == "cpu" and peer["ncmoe"] is None
    return budget_bytes is None or peer["peak_gpu_bytes"] <= budget_bytes


def line(budget: str, found: dict[str, Any]) -> str:
    """Return a budget's figures in words."""
    head = f"{budget:>5}: "
    if "error" in found:
        return f"{head}{found['error']}"
    prompts = ", ".join(f"{rate:.0f} of {n}" for n, rate in found["prefill_tok_s"].items())
    moved = ", ".join(f"{side} {n / 1e9:.3f} GB" for side, n in found["bytes_per_token"].items())
    parts = [
        f"decode {found['decode_tok_s']:.1f} tok/s (first answer {found['answers'][0]['decode_tok_s']:.1f})",
        f"prefill {prompts}",
        f"hits {found['hit_rate']:.1%} with {found['resident_share']:.1%} resident",
        f"{found['exchanged_per_token']:.2f} exchanges a token in {1e3 * found['exchange_s_per_token']:.2f} ms",
        f"{moved} a token, floor {1e3 * found['floor_s']:.2f} ms at {found['floor_dram_bytes_per_s'] / 1e9:.0f} GB/s "
        f"of RAM, share {found['share_of_floor']:.2f}",
        f"VRAM {found['vram_bytes'] / GIB:.2f} GiB" + (f" of {budget}" if found["budget_bytes"] else ""),
    ]
    if found["same_text_as_cpu"] is not None:
        same = "the same text as" if found["same_text_as_cpu"] else "ANOTHER TEXT than"
        parts.append(f"{same} the CPU alone, logits off by {found['logits_off']:.4f}")
    for side in ("cpu", "gpu"):
        stages = found[f"{side}_stages_s"].items()
        parts += [f"{side} ms: " + ", ".join(f"{name} {1e3 * s:.2f}" for name, s in stages)] if stages else []
    if "against_llama_cpp" in found:
        own = found["against_llama_cpp"]
        ratios = ", ".join(f"{ratio:.2f}x of {n}" for n, ratio in own["prefill"].items())
        parts.append(f"against llama.cpp: decode {own['decode']:.2f}x, prefill {ratios}")
    return head + "; ".join(parts)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
