"""Runs every family of the GPU's kernels under NVIDIA's compute-sanitizer: wrong addresses, races, memory never set.

    python tests/benchmarks/gpu_sanitizer.py
    python tests/benchmarks/gpu_sanitizer.py --tool memcheck --tests tests/native_kernels/cuda/test_token_ops.py

What runs is what the engine tries a GPU out with (kernel_checks.py), then a small model with experts that move after
every token, some seconds a tool, and in place of them the tests that were named, which takes minutes.
compute-sanitizer comes with CUDA's toolkit.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND = 77  # the exit code for what the tool finds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, action="append", help="may be repeated (default: all)")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--under-tool", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.under_tool:
        return computes_right()
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", "/usr/local/cuda/bin")
    if sanitizer is None:
        print("compute-sanitizer is not installed; it comes with CUDA's toolkit.")
        return 1
    inner = [sys.executable, str(Path(__file__)), "--under-tool"]
    if flags.tests:
        inner = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *flags.tests]
    worst = 0
    for tool in flags.tool or TOOLS:
        print(f"== {tool}", flush=True)
        command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), *inner]
        worst = max(worst, subprocess.run(command, cwd=ROOT, check=False).returncode)
    return worst


def computes_right() -> int:
    """The trial itself, and experts that move; prints what is wrong."""
    from support.exchanges import wrong_with_exchanges

    from engine.gpu.trial.kernel_checks import failures_of
    from native_kernels.cuda.cuda_gpu import CudaGpu
    from native_kernels.cuda.runtime.driver import Device

    gpu = CudaGpu(Device(0))
    try:
        wrong = [*failures_of(gpu), *wrong_with_exchanges(gpu)]
    finally:
        gpu.close()
    print("\n".join(wrong) or "All kernels compute what NumPy does.")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
