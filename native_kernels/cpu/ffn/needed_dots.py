"""Products of weight rows with the vectors of the tokens that need them: the inner loops of needed_ffn.

Four products at a time, as four streams of rows; if all four use the same row, it is read and unpacked once. A product
is summed like one of row_dots, so the results are equal bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from native_kernels.cpu.products.row_dots import (
    CODECS,
    ON_THE_WAY,
    Asks,
    Codec,
    Slot,
    ask_for_rests,
    smaller_of,
    steps_of,
    whole,
)
from native_kernels.cpu.runtime.jit import inline
from native_kernels.cpu.runtime.simd import (
    I64,
    VF,
    add_up,
    constant,
    get_int,
    i64,
    load,
    number,
    offset,
    operation,
    put_int,
    store,
    times,
    void,
)

_LINE = 64


def _emit_products(codec: Codec, n: int, one_row: bool) -> Callable[..., Any]:
    """Return the operation (rows, xs, d, out): out [k] = the row at address rows [k] times the vector at xs [k], k < n.

    It prefetches the next n rows of the list, or only the next one if all n are one_row.
    """

    def dots(b: Any, rows: Any, xs: Any, d: Any, out: Any) -> None:
        vectors, taken = ([load(b, offset(b, at, 8 * k), I64) for k in range(n)] for at in (xs, rows))
        streams = taken[:1] if one_row else taken
        following = [load(b, offset(b, rows, 8 * (n + k)), I64) for k in range(len(streams))]
        steps = whole(b, d, codec.step_columns)
        sums = [[Slot(b, constant(VF, 0.0)) for _ in range(codec.sums())] for _ in vectors]
        ahead = smaller_of(b, steps, number(max(1, ON_THE_WAY // len(streams) // codec.step_bytes)))
        turn = b.sub(steps, ahead)  # from here on the following rows are prefetched
        reach, back = times(b, ahead, codec.step_bytes), times(b, turn, codec.step_bytes)
        in_row = [(b.add(row, reach), row, ahead) for row in streams]
        in_next = [(b.sub(row, back), row, b.neg(turn)) for row in following]
        for start, stop, asked in ((number(0), turn, in_row), (turn, steps, in_next)):
            with steps_of(b, start, stop) as (step, _):
                at, asks = times(b, step, codec.step_bytes), Asks()
                lines = -(-codec.step_bytes // _LINE)
                for base, row, shift in asked:
                    for line in range(lines):
                        asks.wait(line, offset(b, b.add(base, at), _LINE * line))
                    for address in codec.side_lines(b, row, b.add(step, shift), d):
                        asks.wait(lines, address)
                for k, (x, own) in enumerate(zip(vectors, sums, strict=True)):
                    codec.step(b, [streams[0 if one_row else k]], step, x, d, [own], asks)
                asks.rest(b)
        ask_for_rests(b, codec, following, steps, d)
        for k, (x, own) in enumerate(zip(vectors, sums, strict=True)):
            codec.rest(b, [streams[0 if one_row else k]], steps, x, d, [own])
            store(b, offset(b, out, 4 * k), add_up(b, [one.get(b) for one in own]))

    made: Callable[..., Any] = operation(void, *[i64] * 4)(dots)
    return made


def products_over(name: str) -> Any:
    """Return the function (rows, xs, n, d, out): out [k] = the row at address rows [k] times the vector at xs [k].

    The list continues with four more addresses, which are prefetched.
    """
    codec = CODECS[name]
    of_one_row, four, one = (
        _emit_products(codec, 4, True),
        _emit_products(codec, 4, False),
        _emit_products(codec, 1, True),
    )

    @inline
    def over(rows: int, xs: int, n: int, d: int, out: int) -> None:
        k = 0
        while n - k >= 4:
            if get_int(rows + 8 * k) == get_int(rows + 8 * k + 24):  # products of one neuron are adjacent
                of_one_row(rows + 8 * k, xs + 8 * k, d, out + 4 * k)
            else:
                four(rows + 8 * k, xs + 8 * k, d, out + 4 * k)
            k += 4
        while k < n:
            one(rows + 8 * k, xs + 8 * k, d, out + 4 * k)
            k += 1

    return over


@inline
def list_products(bits: int, row: int, x: int, step: int, rows: int, xs: int, n: int) -> int:
    """Pair a row with each vector whose bit is set, and append the pairs to rows and xs from place n on.

    The lowest bit is the vector at x, the next one `step` bytes after it. Return the place after the last pair.
    """
    while bits != 0:
        if bits & 1 != 0:
            put_int(rows + 8 * n, row)
            put_int(xs + 8 * n, x)
            n += 1
        bits >>= 1
        x += step
    return n
