"""The vector operations of the kernels: LLVM vectors as values in numba-compiled functions.

Everything that differs between instruction sets is decided here. A vector has LANES float32 (F) or int32 (I), or 4 *
LANES bytes (B: four per lane). Addresses are int64 and may be unaligned. An operation is written as a function of
(builder, *values); `operation` makes it callable from compiled code, and its `emit` attribute is the function itself,
for use in other operations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from native_kernels.cpu.runtime import isa

ISA = isa.chosen()  # before numba is imported

from llvmlite import ir  # noqa: E402
from numba import types  # noqa: E402
from numba.core import cgutils  # noqa: E402
from numba.extending import intrinsic, models, register_model  # noqa: E402

LANES = ISA.lanes
_FUSES = ISA.byte_dot != "plain" or ISA.half  # all x86 but the plain one, and aarch64
Emit = Callable[..., Any]

# LLVM's types
BIT, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
VF, VI, VB = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES), ir.VectorType(I8, 4 * LANES)
VH, VS = ir.VectorType(F16, LANES), ir.VectorType(I16, LANES)
VM = ir.VectorType(BIT, LANES)

# numba's types
i64, f32, void = types.int64, types.float32, types.void


class Rows(NamedTuple):
    """Rows in memory: the address of the first one, and the bytes from one to the next."""

    start: int
    step: int


class _Vector(types.Type):  # type: ignore[misc]
    def __init__(self, name: str, of: Any) -> None:
        self.of = of
        super().__init__(name=f"{name}{of.count}")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, of: _Vector) -> None:
        super().__init__(manager, of, of.of)


F, I, B = _Vector("floats", VF), _Vector("ints", VI), _Vector("bytes", VB)  # noqa: E741
M = _Vector("mask", VM)


def operation(result: Any, *arguments: Any) -> Callable[[Emit], Any]:
    """Turn a function (builder, *values) into an operation of compiled code with these types."""

    def make(emit: Emit) -> Any:
        def typed(context: Any, *_: Any) -> Any:
            def lower(context: Any, builder: Any, signature: Any, values: Sequence[Any]) -> Any:
                made = emit(builder, *values)
                return context.get_dummy_value() if made is None else made

            return result(*arguments), lower

        names = ["context", *(f"a{i}" for i in range(len(arguments)))]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        typed.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
        typed.__name__ = typed.__qualname__ = emit.__name__
        typed.__doc__ = emit.__doc__
        made = intrinsic(typed)
        made.emit = emit
        return made

    return make


# --- pieces for operations


def group_of(kind: Any) -> Any:
    """Return the type of a NamedTuple of int64, as an argument of an operation."""
    return types.NamedUniTuple(i64, len(kind._fields), kind)


def unpacked(b: Any, group: Any) -> list[Any]:
    """Return the values of such a group."""
    return list(cgutils.unpack_tuple(b, group))


def constant(of: Any, value: float) -> Any:
    """The same number in every lane."""
    return ir.Constant(of, [value] * of.count)


def number(value: int) -> Any:
    return ir.Constant(I64, value)


def times(b: Any, value: Any, factor: int) -> Any:
    return b.mul(value, number(factor))


def pick(b: Any, x: Any, y: Any, places: Sequence[int]) -> Any:
    """Select lanes of x and y by index; the lanes of y follow those of x."""
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(places)), list(places)))


def pointer(b: Any, at: Any, of: Any) -> Any:
    return b.inttoptr(at, of.as_pointer())


def offset(b: Any, at: Any, n_bytes: int) -> Any:
    return b.add(at, number(n_bytes)) if n_bytes else at


def load(b: Any, at: Any, of: Any) -> Any:
    """Load any vector or number from any address."""
    return b.load(pointer(b, at, of), align=1)


def store(b: Any, at: Any, value: Any) -> None:
    b.store(value, pointer(b, at, value.type), align=1)


def external(b: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    return cgutils.get_or_insert_function(b.module, ir.FunctionType(result, list(arguments)), name)


def room(b: Any, n_bytes: int, alignment: int = 64) -> Any:
    """Return the address of memory on the stack. numba's alloca_once would set it to 0 at each entry."""
    with b.goto_entry_block():
        place = b.alloca(ir.ArrayType(I8, n_bytes + alignment))
        at = b.add(b.ptrtoint(place, I64), number(alignment - 1))
        return b.and_(at, number(-alignment))


def splat(b: Any, value: Any, of: Any) -> Any:
    nothing = ir.Constant(of, ir.Undefined)
    one = b.insert_element(nothing, value, ir.Constant(I32, 0))
    return b.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(I32, of.count), [0] * of.count))


def suffix(of: Any) -> str:
    """Return a type's suffix in the name of an overloaded LLVM intrinsic."""
    kinds = {I8: "i8", I16: "i16", I32: "i32", I64: "i64", F16: "f16", F32: "f32", BIT: "i1"}
    return f"v{of.count}{kinds[of.element]}" if isinstance(of, ir.VectorType) else kinds[of]


def part(b: Any, n: Any) -> Any:
    """Return the mask of the first n lanes."""
    places = ir.Constant(VI, list(range(LANES)))
    return b.icmp_signed("<", places, splat(b, b.trunc(n, I32), VI))


def load_part(b: Any, at: Any, n: Any, of: Any) -> Any:
    """Load the first n lanes of a vector; the others are 0 and not read."""
    name = f"llvm.masked.load.{suffix(of)}.p0"
    fn = external(b, name, of, [of.as_pointer(), I32, ir.VectorType(BIT, of.count), of])
    return b.call(fn, [pointer(b, at, of), ir.Constant(I32, 1), part(b, n), ir.Constant(of, None)])


def store_part(b: Any, at: Any, n: Any, value: Any) -> None:
    of = value.type
    name = f"llvm.masked.store.{suffix(of)}.p0"
    fn = external(b, name, ir.VoidType(), [of, of.as_pointer(), I32, ir.VectorType(BIT, of.count)])
    b.call(fn, [value, pointer(b, at, of), ir.Constant(I32, 1), part(b, n)])


def call_same(b: Any, name: str, *values: Any) -> Any:
    """Call an LLVM intrinsic whose arguments and result have the same type.

    Without "fma" in the CPU, rounds twice: LLVM would call a function per lane, 60 times as slow.
    """
    of = values[0].type
    if name == "fma" and not _FUSES:
        return b.fadd(b.fmul(values[0], values[1]), values[2])
    return b.call(external(b, f"llvm.{name}.{suffix(of)}", of, [of] * len(values)), list(values))


def halves_to_floats(b: Any, halves: Any) -> Any:
    """Convert float16 to float32: by an instruction, or by moving the bit fields if the CPU has none."""
    if ISA.half:
        return b.fpext(halves, VF)
    wide = b.zext(b.bitcast(halves, VS), VI)
    sign = b.shl(b.and_(wide, constant(VI, 0x8000)), constant(VI, 16))
    moved = b.shl(b.and_(wide, constant(VI, 0x7FFF)), constant(VI, 13))
    scaled = b.bitcast(b.fmul(b.bitcast(moved, VF), constant(VF, 2.0**112)), VI)
    special = b.icmp_signed(">=", moved, constant(VI, 0x7C00 << 13))
    finite = b.select(special, b.or_(moved, constant(VI, 0x7F800000)), scaled)
    return b.bitcast(b.or_(finite, sign), VF)


def floats_to_halves(b: Any, x: Any) -> Any:
    """Convert float32 to float16, rounded to nearest, ties to even; overflow becomes infinite."""
    if ISA.half:
        return b.fptrunc(x, VH)
    bits = b.bitcast(x, VI)
    sign = b.and_(b.lshr(bits, constant(VI, 16)), constant(VI, 0x8000))
    size = b.and_(bits, constant(VI, 0x7FFFFFFF))
    odd = b.and_(b.lshr(size, constant(VI, 13)), constant(VI, 1))
    normal = b.lshr(b.add(b.add(size, constant(VI, 0xC8000FFF - (1 << 32))), odd), constant(VI, 13))
    # Below 2^-14: adding one half rounds to the steps of subnormal float16.
    small = b.sub(b.bitcast(b.fadd(b.bitcast(size, VF), constant(VF, 0.5)), VI), constant(VI, 0x3F000000))
    found = b.select(b.icmp_signed("<", size, constant(VI, 0x38800000)), small, normal)
    found = b.select(b.icmp_signed(">=", size, constant(VI, 0x47800000)), constant(VI, 0x7C00), found)
    found = b.select(b.icmp_signed(">", size, constant(VI, 0x7F800000)), constant(VI, 0x7E00), found)
    return b.bitcast(b.trunc(b.or_(found, sign), VS), VH)


def bfloats_to_floats(b: Any, bits: Any) -> Any:
    return b.bitcast(b.shl(b.zext(bits, VI), constant(VI, 16)), VF)


# --- single numbers


@operation(i64, i64)
def get_int(b: Any, at: Any) -> Any:
    return load(b, at, I64)


@operation(void, i64, i64)
def put_int(b: Any, at: Any, value: Any) -> None:
    store(b, at, value)


@operation(i64, i64)
def get_int32(b: Any, at: Any) -> Any:
    return b.sext(load(b, at, I32), I64)


@operation(void, i64, i64)
def put_int32(b: Any, at: Any, value: Any) -> None:
    store(b, at, b.trunc(value, I32))


@operation(i64, i64)
def get_byte(b: Any, at: Any) -> Any:
    return b.zext(load(b, at, I8), I64)


@operation(void, i64, i64)
def put_byte(b: Any, at: Any, value: Any) -> None:
    store(b, at, b.trunc(value, I8))


@operation(f32, i64)
def get_float(b: Any, at: Any) -> Any:
    """Load a float32, also from the lower half of a word of arguments."""
    return load(b, at, F32)


@operation(void, i64, f32)
def put_float(b: Any, at: Any, value: Any) -> None:
    store(b, at, value)


@operation(f32, i64)
def get_half(b: Any, at: Any) -> Any:
    """Load a float16 as float32."""
    if ISA.half:
        return b.fpext(load(b, at, F16), F32)
    return b.extract_element(halves_to_floats(b, splat(b, load(b, at, F16), VH)), ir.Constant(I32, 0))


# --- float vectors


@operation(F)
def zero(b: Any) -> Any:
    return constant(VF, 0.0)


@operation(F, f32)
def spread(b: Any, value: Any) -> Any:
    """One number in every lane."""
    return splat(b, value, VF)


@operation(F, i64)
def floats(b: Any, at: Any) -> Any:
    return load(b, at, VF)


@operation(F, i64, i64)
def floats_part(b: Any, at: Any, n: Any) -> Any:
    """Load the first n lanes, the others 0; nothing is read after them. The same for all operations named *_part."""
    return load_part(b, at, n, VF)


@operation(void, i64, F)
def put_floats(b: Any, at: Any, value: Any) -> None:
    store(b, at, value)


@operation(void, i64, i64, F)
def put_floats_part(b: Any, at: Any, n: Any, value: Any) -> None:
    store_part(b, at, n, value)


@operation(F, i64)
def halves(b: Any, at: Any) -> Any:
    """Load LANES float16 as float32."""
    return halves_to_floats(b, load(b, at, VH))


@operation(F, i64, i64)
def halves_part(b: Any, at: Any, n: Any) -> Any:
    return halves_to_floats(b, b.bitcast(load_part(b, at, n, VS), VH))


@operation(F, i64)
def bfloats(b: Any, at: Any) -> Any:
    """Load LANES bfloat16 as float32."""
    return bfloats_to_floats(b, load(b, at, VS))


@operation(F, i64, i64)
def bfloats_part(b: Any, at: Any, n: Any) -> Any:
    return bfloats_to_floats(b, load_part(b, at, n, VS))


@operation(F, F, F, F)
def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z, rounded once."""
    return call_same(b, "fma", x, y, z)


@operation(F, F, F)
def add(b: Any, x: Any, y: Any) -> Any:
    return b.fadd(x, y)


@operation(F, F, F)
def sub(b: Any, x: Any, y: Any) -> Any:
    return b.fsub(x, y)


@operation(F, F, F)
def mul(b: Any, x: Any, y: Any) -> Any:
    return b.fmul(x, y)


@operation(F, F, F)
def div(b: Any, x: Any, y: Any) -> Any:
    return b.fdiv(x, y)


@operation(F, F, F)
def larger(b: Any, x: Any, y: Any) -> Any:
    """The larger value of each lane; y if either is NaN."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@operation(F, F, F)
def smaller(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered("<", x, y), x, y)


@operation(F, F)
def absolute(b: Any, x: Any) -> Any:
    return call_same(b, "fabs", x)


@operation(F, F)
def root(b: Any, x: Any) -> Any:
    return call_same(b, "sqrt", x)


@operation(F, F)
def nearest(b: Any, x: Any) -> Any:
    """Round to integer, ties to even."""
    return call_same(b, "rint", x) if ISA.byte_dot == "plain" else call_same(b, "nearbyint", x)


@operation(F, F, F, F)
def where_above_zero(b: Any, test: Any, x: Any, y: Any) -> Any:
    """x in the lanes where test > 0, else y."""
    return b.select(b.fcmp_ordered(">", test, constant(VF, 0.0)), x, y)


@operation(F, F, F)
def zero_up_to(b: Any, x: Any, threshold: Any) -> Any:
    """x, or 0 where x <= threshold; NaN stays NaN."""
    return b.select(b.fcmp_ordered("<=", x, threshold), constant(VF, 0.0), x)


def fold(b: Any, value: Any, combine: Emit) -> Any:
    """Combine all lanes into one number, halves first, in a fixed order."""
    while value.type.count > 1:
        half = value.type.count // 2
        low, high = (
            b.shuffle_vector(value, value, ir.Constant(ir.VectorType(I32, half), list(range(start, start + half))))
            for start in (0, half)
        )
        value = combine(low, high)
    return b.extract_element(value, ir.Constant(I32, 0))


def add_up(b: Any, vectors: Sequence[Any]) -> Any:
    """Sum all lanes of all vectors, in a fixed order."""
    rest = list(vectors)
    while len(rest) > 1:
        rest = [b.fadd(*rest[i : i + 2]) if i + 1 < len(rest) else rest[i] for i in range(0, len(rest), 2)]
    return fold(b, rest[0], b.fadd)


@operation(f32, F)
def total(b: Any, x: Any) -> Any:
    """Sum all lanes, halves first."""
    return fold(b, x, b.fadd)


@operation(f32, F)
def largest(b: Any, x: Any) -> Any:
    return fold(b, x, lambda low, high: b.select(b.fcmp_ordered(">", low, high), low, high))


def _bits(b: Any, mask: Any) -> Any:
    return b.zext(b.bitcast(mask, ir.IntType(LANES)), I64)


@operation(i64, F)
def bits_not_zero(b: Any, x: Any) -> Any:
    """One bit per lane, lowest first: set where x is NaN or not 0."""
    return _bits(b, b.fcmp_unordered("!=", x, constant(VF, 0.0)))


@operation(i64, F, f32)
def bits_reaching(b: Any, x: Any, threshold: Any) -> Any:
    """One bit per lane: set where x >= threshold."""
    return _bits(b, b.fcmp_ordered(">=", x, splat(b, threshold, VF)))


@operation(i64, i64, i64)
def bits_of_words(b: Any, at: Any, mask: Any) -> Any:
    """One bit for each of LANES int32 in memory: set where it shares a bit with the lower half of the mask."""
    common = b.and_(load(b, at, VI), splat(b, b.trunc(mask, I32), VI))
    return _bits(b, b.icmp_signed("!=", common, constant(VI, 0)))


@operation(i64, i64)
def count_bits(b: Any, bits: Any) -> Any:
    return b.call(external(b, "llvm.ctpop.i64", I64, [I64]), [bits])


@operation(i64, i64)
def lowest_bit(b: Any, bits: Any) -> Any:
    """Return the index of the lowest set bit; bits is not 0."""
    fn = external(b, "llvm.cttz.i64", I64, [I64, BIT])
    return b.call(fn, [bits, ir.Constant(BIT, 1)])


# --- integer and byte vectors


@operation(I)
def zero_ints(b: Any) -> Any:
    return constant(VI, 0)


@operation(I, i64)
def ints(b: Any, at: Any) -> Any:
    return load(b, at, VI)


@operation(I, I, I)
def add_ints(b: Any, x: Any, y: Any) -> Any:
    return b.add(x, y)


@operation(I, F)
def as_ints(b: Any, x: Any) -> Any:
    """Convert to integers, truncated; the values must fit."""
    return b.fptosi(x, VI)


@operation(i64, I)
def total_ints(b: Any, x: Any) -> Any:
    return b.sext(fold(b, x, b.add), I64)


@operation(I, I, B, B)
def dot_unsigned(b: Any, sums: Any, u: Any, s: Any) -> Any:
    """Add to each lane of sums four products of unsigned bytes u, at most 128, and signed bytes s."""
    if ISA.byte_dot == "vnni512":
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        return b.call(external(b, name, VI, [VI, VI, VI]), [sums, b.bitcast(u, VI), b.bitcast(s, VI)])
    if ISA.byte_dot == "vnni256":
        # LLVM has one intrinsic for both encodings of the 256-bit form.
        fn = external(b, "llvm.x86.avx512.vpdpbusd.256", VI, [VI, VI, VI])
        return b.call(fn, [sums, b.bitcast(u, VI), b.bitcast(s, VI)])
    words = ir.VectorType(I16, 2 * LANES)
    if ISA.byte_dot == "maddubs":
        names = ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512"), ("avx2.pmadd.ub.sw", "avx2.pmadd.wd")
        name, wide = names[0 if LANES == 16 else 1]
        pairs = b.call(external(b, f"llvm.x86.{name}", words, [VB, VB]), [u, s])
        fours = b.call(external(b, f"llvm.x86.{wide}", VI, [words, words]), [pairs, constant(words, 1)])
        return b.add(sums, fours)
    every = ir.VectorType(I16, 4 * LANES)
    products = b.mul(b.zext(u, every), b.sext(s, every))
    return b.add(sums, _add_neighbours(b, _add_neighbours(b, products)))


def _add_neighbours(b: Any, x: Any) -> Any:
    """Sums of lanes 2 i and 2 i + 1, as int32."""
    count = x.type.count // 2
    places = [ir.Constant(ir.VectorType(I32, count), list(range(start, 2 * count, 2))) for start in (0, 1)]
    wide = ir.VectorType(I32, count)
    even, odd = (b.shuffle_vector(x, x, place) for place in places)
    if x.type.element == I16:
        even, odd = b.sext(even, wide), b.sext(odd, wide)
    return b.add(even, odd)


@operation(I, I, B, B)
def dot_signed(b: Any, sums: Any, x: Any, y: Any) -> Any:
    """Add to each lane of sums four products of signed bytes; y is at least -127."""
    if ISA.byte_dot == "plain":
        every = ir.VectorType(I16, 4 * LANES)
        products = b.mul(b.sext(x, every), b.sext(y, every))
        return b.add(sums, _add_neighbours(b, _add_neighbours(b, products)))
    none = constant(VB, 0)
    negative = b.icmp_signed("<", x, none)
    return dot_unsigned.emit(b, sums, b.select(negative, b.sub(none, x), x), b.select(negative, b.sub(none, y), y))


# --- memory and threads


@operation(void, i64)
def prefetch_near(b: Any, at: Any) -> None:
    """Prefetch a line into the first-level cache, to be read within about the next 100 lines."""
    _prefetch(b, at, 3)


@operation(void, i64)
def prefetch(b: Any, at: Any) -> None:
    """Prefetch a line into the second-level cache, to be read later than that."""
    _prefetch(b, at, 2)


def _prefetch(b: Any, at: Any, locality: int) -> None:
    fn = external(b, "llvm.prefetch.p0", ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    b.call(fn, [pointer(b, at, I8), ir.Constant(I32, 0), ir.Constant(I32, locality), ir.Constant(I32, 1)])


@operation(i64, i64)
def atomic_get(b: Any, at: Any) -> Any:
    """Load an int64 with acquire order."""
    return b.load_atomic(pointer(b, at, I64), "acquire", 8)


@operation(void, i64, i64)
def atomic_put(b: Any, at: Any, value: Any) -> None:
    b.store_atomic(value, pointer(b, at, I64), "release", 8)


@operation(i64, i64, i64)
def atomic_add(b: Any, at: Any, value: Any) -> Any:
    """Add, and return the previous value."""
    return b.atomic_rmw("add", pointer(b, at, I64), value, "acq_rel")


@operation(void)
def pause(b: Any) -> None:
    """Tell the core that this thread is spinning."""
    if isa.is_x86():
        b.call(external(b, "llvm.x86.sse2.pause", ir.VoidType(), []), [])
    elif ISA.half:  # aarch64: isb waits about as long as x86's pause, yield less
        b.call(external(b, "llvm.aarch64.isb", ir.VoidType(), [I32]), [ir.Constant(I32, 15)])


@operation(i64)
def clock(b: Any) -> Any:
    """Read a counter that grows at a constant rate, for differences.

    x86 counts cycles. On aarch64 this is the virtual timer: programs may not read what LLVM calls the cycle counter.
    """
    if isa.is_x86() or not ISA.half:
        return b.call(external(b, "llvm.readcyclecounter", I64, []), [])
    name = b.module.add_metadata([ir.MetaDataString(b.module, "cntvct_el0")])
    read = external(b, "llvm.read_volatile_register.i64", I64, [ir.MetaDataType()])
    return b.call(read, [name])


@operation(void, i64, i64, i64, i64, i64)
def call_kernel(b: Any, kernel: Any, args: Any, lo: Any, hi: Any, worker: Any) -> None:
    of = ir.FunctionType(ir.VoidType(), [I64] * 4)
    b.call(b.inttoptr(kernel, of.as_pointer()), [args, lo, hi, worker])
