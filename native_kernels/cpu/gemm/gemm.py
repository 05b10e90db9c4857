"""Matrix products of 2 to hundreds of tokens: x [T, D] times the rows of w [N, D], and h [T, F] times w [F, D].

Four forms. *Floats*: chunks of rows are decoded to float32 once, and tiles of them are multiplied by the tokens, which
are interleaved in panels. *Dots*, of a few tokens and of experts in floats: the same along the columns. *Bytes*, if the
CPU multiplies bytes (VNNI) and rows hold blocks of quants: the tokens are quantised to bytes in groups of 32 columns,
as in decode, and quants of many rows are interleaved, so that a register works for as many rows as it has lanes.
*Tiles*, if the CPU has them (AMX) and there are many tokens: rows and tokens are rounded to bfloat16, or split into two
of them. Weights are decoded tile by tile, never whole.

Separate calls prepare the tokens once for all matrices that read them (`Panels`). The number of tokens is read when the
calls run. Results do not depend on how rows are assigned to workers, nor, in one form, on the number of tokens, except
for transposed products in tiles. For a single token, gemv is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.gemm import gemm_amx, gemm_bytes, gemm_floats, gemm_transposed
from native_kernels.cpu.gemm.gemm_bytes import byte_kernel, takes_bytes
from native_kernels.cpu.gemm.gemm_floats import DOT_MOST, PANEL, dot_kernel, float_kernel
from native_kernels.cpu.gemm.gemm_transposed import transposed_kernel
from native_kernels.cpu.gemm.tiles import BYTE_ROWS, BYTE_TOKENS, DOT_TOKENS, META_ROWS, PIECE, ROW_BYTES, TILE_ROWS
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.simd import ISA, LANES

_SCRATCH_BYTES = max(
    gemm_floats.SCRATCH_BYTES, gemm_bytes.SCRATCH_BYTES, gemm_transposed.SCRATCH_BYTES,
    gemm_amx.SCRATCH_BYTES if ISA.tiles else 0,
)  # fmt: skip

Form = Literal["dots", "floats", "bytes", "tiles", "split tiles"]
# Number of tokens from which tiles are fastest, by the alternative form. On a Xeon of 2023 (billions of products a
# second on one thread, tiles against bytes): Q4_0 213 against 262 at 32 tokens, 366 against 288 at 64.
_TILE_TOKENS = {"bytes": 48, "floats": 24}


def form_of(codec: str, max_tokens: int, of_prompt: bool = False) -> Form:
    """Return the form in which up to max_tokens tokens are multiplied by rows in this codec.

    of_prompt: results must not depend on the number of tokens, which excludes dots.
    """
    other: Form = "bytes" if takes_bytes(codec) else "floats"
    if max_tokens < _TILE_TOKENS[other] or not gemm_amx.takes_tiles(codec):
        return "dots" if other == "floats" and max_tokens <= DOT_MOST and not of_prompt else other
    return "tiles" if gemm_amx.token_parts(codec) == 1 else "split tiles"


def form_of_experts(codec: str, typical: int) -> Form:
    """Return the form for experts with this many tokens each; results do not depend on their number.

    In F16, dots took 0.78 of the time of floats with 32 tokens each, and 1.1 with 256 (AMD EPYC).
    """
    form = form_of(codec, typical, of_prompt=True)
    return "dots" if form == "floats" and codec in ("f32", "f16", "bf16") else form


def tile_tokens(form: Form) -> int:
    """Return the number of tokens in one item of a panel's values."""
    return {"bytes": BYTE_TOKENS, "floats": PANEL, "dots": 1}.get(form, gemm_amx.PANEL)


@dataclass(frozen=True, eq=False)
class Panels:
    """Tokens as the kernels read them, in one of the forms; written by the calls of `pack_calls`.

    Shapes of values: floats: f32 [panels, D rounded up to PIECE, 2 LANES]; dots: [T and more, D rounded up]. bytes:
    i8 [tiles, G, 8, tokens of a tile, 4] with meta [tiles, G, META_ROWS, tokens of a tile]; G groups of 32 columns.
    tiles: bfloat16 [panels, 1, D rounded up to 32, halved, 32, 2], pairs of columns; split tiles: [panels, 2, ...],
    high parts and low ones.
    """

    max_tokens: int
    n_cols: int
    form: Form
    values: NDArray[Any]
    meta: NDArray[np.int32]

    @classmethod
    def make(cls, max_tokens: int, n_cols: int, form: Form) -> Panels:
        """Allocate panels. Cost per number: 4 bytes as floats or split tiles, 1.75 as bytes, 2 as tiles; T rounded up
        to panels.
        """
        meta, wide = aligned_empty(0, np.int32), tile_tokens(form)
        tiles, groups = -(-max_tokens // wide), -(-n_cols // 32)
        if form == "bytes":
            values = aligned_empty((tiles, groups, 8, wide, 4), np.int8)
            meta = aligned_empty((tiles, groups, META_ROWS, wide), np.int32)
        elif form == "dots":
            values = aligned_empty((max_tokens + DOT_TOKENS - 1, -(-n_cols // LANES) * LANES))
        elif form == "floats":
            values = aligned_empty((tiles, -(-n_cols // PIECE) * PIECE, wide))
        else:
            values = aligned_empty((tiles, 1 if form == "tiles" else 2, groups * 16, wide, 2), np.uint16)
        return cls(max_tokens, n_cols, form, values, meta)


@dataclass(frozen=True, eq=False)
class Scratch:
    """Each worker's memory for tiles; shared by all products of an engine, which run one after another."""

    n_workers: int
    memory: NDArray[np.uint8]

    @classmethod
    def make(cls, n_workers: int) -> Scratch:
        """Allocate scratch. Cost: about 300 KB for each worker, 900 with tiles."""
        return cls(n_workers, aligned_empty((n_workers, -(-_SCRATCH_BYTES // 4096) * 4096 + 256), np.uint8))


def pack_calls(x: F32, tokens: I64, panels: Panels, stage: str = "") -> list[Call]:
    """Pack the first tokens[0] rows of x [max_tokens, D] into panels."""
    _check_rows(x, panels.max_tokens, panels.n_cols)
    keeps = (x, tokens, panels)
    if panels.form == "bytes":
        args = arguments(x, x.strides[0], panels.n_cols, tokens, panels.values, panels.meta)
        return [Call(gemm_bytes.pack_bytes, args, -(-panels.n_cols // 32), 4, stage, keeps)]
    args = arguments(x, x.strides[0], panels.n_cols, tokens, panels.values, panels.values.strides[0])
    if panels.form in ("floats", "dots"):
        pack = gemm_floats.pack_floats if panels.form == "floats" else gemm_floats.pack_rows
        return [Call(pack, args, -(-panels.n_cols // LANES), 4, stage, keeps)]
    return [Call(gemm_amx.pack_tiles(panels.values.shape[1]), args, -(-panels.n_cols // 32), 2, stage, keeps)]


def matmul_calls(
    panels: Panels, w: PackedMatrix, tokens: I64, out: F32, scratch: Scratch, stage: str = ""
) -> list[Call]:
    """Multiply x by the rows of w [N, D] -> out [max_tokens, N], for the tokens[0] tokens in the panels.

    Raises: ValueError if shapes do not match, or the panels' form is not that of `form_of`.
    """
    _check_rows(out, panels.max_tokens, w.n_rows)
    form = fitting_form(panels, w)
    row_step = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    memory = (scratch.memory, scratch.memory.strides[0])
    keeps = (panels, w, tokens, out, scratch)
    if form == "bytes":
        args = arguments(w.data, row_step, w.n_cols, panels.values, panels.meta, tokens, out, out.strides[0], *memory)
        return [Call(byte_kernel(w.codec), args, w.n_rows, BYTE_ROWS, stage, keeps)]
    panel_step = panels.values.strides[0]
    args = arguments(w.data, row_step, w.n_cols, panels.values, panel_step, tokens, out, out.strides[0], *memory)
    if form in ("floats", "dots"):
        product = float_kernel(w.codec) if form == "floats" else dot_kernel(w.codec)
        return [Call(product, args, w.n_rows, 2 * TILE_ROWS, stage, keeps)]
    return [Call(gemm_amx.tile_kernel(w.codec), args, w.n_rows, gemm_amx.PANEL, stage, keeps)]


def fitting_form(panels: Panels, w: PackedMatrix) -> Form:
    """Return the form of the panels. Raises: ValueError if they do not fit the matrix."""
    forms = [form_of(w.codec, panels.max_tokens, of_prompt) for of_prompt in (False, True)]
    forms.append(form_of_experts(w.codec, panels.max_tokens))
    if panels.n_cols != w.n_cols or panels.form not in forms:
        raise ValueError(f"{panels.form} of {panels.n_cols} columns do not fit {w.codec} {w.n_cols} ({forms})")
    return panels.form


@dataclass(frozen=True, eq=False)
class Firing:
    """The neurons with a nonzero value for any token, and those values as the transposed product reads them.

    The form is that of the tokens, except that values are floats instead of bytes.
    """

    max_tokens: int
    n_neurons: int
    form: Form
    flags: NDArray[np.uint8]
    ids: NDArray[np.int32]
    count: I64
    tiles: NDArray[np.uint8]

    @classmethod
    def make(cls, max_tokens: int, n_neurons: int, codec: str) -> Firing:
        """Allocate for rows in this codec. Cost: 4.3 bytes a value, or about 2 as tiles, and 5 a neuron."""
        form = _form_of_values(codec, max_tokens)
        wide = gemm_amx.PANEL if form != "floats" else TILE_ROWS
        shape = (-(-max_tokens // wide), -(-n_neurons // PIECE), 1, wide, ROW_BYTES)
        if form != "floats":
            parts = 1 if form == "tiles" else 2
            shape = (-(-max_tokens // wide), -(-n_neurons // gemm_amx.NEURONS), parts, wide, gemm_amx.ROW_BYTES)
        return cls(
            max_tokens, n_neurons, form, aligned_empty(n_neurons, np.uint8), aligned_empty(n_neurons, np.int32),
            aligned_empty(1, np.int64), aligned_empty(shape, np.uint8),
        )  # fmt: skip


def matmul_t_calls(
    h: F32, tokens: I64, w: PackedMatrix, out: F32, firing: Firing, scratch: Scratch, stage: str = ""
) -> list[Call]:
    """Sum the rows of w [F, D] weighted by h [max_tokens, F] -> out [max_tokens, D], for tokens[0] tokens.

    Rows of neurons that are 0 for all these tokens are not read; firing.count and firing.ids then list the others.
    Raises: ValueError if shapes do not match, or `firing` was made for a codec with another form.
    """
    _check_rows(h, firing.max_tokens, w.n_rows)
    _check_rows(out, firing.max_tokens, w.n_cols)
    if firing.n_neurons != w.n_rows:
        raise ValueError(f"{w.n_rows} rows were given for {firing.n_neurons} neurons")
    if firing.form != _form_of_values(w.codec, firing.max_tokens):
        raise ValueError(f"values as {firing.form} were given for rows in {w.codec}")
    row_step = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    tile_step = firing.tiles.strides[0]
    keeps = (h, tokens, w, out, firing, scratch)
    memory = (scratch.memory, scratch.memory.strides[0])
    found = arguments(
        h, h.strides[0], tokens, firing.flags, firing.ids, firing.count, w.n_rows, firing.tiles, tile_step, *memory
    )
    product = arguments(
        w.data, row_step, w.n_cols, firing.ids, firing.count, firing.tiles, tile_step,
        tokens, out, out.strides[0], *memory,
    )  # fmt: skip
    pack, size = gemm_transposed.pack_firing, PIECE
    kernel, columns = transposed_kernel, gemm_transposed.COLUMNS
    if firing.form != "floats":
        pack, size = gemm_amx.pack_firing_tiles(firing.tiles.shape[2]), gemm_amx.NEURONS
        kernel, columns = gemm_amx.transposed_tile_kernel, gemm_amx.COLUMNS
    return [
        Call(gemm_transposed.mark, found, w.n_rows, 64, stage, keeps),
        Call(gemm_transposed.list_marked, found, 1, 1, stage, keeps),
        Call(pack, found, -(-w.n_rows // size), 1, stage, keeps),
        Call(kernel(w.codec), product, w.n_cols, columns, stage, keeps),
    ]


def _form_of_values(codec: str, max_tokens: int) -> Form:
    """Return the form of the values that weight rows in this codec."""
    form = form_of(codec, max_tokens, of_prompt=True)
    return "floats" if form == "bytes" else form


def _check_rows(array: NDArray[Any], n_rows: int, n_cols: int) -> None:
    if array.shape != (n_rows, n_cols) or array.dtype != np.float32 or (n_cols > 1 and array.strides[1] != 4):
        raise ValueError(f"float32 [{n_rows}, {n_cols}] with contiguous rows was expected, not {array.shape}")
