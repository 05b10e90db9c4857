"""Attention for the usual caches and products of usual codecs compile, and spill no registers to memory."""

from __future__ import annotations

import re
import time

import pytest
from support.repetitions import slow

from native_kernels.cuda.group_products import defines_of, defines_of_few
from native_kernels.cuda.layouts import COPIES, GPU_CODECS
from native_kernels.cuda.products import defines_of_several
from native_kernels.cuda.runtime.modules import source_of
from native_kernels.cuda.runtime.nvrtc import CompilerUnavailableError, compiler

# Compute capability 7.5 has no 16-wide products; 12.0 is the newest, and takes the most registers.
CASES = [(80, 1, 75), (128, 2, 75), (256, 4, 75), (128, 1, 120), (256, 1, 120), (256, 2, 120), (128, 4, 120),
         (512, 2, 75), (576, 1, 120), (576, 4, 120)]  # fmt: skip
MULTIPLIED = [codec for codec in GPU_CODECS if codec not in COPIES]
DAILY_PRODUCTS = (("q4_k", 90), ("q6_k", 75))
DAILY = ((80, 1, 75), (256, 4, 75), (128, 1, 120), (256, 2, 120), (576, 4, 120))


@pytest.mark.parametrize(
    ("head_dim", "codec_bytes", "architecture"), [one if one in DAILY else slow(*one) for one in CASES]
)
def test_attention_compiles_for_every_cache(head_dim: int, codec_bytes: int, architecture: int) -> None:
    heads = 2 if head_dim > 256 and codec_bytes == 4 else 8
    check_compiled("attention", architecture, {"HEAD_DIM": head_dim, "HEADS": heads, "CODEC": codec_bytes})


@pytest.mark.parametrize(("codec", "architecture"), [("q4_0", 120), ("q6_k", 75), ("q3_k", 120), ("q4_k", 75)])
def test_products_of_groups_compile_for_every_codec(codec: str, architecture: int) -> None:
    check_compiled("group_gemm", architecture, defines_of(codec))


@pytest.mark.parametrize(
    ("codec", "architecture"),
    [(one, architecture) if (one, architecture) in DAILY_PRODUCTS else slow(one, architecture)
     for one in MULTIPLIED for architecture in (75, 90, 120)],
)  # fmt: skip
def test_products_of_several_vectors_compile_for_every_codec(codec: str, architecture: int) -> None:
    """With eight vectors, some codecs keep up to 20 bytes of a thread in memory; it costs less than fewer warps."""
    check_compiled("products_several", architecture, defines_of_several(codec), most_spilled=20)


@pytest.mark.parametrize(
    ("codec", "architecture"),
    [(one, architecture) if (one, architecture) in DAILY_PRODUCTS else slow(one, architecture)
     for one in MULTIPLIED for architecture in (75, 80, 90, 120)],
)  # fmt: skip
def test_products_of_few_rows_compile_for_every_codec(codec: str, architecture: int) -> None:
    check_compiled("few_rows", architecture, defines_of_few(codec), most_spilled=4)  # q4_1 for 120: one register


def check_compiled(name: str, architecture: int, defines: dict[str, int | str], most_spilled: int = 0) -> None:
    try:
        nvrtc = compiler()
    except CompilerUnavailableError as error:
        pytest.skip(str(error))
    if architecture not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc.version} does not know {architecture}")
    source, headers = source_of(name)
    anew = defines | {"COMPILED_ANEW": time.time_ns()}
    log = nvrtc.compile(source, f"{name}.cu", architecture, anew, headers).log
    assert all(int(n) <= most_spilled for n in re.findall(r"(\d+) bytes spill", log)), log
    assert "warning" not in log, log
