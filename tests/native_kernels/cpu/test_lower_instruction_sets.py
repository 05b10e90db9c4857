"""The kernels on instruction sets below this CPU's best: every day what they compute by code of its own, on one set.

That is the conversion of float16, rounding, products of bytes, tables of 16 bytes, and the size of tiles; `-m slow`
checks all kernels on all sets.
"""

from __future__ import annotations

import pytest
from lower_sets import COMMONEST, LOWER, OTHER_KINDS, run_limited
from support.repetitions import some_daily

PART = """
import attention_cases, operator_checks, product_checks, row_checks
from native_kernels.cpu.products import gemv
row_checks.check_products(("q8_0", "q4_0.lanes"))
product_checks.check_rows("iq4_nl", 5, 96)
product_checks.check_batches("f16")
for name in ("q4_0", "f16"):
    product_checks.check_transposed(name, 45, 288)
operator_checks.check_small_kernels()
attention_cases.check(["f16"], [case for case in attention_cases.CASES if not case.shared])
product_checks.check_rows("q5_0", 5, 96)
# The fifth bits must not be taken apart one by one, which made such rows six to ten times as slow.
plain, fifth = (len(gemv.GEMV[codec].assembly().splitlines()) for codec in ("q4_1", "q5_0"))
assert fifth < 2 * plain, (plain, fifth)
"""
BLOCKS = ["q8_0", "q4_0", "q8_0.lanes", "q4_0.lanes"]
WITH_BYTE_PRODUCTS = {
    "row_checks": BLOCKS,
    "copy_checks": ["copy3", "copy4"],
    "product_checks": [*BLOCKS, "q6_k", "q4_k"],
}
WITHOUT = {
    "row_checks": ["f16", "f32", "bf16"],
    "product_checks": ["f16"],
    "operator_checks": ["f16", "q8_0", "q4_0", "f32"],
    "attention_cases": ["f32", "f16", "q8_0"],
}


@pytest.mark.parametrize("name", some_daily(LOWER, (COMMONEST,)))
def test_what_is_computed_by_code_of_its_own(name: str) -> None:
    run_limited(["-c", PART], name)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LOWER)
@pytest.mark.parametrize("checks", WITH_BYTE_PRODUCTS)
def test_kernels_with_byte_products(name: str, checks: str) -> None:
    run_limited(["-m", checks, *WITH_BYTE_PRODUCTS[checks]], name)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", OTHER_KINDS)
@pytest.mark.parametrize("checks", WITHOUT)
def test_kernels_without_byte_products(name: str, checks: str) -> None:
    run_limited(["-m", checks, *WITHOUT[checks]], name)
