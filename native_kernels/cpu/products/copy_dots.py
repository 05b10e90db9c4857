"""Products of rows of low-bit copies, for row_dots: one superblock of 512 columns per step.

A lane sums the products of a piece's 32 codes with the input bytes as integers. The difference between levels and codes
is a known multiple of the sum of those bytes. So only the addition of superblocks rounds, and its order is the same for
one row, for several, and for many tokens.

On Zen 5 (width 4096, 11,008 rows), reading all rows of copy2, copy3 or copy4 reaches 0.9 of the speed of a streaming
read; copy1, which has the most products per byte, 0.67; rows of a list of 5 to 20 %, 0.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from native_kernels.codecs.copies import COPY_CODECS
from native_kernels.codecs.copies import planes as planes_of
from native_kernels.cpu.products.activations import Format
from native_kernels.cpu.runtime.simd import (
    I16,
    LANES,
    VB,
    VF,
    VH,
    VI,
    VS,
    call_same,
    constant,
    dot_unsigned,
    halves_to_floats,
    load,
    load_part,
    number,
    offset,
    part,
    splat,
)

PARTS = 16 // LANES  # registers per superblock
_WORDS = ir.VectorType(I16, 2 * LANES)


def shifted(b: Any, packed: Any, down: int) -> Any:
    """Shift the bytes right (left if negative); bits from a neighbouring byte must be masked away."""
    if not down:
        return packed
    words = b.bitcast(packed, _WORDS)
    moved = b.lshr(words, constant(_WORDS, down)) if down > 0 else b.shl(words, constant(_WORDS, -down))
    return b.bitcast(moved, VB)


def codes_of(b: Any, registers: list[list[Any]], planes: tuple[int, ...], chunk: int) -> Any:
    """Return the codes of columns 4 chunk to 4 chunk + 3 of every piece; registers: those of each plane."""
    found, up = None, 0
    for plane, bits in zip(registers, planes, strict=True):
        of_run = 8 // bits
        packed = plane[chunk // of_run]
        piece = b.and_(shifted(b, packed, bits * (chunk % of_run) - up), constant(VB, ((1 << bits) - 1) << up))
        found = piece if found is None else b.or_(found, piece)
        up += bits
    return found


def group_scale(b: Any, at: Any, n: Any | None) -> Any:
    """Return a superblock's scale as float32 in every lane with a piece; n: number of pieces, None: all."""
    half = b.bitcast(splat(b, load(b, at, I16), VS), VH)
    scales = halves_to_floats(b, half)
    return scales if n is None else b.select(part(b, n), scales, constant(VF, 0.0))


def level_offsets(b: Any, eights: Any, bits: int) -> Any:
    """Return (1 - 2^bits) / 2 times the input sums as float32, exactly; eights: the sums times -8."""
    return b.fmul(b.sitofp(eights, VF), constant(VF, ((1 << bits) - 1) / 16))


def add_scaled(b: Any, dots: Any, offsets: Any, scales: Any, x_scales: Any, before: Any) -> Any:
    """Return before + (dots + offsets) scales x_scales; all products of copies use this order of operations."""
    return call_same(b, "fma", b.fadd(b.sitofp(dots, VF), offsets), b.fmul(scales, x_scales), before)


@dataclass(frozen=True)
class Copies:
    """copy1 to copy4, as row_dots.Codec."""

    bits: int
    vector: Format = "lanes"
    step_columns: int = 512

    @property
    def step_bytes(self) -> int:
        return 64 * self.bits

    def sums(self) -> int:
        return PARTS

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return [b.add(self._scales(b, row, d), b.mul(step, number(2)))]

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: Any, asks: Any) -> None:
        self._superblock(b, rows, step, x, d, sums, asks, None)

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: Any) -> None:
        pieces = b.mul(self._filled(b, d), number(2))
        left = b.sub(pieces, b.mul(steps, number(16)))
        with b.if_then(b.icmp_signed(">", left, number(0))):
            self._superblock(b, rows, steps, x, d, sums, None, left)

    def _filled(self, b: Any, d: Any) -> Any:
        """Return the padded columns of a row divided by 64."""
        return b.udiv(b.add(d, number(63)), number(64))

    def _scales(self, b: Any, row: Any, d: Any) -> Any:
        return b.add(row, b.mul(self._filled(b, d), number(8 * self.bits)))

    def _superblock(
        self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: Any, asks: Any | None, pieces: Any | None
    ) -> None:
        """Add the products of a superblock. pieces: its number of pieces if incomplete; None: all 16."""
        padded = b.mul(b.udiv(b.add(d, number(511)), number(512)), number(512))
        x_bytes = b.add(x, b.mul(step, number(512)))
        x_scales = b.add(b.add(x, padded), b.mul(step, number(64)))
        x_sums = b.add(x_scales, b.udiv(padded, number(8)))
        chunk = number(64) if pieces is None else b.mul(pieces, number(4))
        quants = [b.add(row, b.mul(step, number(self.step_bytes))) for row in rows]
        scales = [b.add(self._scales(b, row, d), b.mul(step, number(2))) for row in rows]
        for register in range(PARTS):
            first = LANES * register
            n = None if pieces is None else b.sub(pieces, number(first))
            x_scale = load(b, offset(b, x_scales, 4 * first), VF)
            offsets = level_offsets(b, load(b, offset(b, x_sums, 4 * first), VI), self.bits)
            dots = [constant(VI, 0) for _ in rows]
            for together in self._chunks():
                x_parts = [load(b, offset(b, x_bytes, 64 * k + 4 * first), VB) for k in together]
                for i, row in enumerate(quants):
                    registers = self._registers(b, row, chunk, first, n, together, asks)
                    for k, xs in zip(together, x_parts, strict=True):
                        codes = codes_of(b, registers, planes_of(self.bits), k)
                        dots[i] = dot_unsigned.emit(b, dots[i], codes, xs)
            for i, row in enumerate(scales):
                if asks is not None:
                    asks.one(b)
                scale = group_scale(b, row, n)
                sums[i][register].put(b, add_scaled(b, dots[i], offsets, scale, x_scale, sums[i][register].get(b)))

    def _chunks(self) -> Iterator[range]:
        """Yield the eight chunks of four columns, grouped by how many one register of the lowest plane covers."""
        at_once = 8 // planes_of(self.bits)[0]
        for start in range(0, 8, at_once):
            yield range(start, start + at_once)

    def _registers(
        self, b: Any, row: Any, chunk: Any, first: int, n: Any | None, together: range, asks: Any | None
    ) -> list[list[Any]]:
        """Load the registers of each plane; None for those that these chunks do not read."""
        found, start = [], 0
        for bits in planes_of(self.bits):
            of_run = 8 // bits
            plane: list[Any] = [None] * bits
            for run in sorted({k // of_run for k in together}):
                if asks is not None:
                    asks.one(b)
                at = offset(b, b.add(row, b.mul(chunk, number(start + run))), 4 * first)
                plane[run] = load(b, at, VB) if n is None else b.bitcast(load_part(b, at, n, VI), VB)
            found.append(plane)
            start += bits
        return found


COPIES: dict[str, Copies] = {name: Copies(codec.bits) for name, codec in COPY_CODECS.items()}
