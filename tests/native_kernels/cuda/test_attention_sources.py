"""Attention is compiled for the cache at hand: every usual one compiles, and none spills its registers to memory."""

from __future__ import annotations

import re
import time

import pytest

from native_kernels.cuda.runtime.modules import source_of
from native_kernels.cuda.runtime.nvrtc import CompilerUnavailableError, compiler

# Compute capability 7.5 has no 16-wide products; 12.0 is the newest, and takes the most registers.
CASES = [(80, 1, 75), (128, 2, 75), (256, 4, 75), (128, 1, 120), (256, 1, 120), (256, 2, 120), (128, 4, 120),
         (512, 2, 75), (576, 1, 120), (576, 4, 120)]  # fmt: skip


@pytest.mark.parametrize(("head_dim", "codec_bytes", "architecture"), CASES)
def test_attention_compiles_for_every_cache(head_dim: int, codec_bytes: int, architecture: int) -> None:
    try:
        nvrtc = compiler()
    except CompilerUnavailableError as error:
        pytest.skip(str(error))
    if architecture not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc.version} does not know {architecture}")
    source, headers = source_of("attention")
    defines = {
        "HEAD_DIM": head_dim,
        "HEADS": 2 if head_dim > 256 and codec_bytes == 4 else 8,
        "CODEC": codec_bytes,
        "COMPILED_ANEW": time.time_ns(),
    }
    log = nvrtc.compile(source, "attention.cu", architecture, defines, headers).log
    assert not any(int(n) for n in re.findall(r"(\d+) bytes spill", log)), log
    assert "warning" not in log, log
