"""What the kernels become on aarch64: verified and compiled by LLVM, not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from native_kernels.cpu.runtime import jit

CROSS = """
import platform, re
platform.machine = lambda: "aarch64"  # before the instruction set is chosen
import llvmlite.binding as binding
from llvmlite import ir
from native_kernels.cpu.runtime import isa, simd
from native_kernels.cpu.attention import attention, kv_store, norms, rope
from native_kernels.cpu.ffn import elementwise, sparse_ffn
from native_kernels.cpu.gemm import gemm_floats, gemm_transposed
from native_kernels.cpu.products import activations, gemv
from unpacked_rows import rows_kernel

KERNELS
assert isa.chosen().name == "generic" and isa.chosen().half
binding.initialize_all_targets()
binding.initialize_all_asmprinters()
triple = "aarch64-unknown-linux-gnu"
machine = binding.Target.from_triple(triple).create_target_machine(cpu="generic", features="+neon")

def compiled(text):
    assert "llvm.x86" not in text
    lines = [line for line in text.splitlines() if not line.startswith(("target triple", "target datalayout"))]
    module = binding.parse_assembly("\\n".join(lines))
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.verify()
    return machine.emit_assembly(module)

kernels = [gemm_floats.pack_floats, gemm_transposed.mark, gemm_transposed.list_marked, gemm_transposed.pack_firing,
           norms._add_and_norm, rope._rope, rope._angles]
multiplying = [elementwise._activation_kernel("silu")]
for codec in ROWS:
    multiplying.append(gemv.GEMV[codec])
for codec in SUMS:
    multiplying.append(sparse_ffn.DOWN[codec])
    kernels += activations.QUANTISE.values()
for codec in HIDDEN:
    multiplying.append(sparse_ffn.hidden_kernel(codec, codec))
for codec in FLOATS:
    multiplying.append(gemm_floats.float_kernel(codec))
for codec in TRANSPOSED:
    multiplying.append(gemm_transposed.transposed_kernel(codec))
    kernels.append(rows_kernel(codec))
for codec in KEPT:
    multiplying.append(attention._kernel(codec, False))
    kernels += [kv_store._store_kernel(codec, False), kv_store._rotate_kernel(codec, False)]
for one in (*kernels, *multiplying):
    assembly = compiled(one.llvm_ir())
    assert one not in multiplying or re.search(r"\\bfmla\\s+v[0-9]", assembly), one.name
    print(one.name)

module = ir.Module("threads")
b = ir.IRBuilder(ir.Function(module, ir.FunctionType(simd.I64, []), "ticks").append_basic_block())
simd.pause.emit(b)
b.ret(simd.clock.emit(b))
assembly = compiled(str(module)).lower()
assert re.search(r"\\bisb\\b", assembly) and re.search(r"mrs\\s+x0, cntvct_el0", assembly), assembly
print("clock")
"""


KINDS = "ROWS, SUMS, HIDDEN, FLOATS, TRANSPOSED, KEPT"
SOME = "['q4_0.lanes'], [], [], ['f16'], [], []"
EVERY_KIND = "[], ['q4_0.lanes'], ['q4_0.lanes'], ['f16'], ['q4_0'], ['q8_0']"
MORE_CODECS = "gemv.GEMV, sparse_ffn.DOWN, ['f16'], ['q4_0', 'bf16'], ['f16', 'q6_k'], ['f16', 'f32']"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "codecs",
    [
        pytest.param(SOME, id="some"),
        pytest.param(EVERY_KIND, id="every kind", marks=pytest.mark.slow),
        pytest.param(MORE_CODECS, id="more codecs", marks=pytest.mark.slow),
    ],
)
def test_kernels_of_prompts_and_attention_compile_for_aarch64(tmp_path: Path, codecs: str) -> None:
    from llvmlite import binding

    try:
        binding.initialize_all_targets()
        binding.Target.from_triple("aarch64-unknown-linux-gnu")
    except (AttributeError, RuntimeError):
        pytest.skip("this LLVM was built without the aarch64 target")
    around = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), str(Path(__file__).parent)]),
        jit.CACHE_VARIABLE: str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", CROSS.replace("KERNELS", f"{KINDS} = {codecs}")],
        env=around,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-1] == "clock"
