"""Writes a GGUF file again with its matrices in another codec, for tests; names and metadata stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from native_kernels.codecs import CODECS


def recode(source: Path, path: Path, codec: str, metadata: dict[str, str | int] | None = None) -> Path:
    """`path`, with every matrix but routers in `codec`; where nothing writes that, of random blocks.

    metadata: texts and numbers to add.
    """
    import gguf

    reader, rng = gguf.GGUFReader(source), np.random.default_rng(1)
    kind = gguf.GGMLQuantizationType[codec.upper()]
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, entry in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, entry.contents(), entry.types[0], *entry.types[1:2])
    for name, value in (metadata or {}).items():
        if isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_uint32(name, value)
    for tensor in reader.tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        if len(shape) == 1 or "ffn_gate_inp" in tensor.name:  # routers stay as they are in llama.cpp, too
            writer.add_tensor(tensor.name, np.array(tensor.data))
        elif CODECS[codec].can_encode:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, _random_blocks(codec, shape, rng), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _random_blocks(codec: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """u8 [rows, row bytes]: of many random blocks those that decode to numbers of an ordinary size."""
    block = CODECS[codec]
    n_blocks = shape[0] * shape[1] // block.block_size
    candidates = rng.integers(0, 256, (64 * n_blocks + 4096, block.type_size), np.uint8)
    sizes = np.abs(block.decode(candidates)).max(axis=1)
    fit = candidates[(sizes > 1e-3) & (sizes < 1.0)]
    return fit[rng.integers(0, len(fit), n_blocks)].reshape(shape[0], -1)
