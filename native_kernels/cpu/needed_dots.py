"""Products of one weight row with the vectors of a few tokens: the inner loops of needed_ffn.

A row is read and unpacked once for up to four vectors, which lie in the second cache. A product is added up as row_dots
adds up that of one row with one vector, so it is the same number, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from native_kernels.cpu.jit import inline
from native_kernels.cpu.row_dots import (
    CODECS,
    ON_THE_WAY,
    Asks,
    Codec,
    Slot,
    ask_for_rests,
    smaller_of,
    steps_of,
    times,
    whole,
)
from native_kernels.cpu.simd import (
    I64,
    VF,
    add_up,
    constant,
    i64,
    load,
    number,
    offset,
    operation,
    put_int,
    store,
    void,
)

_LINE = 64


def _emit_row_times(codec: Codec, n: int) -> Callable[..., Any]:
    """The operation (row, following, xs, d, out): out [k] = the row times the vector at the address xs [k], k < n.

    following: the row that is asked for.
    """

    def dots(b: Any, row: Any, following: Any, xs: Any, d: Any, out: Any) -> None:
        vectors = [load(b, offset(b, xs, 8 * k), I64) for k in range(n)]
        steps = whole(b, d, codec.step_columns)
        sums = [[Slot(b, constant(VF, 0.0)) for _ in range(codec.sums())] for _ in vectors]
        ahead = smaller_of(b, steps, number(max(1, ON_THE_WAY // codec.step_bytes)))
        turn = b.sub(steps, ahead)  # from here on the row that follows is asked for
        in_row = b.add(row, times(b, ahead, codec.step_bytes)), row, ahead
        in_next = b.sub(following, times(b, turn, codec.step_bytes)), following, b.neg(turn)
        for start, stop, (base, of, shift) in ((number(0), turn, in_row), (turn, steps, in_next)):
            with steps_of(b, start, stop) as (step, _):
                at, asks = times(b, step, codec.step_bytes), Asks()
                lines = -(-codec.step_bytes // _LINE)
                for line in range(lines):
                    asks.wait(line, offset(b, b.add(base, at), _LINE * line))
                for address in codec.side_lines(b, of, b.add(step, shift), d):
                    asks.wait(lines, address)
                for x, own in zip(vectors, sums, strict=True):
                    codec.step(b, [row], step, x, d, [own], asks)
                asks.rest(b)
        ask_for_rests(b, codec, [following], steps, d)
        for place, (x, own) in enumerate(zip(vectors, sums, strict=True)):
            codec.rest(b, [row], steps, x, d, [own])
            store(b, offset(b, out, 4 * place), add_up(b, [one.get(b) for one in own]))

    made: Callable[..., Any] = operation(void, *[i64] * 5)(dots)
    return made


def row_times(name: str) -> Any:
    """The function (row, following, xs, n, d, out): the row times n vectors; the row `following` is asked for."""
    codec = CODECS[name]
    four, three, two, one = (_emit_row_times(codec, n) for n in (4, 3, 2, 1))

    @inline
    def over(row: int, following: int, xs: int, n: int, d: int, out: int) -> None:
        k = 0
        while n - k >= 4:
            four(row, following, xs + 8 * k, d, out + 4 * k)
            k += 4
        left = n - k
        if left == 3:
            three(row, following, xs + 8 * k, d, out + 4 * k)
        elif left == 2:
            two(row, following, xs + 8 * k, d, out + 4 * k)
        elif left == 1:
            one(row, following, xs + 8 * k, d, out + 4 * k)

    return over


@inline
def list_vectors(bits: int, x: int, step: int, xs: int) -> int:
    """Addresses of the vectors whose bits are set, the lowest for the one at x, the next `step` behind it -> xs; how
    many those are."""
    n = 0
    while bits != 0:
        if bits & 1 != 0:
            put_int(xs + 8 * n, x)
            n += 1
        bits >>= 1
        x += step
    return n
