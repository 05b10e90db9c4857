"""The large products of training on a GPU, through torch; everything else stays on the CPU.

This is not the engine's own GPU path: batches of hundreds of positions are limited by arithmetic and not by transfers,
so moving one product at a time suffices. Weights stay on the GPU as long as they fit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np

from engine.config import Device
from engine.errors import DeviceMemoryError, DeviceUnavailableError
from engine.model.weights import ModelWeights
from engine.training.layer_walk import ModelParts
from native_kernels.backend import F32, Activation, ExpertBatch, Operators, PackedMatrix

SHARE_OF_FREE_VRAM = 0.6  # for weights; the rest is for what goes in and comes out
FEWEST_POSITIONS = 8  # fewer are multiplied faster than they are handed over


def offline_device(wanted: Device) -> str:
    """Return where torch computes: "cuda" if possible and allowed, else "cpu".

    Raises: DeviceUnavailableError if the GPU was requested by name and cannot be used.
    """
    if wanted == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise DeviceUnavailableError("The GPU cannot be used: torch finds none that it can compute on.")
    return "cpu"


def on_device(parts: ModelParts, device: str, most_bytes: int | None = None) -> ModelParts:
    """Return the same model with its large products on the device; unchanged for the CPU.

    most_bytes: of weights on the device; None: SHARE_OF_FREE_VRAM of its free memory.
    """
    if device == "cpu" and most_bytes is None:
        return parts
    if most_bytes is None:
        import torch

        most_bytes = int(SHARE_OF_FREE_VRAM * torch.cuda.mem_get_info()[0])
    return replace(parts, operators=cast(Operators, DeviceProducts(parts.operators, device, most_bytes)))


def fits(weights: ModelWeights, device: str) -> bool:
    """Return whether all weights fit on the device, so that steps of few positions pay too."""
    if device == "cpu":
        return False
    import torch

    elements = sum(
        matrix.n_rows * matrix.n_cols
        for layer in weights.layers
        for block in (layer, *layer.ffns)
        for matrix in vars(block).values()
        if isinstance(matrix, PackedMatrix)
    )
    return bool(4 * elements <= SHARE_OF_FREE_VRAM * torch.cuda.mem_get_info()[0])


class DeviceProducts:
    """Operators whose products of many positions run on a torch device. Inputs and outputs stay in NumPy."""

    def __init__(self, base: Operators, device: str, most_bytes: int) -> None:
        self._base = base
        self._device = device
        self._most_bytes = most_bytes
        self._held: OrderedDict[int, tuple[PackedMatrix, Any]] = OrderedDict()  # the matrix keeps its id its own
        self._held_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)

    def expert_batch(self, activation: Activation, threshold: float, relu_on_up: bool) -> ExpertBatch | None:
        """Return None: the products of experts run on the device one by one."""
        return None

    def matmul(self, x: F32, w: PackedMatrix) -> F32:
        """Multiply x [T, D] by the rows of w [N, D] -> [T, N]."""
        if x.shape[0] < FEWEST_POSITIONS:
            return self._base.matmul(x, w)
        return self._product(x, w, transposed=True)

    def matmul_t(self, h: F32, w: PackedMatrix) -> F32:
        """Return for every token the sum of all rows of w [F, D] weighted by h [T, F] -> [T, D]."""
        if h.shape[0] < FEWEST_POSITIONS:
            return self._base.matmul_t(h, w)
        return self._product(h, w, transposed=False)

    def _product(self, x: F32, w: PackedMatrix, transposed: bool) -> F32:
        import torch

        with torch.no_grad(), _exact_products(), _memory_named():
            weights = self._on_device(w)
            weights = weights if weights.dtype == torch.float32 else weights.float()
            given = torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(self._device)
            out: F32 = (given @ (weights.T if transposed else weights)).cpu().numpy()
            return out

    def _on_device(self, w: PackedMatrix) -> Any:
        """Return the matrix on the device: float32 if it is stored so, else in 16 bits."""
        found = self._held.get(id(w))
        if found is not None:
            self._held.move_to_end(id(w))
            return found[1]
        import torch

        kind = {"f32": torch.float32, "bf16": torch.bfloat16}.get(w.codec, torch.float16)
        n_bytes = w.n_rows * w.n_cols * kind.itemsize
        while self._held and self._held_bytes + n_bytes > self._most_bytes:
            _, (_, oldest) = self._held.popitem(last=False)
            self._held_bytes -= oldest.numel() * oldest.itemsize
        placed = torch.empty((w.n_rows, w.n_cols), dtype=kind, device=self._device)
        step = max(1, (64 << 20) // (4 * w.n_cols))
        for start in range(0, w.n_rows, step):
            values = np.ascontiguousarray(self._numbers(w, slice(start, start + step)))
            placed[start : start + step] = torch.from_numpy(values).to(self._device).to(kind)
        self._held[id(w)] = (w, placed)
        self._held_bytes += n_bytes
        return placed

    def _numbers(self, w: PackedMatrix, rows: slice) -> Any:
        if w.codec in ("f32", "f16"):
            return w.data[rows]
        return self._base.rows(w, np.arange(*rows.indices(w.n_rows), dtype=np.int64))


@contextmanager
def _exact_products() -> Iterator[None]:
    """Compute in full float32: with TF32, other neurons near zero would be active than in the engine."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _memory_named() -> Iterator[None]:
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceMemoryError("The GPU's memory is used up.", "Close other programs, or use --device cpu.") from error
