"""Read tensors from PyTorch's files (.pt, .pth, .bin) as NumPy arrays, weights only and without PyTorch.

The files may be hostile: only the names that tensors need are executed in a pickle (pickle_machine.py), and every
storage is checked against the archive (stored_zip.py). Optimizer states, modules and programs are refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.formats import TensorInfo
from engine.formats.mapped import MappedSource, map_file
from engine.formats.pickle_machine import Global, run_pickle
from engine.formats.stored_zip import Entry, zip_entries

Tensor = NDArray[Any]

_MAX_PICKLE_BYTES = 4 << 20
_MAX_DIMENSIONS = 8
_MAX_NESTING = 4
_MAX_NAMES = 1 << 16  # nested dictionaries may repeat: limits the names visited

# NumPy has no bfloat16: read as the upper half of a float32, or as a field of two bytes.
BF16 = np.dtype([("bf16", "<u2")])
_BF16 = "bf16"
_STORAGES = {
    "torch.FloatStorage": "<f4",
    "torch.HalfStorage": "<f2",
    "torch.BFloat16Storage": _BF16,
    "torch.IntStorage": "<i4",
    "torch.LongStorage": "<i8",
    "torch.ByteStorage": "|u1",
    "torch.BoolStorage": "|u1",
}
# Names of stored types as other files have them; numbers of other types are not weights.
_CODECS = {"<f4": "f32", "<f2": "f16", "<i4": "i32", "<i8": "i64", "|u1": "u8"}
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"


def read_torch(path: Path, unpack: bool = True) -> dict[str, Tensor]:
    """Return the file's tensors by name; a single bare tensor has the name "".

    Names of nested dictionaries are joined by dots. Arrays are read-only views of the mapped file, except bfloat16: new
    float32 arrays, or without unpack views with dtype BF16.
    Raises: ModelNotFoundError if it is missing, ModelFormatError if it is damaged, inconsistent or would run code,
    UnsupportedModelError for PyTorch's older format and for programs.
    """
    return _TorchFile(path, unpack).read()


def open_torch(path: Path) -> MappedSource:
    """Open a file of weights without copying any: pytorch_model.bin, or one of its parts.

    Raises: as read_torch, and UnsupportedModelError for a tensor that lies scattered in its storage.
    """
    file = _TorchFile(path, unpack=False)
    found: dict[str, TensorInfo] = {}
    for name, tensor in file.read().items():
        if tensor.size and not tensor.flags.c_contiguous:
            raise UnsupportedModelError(
                f"The tensor {name[:100]} of {path.name} is not contiguous.",
                "Save the model again with PyTorch, with contiguous tensors.",
            )
        codec = "bf16" if tensor.dtype == BF16 else _CODECS[tensor.dtype.str]
        found[name] = TensorInfo(name, tensor.shape, codec, file.offset_of(tensor), tensor.nbytes)
    return MappedSource(path, file.data, found, {})


@dataclass(frozen=True)
class _Storage:
    """A run of numbers in the file: bytes u8 [n_elements * item size] and their type."""

    data: NDArray[np.uint8]
    kind: str
    n_elements: int


class _TorchFile:
    def __init__(self, path: Path, unpack: bool) -> None:
        self._path = path
        self._unpack = unpack
        self._data = map_file(path)
        self._entries: dict[str, Entry] = {}
        self._root = ""
        self._unpacked_bytes = 0
        self._names = 0

    def read(self) -> dict[str, Tensor]:
        self._require_zip()
        self._entries = zip_entries(self._path.name, self._data)
        self._root = self._find_root()
        pickle = self._entries[f"{self._root}/data.pkl"]
        if pickle.n_bytes > _MAX_PICKLE_BYTES:
            self._fail(f"its pickle takes {pickle.n_bytes} bytes; at most {_MAX_PICKLE_BYTES} are accepted")
        code = self._bytes(pickle).tobytes()
        known: dict[str, Callable[..., Any] | None] = dict.fromkeys(_STORAGES)
        known["collections.OrderedDict"] = self._empty_dict
        known["torch._utils._rebuild_tensor_v2"] = self._tensor
        known["torch._utils._rebuild_parameter"] = self._parameter
        value = run_pickle(self._path.name, code, known, self._storage)
        tensors: dict[str, Tensor] = {}
        if isinstance(value, np.ndarray):
            tensors[""] = value
        else:
            self._collect(value, "", tensors, 0)
        return tensors

    @property
    def data(self) -> NDArray[np.uint8]:
        return self._data

    def offset_of(self, tensor: Tensor) -> int:
        """Return where a tensor that `read` returned begins in the file; 0 without numbers."""
        return tensor.ctypes.data - self._data.ctypes.data if tensor.size else 0

    # --- the archive

    def _require_zip(self) -> None:
        head = self._data[:300].tobytes()
        if head.startswith(b"PK\x03\x04"):
            return
        if head.startswith(_LEGACY_MAGIC) or head[257:262] == b"ustar":
            raise UnsupportedModelError(
                f"{self._path.name} is in PyTorch's format from before 1.6: a bare pickle, which Hearth does not run.",
                "Load it with PyTorch where you trust it, and save it again.",
            )
        self._fail(f"it begins with {head[:4]!r}, so it is not a zip archive")

    def _find_root(self) -> str:
        roots = [name.removesuffix("/data.pkl") for name in self._entries if name.endswith("/data.pkl")]
        roots = [root for root in roots if "/" not in root]
        if len(roots) != 1:
            self._fail(f"it holds {len(roots)} pickles of tensors instead of one")
        root = roots[0]
        if f"{root}/constants.pkl" in self._entries or any(name.startswith(f"{root}/code/") for name in self._entries):
            raise UnsupportedModelError(
                f"{self._path.name} is a TorchScript program; Hearth reads plain tensors.",
                "Save the model's state_dict instead.",
            )
        order = self._entries.get(f"{root}/byteorder")
        if order is not None and self._bytes(order)[:16].tobytes() != b"little":
            self._fail("its numbers are not little endian")
        return root

    def _bytes(self, entry: Entry) -> NDArray[np.uint8]:
        return self._data[entry.start : entry.start + entry.n_bytes]

    # --- functions that the pickle may call

    def _empty_dict(self, *arguments: Any) -> dict[Any, Any]:
        if arguments:
            self._fail("its pickle fills a dictionary in a way that PyTorch does not")
        return {}

    def _storage(self, key: Any) -> _Storage:
        """Return the storage of ("storage", type, name of the entry, device, number of elements)."""
        if not isinstance(key, tuple) or len(key) != 5 or key[0] != "storage":
            self._fail("its pickle names something that is not a storage")
        _, kind, name, _, count = key
        if not isinstance(kind, Global) or kind.name not in _STORAGES:
            self._fail("its pickle names a storage without a type")
        if not isinstance(name, str) or type(count) is not int or count < 0:
            self._fail("its pickle names a storage that is none")
        entry = self._entries.get(f"{self._root}/data/{name}")
        if entry is None:
            self._fail(f"it lacks the storage {name[:60]!r}")
        stored = _STORAGES[kind.name]
        n_bytes = count * (2 if stored == _BF16 else np.dtype(stored).itemsize)
        if n_bytes != entry.n_bytes:
            self._fail(f"its storage {name[:60]!r} claims {n_bytes} bytes and has {entry.n_bytes}")
        return _Storage(self._bytes(entry), stored, count)

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
        """Return a tensor over a storage. Arguments after the strides concern training only."""
        if not isinstance(storage, _Storage):
            self._fail("its pickle builds a tensor of no storage")
        shape, strides = self._whole_numbers(shape), self._whole_numbers(strides)
        (offset,) = self._whole_numbers((offset,))
        if len(shape) != len(strides):
            self._fail(f"it has a tensor of {len(shape)} dimensions and {len(strides)} strides")
        n_elements = 1
        for size in shape:
            n_elements *= size
        if n_elements > storage.n_elements:
            self._fail(f"it has a tensor of {n_elements} values over a storage of {storage.n_elements}")
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if last >= storage.n_elements if n_elements else offset > storage.n_elements:
            self._fail(f"it has a tensor that ends {last + 1 - storage.n_elements} values past its storage")
        if storage.kind != _BF16:
            return _strided(storage.data.view(storage.kind), offset, shape, strides)
        if not self._unpack:
            return _strided(storage.data.view("<u2"), offset, shape, strides).view(BF16)
        # Many tensors may share a storage; unpacking all must not take far more memory than the file.
        self._unpacked_bytes += 4 * n_elements
        if self._unpacked_bytes > 4 * len(self._data):
            self._fail("its tensors share their values so often that they would take more than four times its size")
        halves = _strided(storage.data.view("<u2"), offset, shape, strides)
        unpacked = np.empty(shape, np.uint32)
        unpacked[...] = halves
        unpacked <<= 16
        return unpacked.view(np.float32)

    def _parameter(self, tensor: Any, *_: Any) -> Tensor:
        if not isinstance(tensor, np.ndarray):
            self._fail("its pickle makes a parameter of no tensor")
        return tensor

    def _whole_numbers(self, values: Any) -> tuple[int, ...]:
        if not isinstance(values, tuple) or not all(type(value) is int and 0 <= value < 1 << 48 for value in values):
            self._fail("it has a tensor whose place or shape is not a row of whole numbers")
        if len(values) > _MAX_DIMENSIONS:
            self._fail(f"it has a tensor of {len(values)} dimensions; at most {_MAX_DIMENSIONS} are accepted")
        return values

    # --- the result

    def _collect(self, value: Any, prefix: str, tensors: dict[str, Tensor], depth: int) -> None:
        if not isinstance(value, dict) or depth > _MAX_NESTING:
            what = "a deeper nest of dictionaries" if isinstance(value, dict) else f"a {type(value).__name__}"
            self._fail(f"{prefix[:100] or 'its content'} is {what}; expected are tensors by name")
        for key, inner in value.items():
            self._names += 1
            if self._names > _MAX_NAMES or len(name := f"{prefix}.{key}" if prefix else str(key)) > 1 << 12:
                self._fail(f"it names more than {_MAX_NAMES} tensors, or one by more than 4096 letters")
            if not isinstance(inner, np.ndarray):
                self._collect(inner, name, tensors, depth + 1)
            elif name in tensors:
                self._fail(f"two of its tensors are called {name[:100]}")
            else:
                tensors[name] = inner

    def _fail(self, words: str) -> NoReturn:
        raise ModelFormatError(f"{self._path.name} is not a sound PyTorch file: {words}.")


def _strided(values: Tensor, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Return a read-only view, already checked to stay inside `values`."""
    if not all(shape):
        return np.empty(shape, values.dtype)
    contiguous = tuple(itertools.accumulate(shape[:0:-1], lambda a, b: a * b, initial=1))[::-1] if shape else ()
    if strides == contiguous:
        return values[offset : offset + int(np.prod(shape, dtype=np.int64))].reshape(shape)
    view: Tensor = np.lib.stride_tricks.as_strided(
        values[offset:], shape, tuple(stride * values.itemsize for stride in strides), writeable=False
    )
    return view
