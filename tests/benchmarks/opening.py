"""What opening a model costs: time and memory for a 40 GB GGUF file, which takes no room on the disk.

    python tests/benchmarks/opening.py                  40 GB, shaped like LLaMA 70B with its predictors
    python tests/benchmarks/opening.py --gigabytes 2    a smaller one
    python tests/benchmarks/opening.py --record         and write the figures to tests/benchmarks/results/

The file's header is real, with a vocabulary of 128,256 tokens; its tensors are a hole. Every run is a fresh process, so
the second finds the header in the page cache.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
N_TOKENS, N_MERGES = 128_256, 280_147
Q4_0, F16, F32 = 2, 1, 0
D_MODEL, D_KV, D_FF, RANK = 8192, 1024, 28_672, 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gigabytes", type=float, default=40)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        print(json.dumps(open_once(flags.child)))
        return 0
    figures = measure(flags.gigabytes, flags.runs)
    print(json.dumps(figures, indent=2))
    if flags.record:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"opening-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(gigabytes: float, runs: int = 3) -> dict[str, Any]:
    """The figures of the first opening and of the best later one."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.gguf"
        n_bytes = write_sparse_model(path, round(gigabytes * 1e9))
        command = [sys.executable, __file__, "--child", str(path)]
        results = []
        for _ in range(runs):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results.append(json.loads(done.stdout))
        on_disk = path.stat().st_blocks * 512 if hasattr(os.stat_result, "st_blocks") else None
    return {
        "file_bytes": n_bytes,
        "on_disk_bytes": on_disk,
        "tensors": results[0]["tensors"],
        "first_s": round(results[0]["open_s"], 3),
        "best_s": round(min(result["open_s"] for result in results), 3),
        "resident_growth_bytes": max(result["resident_growth_bytes"] for result in results),
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}",
    }


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


def write_sparse_model(path: Path, n_bytes: int) -> int:
    """A PowerInfer file of at least that size with as many layers as it takes; the size of the file back."""
    sys.path.insert(0, str(ROOT))
    sys.path.insert(0, str(ROOT / "tests"))
    from raw_gguf import array, entry, gguf_file, tensor, text, value

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
    plan = [("token_embd.weight", Q4_0, (D_MODEL, N_TOKENS)), ("output.weight", Q4_0, (D_MODEL, N_TOKENS))]
    entries, at, i = [], 0, 0
    while at < n_bytes:
        for name, kind, dims in plan:
            entries.append(tensor(name, dims, kind, at))
            count = dims[0] * (dims[1] if len(dims) > 1 else 1)
            at += {F32: 4 * count, F16: 2 * count, Q4_0: count // 32 * 18}[kind]
        plan = [(f"blk.{i}.{name}.weight", kind, dims) for name, (kind, dims) in layer.items()]
        i += 1
    tokens = b"".join(text(f"Ġtoken{number}") for number in range(N_TOKENS))
    merges = b"".join(text(f"Ġa{number} b{number}") for number in range(N_MERGES))
    metadata = (
        value("general.architecture", "llama"),
        value("powerinfer.sparse_threshold", 0.0),
        entry("tokenizer.ggml.tokens", 9, array(8, N_TOKENS, tokens)),
        entry("tokenizer.ggml.token_type", 9, array(5, N_TOKENS, bytes(4 * N_TOKENS))),
        entry("tokenizer.ggml.merges", 9, array(8, N_MERGES, merges)),
    )
    head = gguf_file(metadata, tuple(entries), magic=b"PWRI", data=b"")
    path.write_bytes(head)
    os.truncate(path, len(head) + at)
    return len(head) + at


if __name__ == "__main__":
    sys.exit(main())
