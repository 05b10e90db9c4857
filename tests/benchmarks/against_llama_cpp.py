"""Hearth against llama.cpp on one machine in one run: the same weights, the same number of threads, ratios.

    python tests/benchmarks/against_llama_cpp.py                          1B shape, F16 and Q4_0, 10 % active
    python tests/benchmarks/against_llama_cpp.py --shape 7b --codec q4_0 --rounds 0      peak memory alone
    python tests/benchmarks/against_llama_cpp.py --record                 and write tests/benchmarks/results/

The models are made first (make_model.py) and kept in --folder. llama.cpp and Hearth's `dense` read the same file;
`exact` and `sparse` read one of the same shape whose down is neuron-major, which llama.cpp cannot; `--bundle` adds the
same weights as a bundle, which has no predictors. The engines are
processes of their own that take turns sample by sample, each waiting asleep while another computes. In each round a
rate is compared with llama.cpp's of that round; the median of these ratios is given, with quartiles. A sample in which
the engine's threads waited for a processor for more than 2 % of their time is left out, as long as a third remain.

Peak memory: see PeakMemory in bench_sides.py; from the start of the process over loading, 512 tokens of prefill and
some of decode, less the KV cache. llama-cpp-python must be installed, built from source for this CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from make_model import Recipe, make_bundle, make_model
from model_shapes import SHAPES

RESULTS = Path(__file__).parent / "results"
PREFILL_TOKENS = 512
WAITED_SHARE = 0.02
PEER = "llama.cpp"


@dataclass
class Child:
    """An engine at work in its process, and the samples it gave: what -> [(round, tokens/s, waited share)]."""

    name: str
    process: subprocess.Popen[str]
    threads: int
    memory: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[tuple[int, float, float]]] = field(default_factory=dict)

    def ask(self, **order: Any) -> dict[str, Any]:
        entrance, exit_ = self.process.stdin, self.process.stdout
        assert entrance is not None
        assert exit_ is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: the empty answer says so
            entrance.write(json.dumps(order) + "\n")
            entrance.flush()
        line = exit_.readline()
        if not line:
            raise SystemExit(f"{self.name} ended without an answer, exit code {self.process.wait()}.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def sample(self, number: int, what: str, n: int, at: int = 0) -> None:
        answer = self.ask(do=what, n=n, at=at, sample=number)
        waited = answer["waited_s"] / (answer["seconds"] * self.threads)
        self.samples.setdefault(what, []).append((number, n / answer["seconds"], waited))

    def rates(self, what: str) -> dict[int, float]:
        """Round -> tokens/s of the samples that count."""
        taken = self.samples.get(what, [])
        quiet = {number: rate for number, rate, waited in taken if waited <= WAITED_SHARE}
        return quiet if len(quiet) * 3 >= len(taken) else {number: rate for number, rate, _ in taken}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[name for name in SHAPES if not name.startswith("opt")], default="1b")
    parser.add_argument("--codec", choices=("f16", "q4_0", "q8_0"), action="append", help="may be repeated")
    parser.add_argument("--mode", choices=("dense", "exact", "sparse"), action="append", help="may be repeated")
    parser.add_argument("--active", type=float, default=0.1)
    parser.add_argument("--rank", type=int, default=448, help="of the predictors; 448: 10 %% of 1B's FFN")
    parser.add_argument("--threads", type=int, help="on both sides; as many as Hearth takes by itself")
    parser.add_argument("--rounds", type=int, default=15, help="0: peak memory alone")
    parser.add_argument("--sample-tokens", type=int, default=8, help="decoded in one sample")
    parser.add_argument("--at", type=int, default=128, help="tokens in the KV cache when decode begins")
    parser.add_argument("--prefill-rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "hearth-benchmark-models")
    parser.add_argument("--bundle", action="store_true", help="dense and exact also from a bundle")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    if find_spec("llama_cpp") is None:
        print("llama-cpp-python is not installed, so there is nothing to compare with: pip install llama-cpp-python")
        return 1
    from engine.machine.hardware import default_threads, probe

    hardware = probe()
    threads = flags.threads or default_threads(hardware)
    figures: dict[str, Any] = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": " ".join(["python", "tests/benchmarks/against_llama_cpp.py", *sys.argv[1:]]),
        "hardware": {"cpu": hardware.cpu.name, "logical_cpus": os.cpu_count(), "python": platform.python_version()},
        "llama_cpp_python": _version("llama-cpp-python", "llama_cpp"),
        "threads": threads,
        "shape": flags.shape,
        "active": flags.active,
        "rank": flags.rank,
        "codecs": {},
    }
    for codec in flags.codec or ["f16", "q4_0"]:
        figures["codecs"][codec] = compare(flags, codec, threads)
    if flags.record:
        file = RESULTS / f"against-llama-cpp-{flags.shape}-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0


def compare(flags: argparse.Namespace, codec: str, threads: int) -> dict[str, Any]:
    """All engines on one codec; their figures by name."""
    paths = {variant: _model(flags, codec, variant) for variant in ("dense", "powerinfer")}
    context = max(PREFILL_TOKENS, flags.at + flags.sample_tokens)
    children = [_start(PEER, paths["dense"], "", threads, context)]
    try:
        for mode in flags.mode or ["dense", "exact", "sparse"]:
            path = paths["dense" if mode == "dense" else "powerinfer"]
            children.append(_start(f"hearth {mode}", path, mode, threads, context))
            if flags.bundle and mode != "sparse":
                bundle = _bundle(paths["powerinfer"], codec)
                children.append(_start(f"hearth {mode}, bundle", bundle, mode, threads, context))
        for child in children:  # the first time warms caches and is where the memory is watched
            child.ask(do="prefill", n=PREFILL_TOKENS, sample=0)
            child.ask(do="decode", n=flags.sample_tokens, at=flags.at, sample=0)
            child.memory = child.ask(do="memory")
        for number in range(max(flags.rounds, flags.prefill_rounds if flags.rounds else 0)):
            for child in children[number % len(children) :] + children[: number % len(children)]:
                if number < flags.prefill_rounds:
                    child.sample(number, "prefill", PREFILL_TOKENS)
                if number < flags.rounds:
                    child.sample(number, "decode", flags.sample_tokens, flags.at)
    finally:
        for child in children:
            child.process.terminate()
            child.process.wait()
    return report(codec, children)


def report(codec: str, children: list[Child]) -> dict[str, Any]:
    """Prints and returns what was measured."""
    print(f"\n{codec}, {children[0].threads} threads: tokens/s, and as a ratio to {PEER} (quartiles)")
    figures: dict[str, Any] = {}
    for child in children:
        own: dict[str, Any] = {"peak_mb_without_kv_and_files": own_megabytes(child.memory), **child.memory}
        words = []
        for what in ("prefill", "decode"):
            rates, theirs = child.rates(what), children[0].rates(what)
            if not rates:
                continue
            ratios = [rate / theirs[number] for number, rate in rates.items() if number in theirs]
            own[what] = {"tok_s": statistics.median(rates.values()), "samples": len(rates), "ratio": quartiles(ratios)}
            low, middle, high = own[what]["ratio"]
            words.append(f"{what} {own[what]['tok_s']:8.2f} {middle:6.2f}x ({low:.2f}-{high:.2f}, {len(ratios)})")
        own["active_share"] = child.memory.get("active_share")
        figures[child.name] = own
        print(f"{child.name:20} {'   '.join(words)}   {own['peak_mb_without_kv_and_files']:.0f} MB")
    return figures


def own_megabytes(memory: dict[str, Any]) -> float:
    """What is neither of a file nor the KV cache's, which is full by then."""
    return max(0.0, (memory["peak_bytes"] - memory["kv_bytes"]) / 1e6)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile; 0 where there is nothing."""
    if len(values) < 2:
        only = values[0] if values else 0.0
        return only, only, only
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _model(flags: argparse.Namespace, codec: str, variant: Any) -> Path:
    flags.folder.mkdir(parents=True, exist_ok=True)
    of_predictors = f"-r{flags.rank}" if variant == "powerinfer" else ""
    path: Path = flags.folder / f"{flags.shape}-{codec}-{variant}-a{flags.active:g}{of_predictors}.gguf"
    if not path.exists():
        make_model(path, Recipe(flags.shape, codec, variant, active=flags.active, rank=flags.rank))
    return path


def _bundle(gguf: Path, codec: str) -> Path:
    folder = gguf.with_suffix("")
    if not folder.exists():
        make_bundle(gguf, folder, codec)
    return folder


def _start(name: str, path: Path, mode: str, threads: int, context: int) -> Child:
    command = [sys.executable, str(Path(__file__).with_name("bench_sides.py")), name.split()[0], str(path)]
    command += ["--threads", str(threads), "--context", str(context), *(["--mode", mode] if mode else [])]
    pipe = subprocess.PIPE
    return Child(name, subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8"), threads)


def _version(package: str, module: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return str(getattr(__import__(module), "__version__", "unknown"))


if __name__ == "__main__":
    sys.exit(main())
