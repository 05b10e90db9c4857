"""Models run straight from their files: the same numbers as unpacked ones, in the file's codec, without a copy."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
from samples.raw_gguf import make_tiny_powerinfer
from samples.recoded_gguf import recode
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.repetitions import some_daily

from engine.config import EngineConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.errors import Cancelled, HostMemoryError, InvalidRequestError, ModelFormatError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.formats.packed_rows import encode_rows
from engine.job import Job
from engine.model import weights as weights_module
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights, OpenedModel, StoredKernels, load_weights, open_model
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS, quality
from native_kernels.cpu.products.transposed import transposed
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
TOKENS = np.random.default_rng(3).integers(0, 250, 24)


def logits(opened: OpenedModel, weights: ModelWeights, exact: bool = False) -> np.ndarray:
    executor = (ExactExecutor if exact else DenseExecutor)(opened.config, weights, OPS)
    model = Transformer(opened.config, weights, executor, OPS)
    cache = KVCache(opened.config, 64)
    parts = [model.logits(model.forward(part, cache)) for part in np.split(TOKENS, [12, 13, 17])]
    return np.concatenate(parts)


def free_ram(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=n_bytes, available=n_bytes))


UNPACKED = ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "q2_k", "q3_k", "q4_k", "q5_k",
            "q6_k", "iq4_xs"]  # fmt: skip


@pytest.mark.parametrize("codec", some_daily(UNPACKED, ("f32", "f16", "q8_0", "q4_0")))
def test_logits_and_text_are_those_of_the_unpacked_weights(tmp_path: Path, codec: str) -> None:
    width = CODECS[codec].block_size if CODECS[codec].block_size == 256 else 32
    source = make_tiny_gguf(tmp_path / "source.gguf", d_model=width, d_ff=2 * width, tied=False)
    path = recode(source, tmp_path / "m.gguf", codec)
    opened = open_model(path)
    unpacked, mapped = load_weights(opened, hold="f32"), load_weights(opened, hold="mapped")
    assert unpacked.layers[0].down_t is not None
    layer = mapped.layers[0]
    assert {m.codec for m in vars(layer).values() if isinstance(m, PackedMatrix)} == {codec}
    assert layer.down is not None
    assert layer.down_t is None
    wanted = logits(opened, unpacked)
    scale = np.abs(wanted).max()
    for exact in (False, True):
        np.testing.assert_allclose(logits(opened, mapped, exact), wanted, atol=2e-5 * max(1.0, float(scale)))


def test_what_is_copied_is_counted(tmp_path: Path) -> None:
    opened = open_model(make_tiny_gguf(tmp_path / "m.gguf"))
    weights = load_weights(opened, hold="mapped")
    views = {name: value for name, value in vars(weights.layers[0]).items() if isinstance(value, PackedMatrix)}
    copied = {name for name, matrix in views.items() if matrix.data.base is None or matrix.data.flags.writeable}
    assert not copied
    vectors = sum(info.n_bytes for info in opened.source.tensors.values() if info.codec == "f32")
    assert weights.ram_bytes == vectors
    assert weights.n_bytes == sum(opened.codecs.values())
    for name in ("q", "k", "up", "down", "o"):
        foreign = {"up": "ffn_up", "down": "ffn_down", "o": "attn_output"}.get(name, f"attn_{name}")
        assert np.shares_memory(views[name].data, opened.source.view(f"blk.0.{foreign}.weight"))


def test_greedy_text_is_the_same_and_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tiny_gguf(tmp_path / "m.gguf", d_model=64, d_ff=128)
    sampling = SamplingConfig(temperature=0, max_tokens=24)

    def answer() -> tuple[LoadedModel, list[int | None]]:
        model = LoadedModel.load(path, EngineConfig(context=64, backend="reference"))
        return model, [event.token_id for event in ChatSession(model).generate([0, 20, 33, 47], sampling)]

    unpacked, wanted = answer()
    assert "32-bit" in unpacked.weights_reason
    opened = open_model(path)
    need = weights_module.MARGIN_BYTES + KVCache.bytes_for(opened.config, 64)
    free_ram(monkeypatch, need + load_weights(opened, hold="mapped").ram_bytes + path.stat().st_size)
    model, tokens = answer()
    assert tokens == wanted
    assert model.weights.hold == "mapped"
    assert "file" in model.weights_reason
    assert "row-wise" in model.weights_reason


def test_powerinfers_files_leave_out_neurons_in_every_matrix(tmp_path: Path) -> None:
    opened = open_model(make_tiny_powerinfer(tmp_path / "m.gguf"))
    weights = load_weights(opened, hold="mapped")
    assert not opened.down_is_row_wise
    assert not weights.down_is_row_wise
    assert np.shares_memory(weights.layers[0].down_t.data, opened.source.view("blk.0.ffn_down_t.weight"))
    wanted = logits(opened, load_weights(opened, hold="f32"))
    np.testing.assert_allclose(logits(opened, weights, exact=True), wanted, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_safetensors_of_any_place_in_the_file(tmp_path: Path, dtype: str) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m", dtype=dtype))
    weights = load_weights(opened, hold="mapped")
    wanted = logits(opened, load_weights(opened, hold="f32"))
    np.testing.assert_allclose(logits(opened, weights, exact=True), wanted, atol=1e-4)


@pytest.mark.parametrize("codec", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("d_model", [32, 40])  # rows of 40 are not whole blocks of 32
def test_bundles(tmp_path: Path, codec: str, d_model: int) -> None:
    source = make_tiny_model(tmp_path / "m", d_model=d_model)
    opened = open_model(convert(source, tmp_path / "bundle", codec).bundle)
    weights, unpacked = load_weights(opened, hold="mapped"), load_weights(opened, hold="f32")
    matrices = [m for layer in weights.layers for m in vars(layer).values() if isinstance(m, PackedMatrix)]
    assert {m.codec for m in matrices} == {codec if codec == "f16" else f"{codec}.lanes"}
    vectors = sum(v.nbytes for layer in weights.layers for v in vars(layer).values() if isinstance(v, np.ndarray))
    assert weights.ram_bytes == vectors + weights.final_norm.nbytes
    assert weights.layers[0].down_t is not None
    np.testing.assert_allclose(logits(opened, weights, exact=True), logits(opened, unpacked), atol=1e-4)


def test_ways_to_hold_are_held_to_the_memory_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_model(make_tiny_gguf(tmp_path / "m.gguf"))
    with pytest.raises(InvalidRequestError, match="'q8'"):
        load_weights(opened, hold="q8")  # type: ignore[arg-type]
    assert load_weights(opened, hold="f16").hold_reason == "as requested"
    free_ram(monkeypatch, weights_module.MARGIN_BYTES + load_weights(opened, hold="mapped").ram_bytes)
    assert load_weights(opened, hold="mapped").hold == "mapped"
    with pytest.raises(HostMemoryError):
        load_weights(opened, hold="f16")


def test_an_embedding_of_zeros_is_refused(tmp_path: Path) -> None:
    zeros = np.zeros((270, 32), np.float32)
    opened = open_model(make_tiny_model(tmp_path / "m", tensors={"model.embed_tokens.weight": zeros}))
    with pytest.raises(ModelFormatError, match="nothing but zeros"):
        load_weights(opened, hold="mapped")


_CHILD = """
import json, sys
from pathlib import Path
import psutil
from engine.model.weights import load_weights, open_model
opened = open_model(Path(sys.argv[1]))
memory = psutil.Process().memory_info
before = memory().rss
weights = load_weights(opened, hold="mapped")
print(json.dumps({"grown": memory().rss - before, "ram": weights.ram_bytes, "all": weights.n_bytes}))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a file there is only sparse when asked for by name")
def test_loading_a_large_file_costs_no_copy_of_it(tmp_path: Path) -> None:
    """Some 125 MB of weights, nearly all of them a hole in the file."""
    path = make_sparse_gguf(tmp_path / "m.gguf", n_layers=4, d_model=1024, d_ff=8192)
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True, cwd=root
    )
    figures = json.loads(done.stdout)
    assert figures["all"] > 120e6
    assert figures["ram"] < 1e5  # the norms
    assert figures["grown"] < 24e6  # the pages around sampled rows count, too


def make_sparse_gguf(path: Path, n_layers: int, d_model: int, d_ff: int) -> Path:
    """A Q8_0 model of zeros, with ones in norms and in the embedding's first row."""
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (("context_length", 128), ("embedding_length", d_model), ("block_count", n_layers),
                       ("feed_forward_length", d_ff), ("head_count", 8), ("head_count_kv", 8),
                       ("layer_norm_rms_eps", 1e-5), ("vocab_size", 512)):  # fmt: skip
        getattr(writer, f"add_{add}")(value)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (512, d_model), "output_norm": (d_model,)}
    square = (d_model, d_model)
    for i in range(n_layers):
        kinds = {"attn_norm": (d_model,), "ffn_norm": (d_model,), "attn_q": square, "attn_k": square, "attn_v": square,
                 "attn_output": square, "ffn_gate": (d_ff, d_model), "ffn_up": (d_ff, d_model),
                 "ffn_down": (d_model, d_ff)}  # fmt: skip
        shapes |= {f"blk.{i}.{name}": shape for name, shape in kinds.items()}
    for name, shape in shapes.items():
        n = int(np.prod(shape))
        dtype, n_bytes, raw = (np.float32, 4 * n, None) if len(shape) == 1 else (np.int8, n // 32 * 34, 8)
        kind: Any = None if raw is None else gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor_info(f"{name}.weight", shape, np.dtype(dtype), n_bytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    start = -(-writer.fout[0].tell() // 32) * 32
    writer.close()
    with path.open("r+b") as file:
        for name, shape in shapes.items():
            n = int(np.prod(shape))
            file.seek(start)
            if len(shape) == 1:
                file.write(np.ones(n, np.float32).tobytes())
            elif name == "token_embd":
                file.write(b"\x00\x3c" + b"\x01" * 32)
            start += (4 * n if len(shape) == 1 else n // 32 * 34) + 31 & ~31
        file.truncate(start)
    return path


# --- down, copied by neuron


def copying(threads: int = 1) -> StoredKernels:
    return StoredKernels("the kernels multiply it as it is", lambda matrix: transposed(matrix, Pool(threads)))


def make_relu(path: Path, codec: str, d_model: int = 64, d_ff: int = 320) -> OpenedModel:
    source = make_tiny_gguf(path / "source.gguf", d_model=d_model, d_ff=d_ff, tied=False)
    return open_model(recode(source, path / "m.gguf", codec), "relu")


@pytest.mark.parametrize("codec", ["f32", "f16", "bf16"])
def test_copies_by_neuron_keep_numbers_without_blocks(tmp_path: Path, codec: str) -> None:
    opened = make_relu(tmp_path, codec)
    weights, as_it_is = load_weights(opened, kernels=copying()), load_weights(opened, hold="mapped")
    layer = weights.layers[0]
    assert opened.down_is_row_wise
    assert not weights.down_is_row_wise
    assert layer.down_t.codec == codec
    assert np.shares_memory(layer.up.data, opened.source.view("blk.0.ffn_up.weight"))
    rows = OPS.rows(layer.down_t, np.arange(320))
    np.testing.assert_array_equal(rows.T, OPS.rows(as_it_is.layers[0].down, np.arange(64)))
    downs = [layer.down_t for layer in weights.layers]
    assert weights.ram_bytes == as_it_is.ram_bytes + sum(one.n_rows * one.data.strides[0] for one in downs)


@pytest.mark.parametrize("codec", some_daily(["q4_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"], ("q4_0", "q4_k")))
def test_copies_of_blocks_are_the_bundles_rows_and_say_their_error(tmp_path: Path, codec: str) -> None:
    opened = make_relu(tmp_path, codec, 256, 512)
    weights, unpacked = load_weights(opened, kernels=copying(2)), load_weights(opened, hold="f32")
    wanted = [layer.down_t for layer in unpacked.layers]
    for layer, exact in zip(weights.layers, wanted, strict=True):
        np.testing.assert_array_equal(layer.down_t.data, encode_rows("q8_0", exact.data, "down"))
    found = quality(wanted[0].data[:256], CODECS["q8_0"]).relative_rms
    assert 0 < found < 0.01
    assert f"{found:.1%}" in weights.hold_reason
    rounded = [replace(one, down_t=PackedMatrix.pack(OPS.rows(own.down_t, np.arange(512)), "f32"))
               for one, own in zip(unpacked.layers, weights.layers, strict=True)]  # fmt: skip
    same = logits(opened, replace(unpacked, layers=rounded))
    for exact in (False, True):
        np.testing.assert_allclose(
            logits(opened, weights, exact), same, atol=2e-5 * max(1.0, float(np.abs(same).max()))
        )


def test_a_down_without_room_or_of_experts_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = make_relu(tmp_path, "q8_0")
    need = load_weights(opened, kernels=copying()).ram_bytes + weights_module.MARGIN_BYTES
    for free, row_wise in ((need, False), (need - 1, True)):
        free_ram(monkeypatch, free)
        weights = load_weights(opened, kernels=copying())
        assert weights.down_is_row_wise == row_wise
        assert ("copied" in weights.hold_reason) != row_wise


def test_copying_shows_progress_and_can_be_cancelled(tmp_path: Path) -> None:
    opened, seen = make_relu(tmp_path, "q4_0"), []
    load_weights(opened, Job(progress=lambda done, total: seen.append(done)), kernels=copying())
    assert len(seen) == len(opened.plan)
    after = iter([False] * 12 + [True] * len(seen))
    with pytest.raises(Cancelled):
        load_weights(opened, Job(cancelled=lambda: next(after)), kernels=copying())


def test_scales_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    opened = make_relu(tmp_path, "q8_0")
    stored = np.array(opened.source.view("blk.1.ffn_down.weight"))
    stored[:2] = 0xFF, 0x7F
    view = opened.source.view
    opened.source.view = lambda name: stored if name == "blk.1.ffn_down.weight" else view(name)
    with pytest.raises(ModelFormatError, match=r"blk\.1\.ffn_down"):
        load_weights(opened, kernels=copying())
