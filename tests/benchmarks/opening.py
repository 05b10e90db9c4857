"""What opening a model costs, and loading it to run straight from its file: time and memory for a 40 GB GGUF file.

    python tests/benchmarks/opening.py                  40 GB, shaped like LLaMA 70B with its predictors
    python tests/benchmarks/opening.py --gigabytes 2    a smaller one
    python tests/benchmarks/opening.py --record         and write the figures to tests/benchmarks/results/

The file takes no room on the disk: its header is real, with a vocabulary of 128,256 tokens, and its norms are; its
matrices are a hole. Every run is a fresh process, so the second finds the header in the page cache. Loading is
`LoadedModel.load`, tokenizer and all; a smaller file than the RAM holds unpacked is unpacked.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
N_TOKENS = 128_256
Q4_0, F16, F32 = 2, 1, 0
D_MODEL, D_KV, D_FF, RANK = 8192, 1024, 28_672, 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gigabytes", type=float, default=40)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--loading-child", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child or flags.loading_child:
        print(json.dumps(open_once(flags.child) if flags.child else load_once(flags.loading_child)))
        return 0
    figures = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": f"python tests/benchmarks/opening.py --gigabytes {flags.gigabytes:g} --runs {flags.runs}",
        **measure(flags.gigabytes, flags.runs, load=True),
    }
    print(json.dumps(figures, indent=2))
    if flags.record:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"opening-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(gigabytes: float, runs: int = 3, load: bool = False) -> dict[str, Any]:
    """The figures of the first opening and of the best later one; with `load` those of loading too."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.gguf"
        n_bytes = write_sparse_model(path, round(gigabytes * 1e9))
        results = [_in_a_process("--child", path) for _ in range(runs)]
        loaded = [_in_a_process("--loading-child", path) for _ in range(runs)] if load else []
        on_disk = path.stat().st_blocks * 512 if hasattr(os.stat_result, "st_blocks") else None
    loading = {
        "first_s": round(loaded[0]["load_s"], 3),
        "best_s": round(min(result["load_s"] for result in loaded), 3),
        "resident_growth_bytes": max(result["resident_growth_bytes"] for result in loaded),
        **{key: loaded[0][key] for key in ("hold", "weight_bytes", "weight_bytes_in_ram", "layers", "parts_s")},
    } if loaded else None  # fmt: skip
    return {
        "file_bytes": n_bytes,
        "on_disk_bytes": on_disk,
        "tensors": results[0]["tensors"],
        "first_s": round(results[0]["open_s"], 3),
        "best_s": round(min(result["open_s"] for result in results), 3),
        "resident_growth_bytes": max(result["resident_growth_bytes"] for result in results),
        "load": loading,
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}",
        "hardware": _hardware(),
    }


def _in_a_process(flag: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, flag, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _hardware() -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    from engine.machine.hardware import probe

    profile = probe()
    return {"cpu": profile.cpu.name, "logical_cpus": profile.cpu.threads, "ram_bytes": profile.ram.total_bytes}


def open_once(path: Path) -> dict[str, Any]:
    """Opens the file in this process and looks at the ends of every tensor's view, without touching its bytes."""
    sys.path.insert(0, str(ROOT))
    import psutil

    from engine.formats.gguf import open_gguf

    before = psutil.Process().memory_info().rss
    started = time.perf_counter()
    source = open_gguf(path)
    views = [source.view(name) for name in source.tensors]
    open_s = time.perf_counter() - started
    assert sum(view.nbytes for view in views) > path.stat().st_size / 2
    grown = psutil.Process().memory_info().rss - before
    return {"open_s": open_s, "resident_growth_bytes": grown, "tensors": len(source.tensors)}


def load_once(path: Path) -> dict[str, Any]:
    """Loads the file in this process as the program does, in a mode that runs nothing to choose itself."""
    sys.path.insert(0, str(ROOT))
    import psutil

    from engine.config import EngineConfig
    from engine.loading.opening import read_tokenizer
    from engine.session.loaded_model import LoadedModel

    before = psutil.Process().memory_info().rss
    started = time.perf_counter()
    model = LoadedModel.load(path, EngineConfig(mode="exact", context=512))
    load_s = time.perf_counter() - started
    grown = psutil.Process().memory_info().rss - before
    started = time.perf_counter()
    read_tokenizer(model.opened)
    tokenizer_s = time.perf_counter() - started
    return {
        "load_s": load_s,
        "parts_s": {"tokenizer": round(tokenizer_s, 3)},
        "resident_growth_bytes": grown,
        "hold": model.weights.hold,
        "weight_bytes": model.weights.n_bytes,
        "weight_bytes_in_ram": model.weights.ram_bytes,
        "layers": model.opened.config.n_layers,
    }


def write_sparse_model(path: Path, n_bytes: int) -> int:
    """A PowerInfer file of at least that size with as many layers as it takes; the size of the file back."""
    sys.path.insert(0, str(ROOT))
    sys.path.insert(0, str(ROOT / "tests"))
    from samples.raw_gguf import array, entry, gguf_file, tensor, text, value

    layer = {
        "attn_norm": (F32, (D_MODEL,)),
        "attn_q": (Q4_0, (D_MODEL, D_MODEL)),
        "attn_k": (Q4_0, (D_MODEL, D_KV)),
        "attn_v": (Q4_0, (D_MODEL, D_KV)),
        "attn_output": (Q4_0, (D_MODEL, D_MODEL)),
        "ffn_norm": (F32, (D_MODEL,)),
        "ffn_gate": (Q4_0, (D_MODEL, D_FF)),
        "ffn_up": (Q4_0, (D_MODEL, D_FF)),
        "ffn_down_t": (Q4_0, (D_MODEL, D_FF)),
        "fc1": (F16, (D_MODEL, RANK)),
        "fc2": (F16, (RANK, D_FF)),
    }
    matrix = (Q4_0, (D_MODEL, N_TOKENS))
    plan = [("token_embd.weight", *matrix), ("output.weight", *matrix), ("output_norm.weight", F32, (D_MODEL,))]
    entries, norms, at, i = [], [], 0, 0
    while at < n_bytes:
        for name, kind, dims in plan:
            entries.append(tensor(name, dims, kind, at))
            count = dims[0] * (dims[1] if len(dims) > 1 else 1)
            norms += [at] if kind == F32 else []
            at += {F32: 4 * count, F16: 2 * count, Q4_0: count // 32 * 18}[kind]
        plan = [(f"blk.{i}.{name}.weight", kind, dims) for name, (kind, dims) in layer.items()]
        i += 1
    tokens, merges = _vocabulary()
    shape = {"block_count": i - 1, "context_length": 4096, "embedding_length": D_MODEL, "feed_forward_length": D_FF,
             "attention.head_count": 64, "attention.head_count_kv": 8,
             "attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip
    metadata = (
        value("general.architecture", "llama"),
        *(value(f"llama.{key}", number) for key, number in shape.items()),
        value("tokenizer.ggml.model", "gpt2"),
        value("powerinfer.sparse_threshold", 0.0),
        entry("tokenizer.ggml.tokens", 9, array(8, N_TOKENS, b"".join(map(text, tokens)))),
        entry("tokenizer.ggml.token_type", 9, array(5, N_TOKENS, struct.pack("<i", 1) * N_TOKENS)),
        entry("tokenizer.ggml.merges", 9, array(8, len(merges), b"".join(map(text, merges)))),
    )
    head = gguf_file(metadata, tuple(entries), magic=b"PWRI", data=b"")
    path.write_bytes(head)
    os.truncate(path, len(head) + at)
    with path.open("r+b") as file:
        file.seek(len(head))
        file.write(b"\x00\x3c" + b"\x99" * 16)  # one block of the embedding: ones
        for place in norms:
            file.seek(len(head) + place)
            file.write(struct.pack("<f", 1.0) * D_MODEL)
    return len(head) + at


def _vocabulary() -> tuple[list[str], list[str]]:
    """Bytes, all pairs of them and some triples, as GPT-2 writes them; and every way to merge them."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = [chr(byte) for byte in printed] + [chr(0x100 + n) for n in range(256 - len(printed))]
    pairs = [(a, b) for a in letters for b in letters]
    tokens, merges = letters + [a + b for a, b in pairs], [f"{a} {b}" for a, b in pairs]
    for (a, b), c in itertools.islice(itertools.product(pairs, letters), N_TOKENS - len(tokens)):
        tokens.append(a + b + c)
        merges += [f"{a + b} {c}", f"{a} {b + c}"]
    return tokens, merges


if __name__ == "__main__":
    sys.exit(main())
