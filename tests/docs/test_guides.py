"""The guides for adding a family, a codec and a kernel do what they say: their code is taken from the page and run.

What compiles kernels or needs transformers is marked slow; that the pages' code can be read is not.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from samples import random_blocks
from support.documented import ROOT, blocks

from engine.model import families
from native_kernels.codecs import Codec
from native_kernels.cuda.runtime.modules import source_of
from native_kernels.cuda.runtime.nvrtc import CompilerUnavailableError, compiler

FAMILY, CODEC, KERNEL = (ROOT / "docs" / f"adding-a-{what}.md" for what in ("family", "codec", "kernel"))

# Each in a process of its own with a kernel cache of its own: the page's code is none of the kernels' sources, whose
# hash says whether machine code that was kept is still right.
ROWS_OF_THE_CODEC = """
from typing import Any
import numpy as np
from native_kernels import codecs
{read}
for names in (codecs.CODECS, codecs.ROW_CODECS):
    names["tq2_0"] = TQ2_0
{multiply}
from native_kernels.cpu.blocks import k_quant_blocks
k_quant_blocks.BLOCKS["tq2_0"] = READ_TQ2_0
from samples import random_blocks
random_blocks.HALVES["tq2_0"] = (64,)
from product_checks import check_gemv, check_rows
for n_rows, n_blocks in ((1, 1), (3, 2), (33, 3)):
    check_gemv("tq2_0", n_rows, 256 * n_blocks)
check_rows("tq2_0", 9, 1280)
print("held")
"""
NUMBERS_BOUNDED = """
import numpy as np
from native_kernels.backend import F32
{specification}
{kernel}
from native_kernels.cpu.runtime.call import run
for n in (1, 15, 16, 257, 4099):
    for n_workers in (1, 3):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        x[::7], x[3::11] = np.nan, np.inf
        out = np.zeros(n + 1, np.float32)
        run(clamp_calls(x, out[:n], 0.5), n_workers)
        np.testing.assert_array_equal(out[:n], clamp(x, 0.5))
        assert out[n] == 0
print("held")
"""


def code_of(page: Path, language: str = "python") -> list[str]:
    return [block.text for block in blocks(page) if block.language == language]


@pytest.mark.parametrize("page", [FAMILY, CODEC, KERNEL], ids=lambda page: page.stem)
def test_the_code_can_be_read(page: Path) -> None:
    found = code_of(page)
    assert len(found) >= 2
    for text in found:
        ast.parse(text)


def test_the_codec_is_the_format_bit_by_bit() -> None:
    names: dict[str, Any] = {"np": np}
    exec(code_of(CODEC)[0], names)
    codec: Codec = names["TQ2_0"]
    kind = gguf.GGMLQuantizationType.TQ2_0
    assert gguf.GGML_QUANT_SIZES[kind] == (codec.block_size, codec.type_size)
    data = random_blocks.any_bytes(codec, 37, 5)
    data.reshape(-1, codec.type_size)[:, 64:] = np.linspace(-2, 2, 37 * 5, dtype="<f2").view(np.uint8).reshape(-1, 2)
    np.testing.assert_array_equal(codec.decode(data), gguf.quants.dequantize(data, kind))


def test_the_kernel_for_the_card_compiles_for_the_oldest_and_the_newest() -> None:
    try:
        nvrtc = compiler()
    except CompilerUnavailableError as error:
        pytest.skip(str(error))
    (source,) = code_of(KERNEL, "cuda")
    _, headers = source_of("probe")
    for architecture in (75, 120):
        if architecture in nvrtc.architectures():
            assert b"clamp" in nvrtc.compile(source, "clamp.cu", architecture, {}, headers).code


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(lambda: ROWS_OF_THE_CODEC.format(read=code_of(CODEC)[0], multiply=code_of(CODEC)[1]), id="codec"),
        pytest.param(
            lambda: NUMBERS_BOUNDED.format(specification=code_of(KERNEL)[0], kernel=code_of(KERNEL)[1]), id="kernel"
        ),
    ],
)
def test_kernels_for_the_processor_hold_to_their_specification(script: Any, tmp_path: Path) -> None:
    file = tmp_path / "followed.py"
    file.write_text(script(), encoding="utf-8")
    paths = [ROOT, ROOT / "tests", ROOT / "tests" / "native_kernels" / "cpu"]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HEARTH_KERNELS_CACHE": str(tmp_path / "kernels")}
    done = subprocess.run(
        [sys.executable, str(file)], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["starcoder2", "starcoder2-window"])
def test_the_family_equals_transformers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.executor.dense import DenseExecutor
    from engine.model.kv_cache import KVCache
    from engine.model.transformer import Transformer
    from engine.model.weights import load_weights, open_model
    from native_kernels.reference import ReferenceOperators
    from tests.engine.families import family_models

    page: dict[str, Any] = {}
    exec(code_of(FAMILY)[0].replace("from __future__ import annotations\n", ""), page)
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, page["STARCODER2"]))
    cases: dict[str, Any] = {"Case": family_models.Case}
    exec(code_of(FAMILY)[1], cases)
    monkeypatch.setitem(family_models.CASES, name, cases["CASES"][name])
    reference = family_models.make_reference(name, tmp_path)
    opened = open_model(tmp_path)
    weights, operators = load_weights(opened), ReferenceOperators()
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, operators), operators)
    found = model.logits(model.forward(reference.tokens, KVCache(opened.config, family_models.CONTEXT)))
    assert np.abs(found - reference.logits).max() < 2e-4
