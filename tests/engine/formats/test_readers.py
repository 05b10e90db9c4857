"""Reading sound files: tensors and metadata come out as they went in, as views into the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from engine.formats.gguf import open_gguf
from engine.formats.safetensors import open_safetensors


def test_safetensors_in_three_codecs(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    upper_halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    parts = {"a": ("F32", values), "b": ("F16", values.astype(np.float16)), "c": ("BF16", upper_halves)}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, stored) in parts.items():
        stop = len(data) + stored.nbytes
        header[name] = {"dtype": dtype, "shape": [2, 3], "data_offsets": [len(data), stop]}
        data += stored.tobytes()
    head = json.dumps(header).encode()
    (tmp_path / "m.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)

    source = open_safetensors(tmp_path / "m.safetensors")
    assert {name: info.codec for name, info in source.tensors.items()} == {"a": "f32", "b": "f16", "c": "bf16"}
    assert source.metadata == {"format": "pt"}
    for name in "abc":
        np.testing.assert_array_equal(source.read_f32(name), values)
    view = source.view("a")
    assert view.base is not None
    assert not view.flags.writeable
    assert view.tobytes() == values.tobytes()


def test_gguf_metadata_and_tensors(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "m.gguf"
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    wanted = {
        "x.u8": 255, "x.i8": -128, "x.u16": 65535, "x.i16": -5, "x.u32": 2**32 - 1, "x.i32": -(2**31),
        "x.u64": 2**64 - 1, "x.i64": -(2**63), "x.f32": 0.5, "x.f64": 0.1, "x.yes": True, "x.no": False,
        "x.text": "grüß dich", "x.texts": ["a", "", "ü"], "x.numbers": [1, -2, 3], "x.flags": [True, False],
        "x.reals": [0.5, -1.5],
    }  # fmt: skip
    kinds = {"u8": "UINT8", "i8": "INT8", "u16": "UINT16", "i16": "INT16", "u32": "UINT32", "i32": "INT32",
             "u64": "UINT64", "i64": "INT64", "f32": "FLOAT32", "f64": "FLOAT64", "yes": "BOOL", "no": "BOOL",
             "text": "STRING"}  # fmt: skip
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    for key, value in wanted.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, gguf.GGUFValueType[kinds[key.removeprefix("x.")]])
    writer.add_tensor("plain", values)
    writer.add_tensor("half", values.astype(np.float16))
    for name in ("bf16", "q8_0"):
        kind = gguf.GGMLQuantizationType[name.upper()]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    source = open_gguf(path)
    assert {key: source.metadata[key] for key in wanted} == wanted
    assert {type(source.metadata[key]) for key in ("x.yes", "x.no")} == {bool}
    assert {name: (info.shape, info.codec, info.offset % 64) for name, info in source.tensors.items()} == {
        "plain": ((2, 32), "f32", 0),
        "half": ((2, 32), "f16", 0),
        "bf16": ((2, 32), "bf16", 0),
        "q8_0": ((2, 32), "q8_0", 0),
    }
    for name in source.tensors:
        np.testing.assert_allclose(source.read_f32(name), values, rtol=0.01, atol=0.3)
    np.testing.assert_array_equal(source.read_f32("plain"), values)
    assert not source.view("plain").flags.writeable
