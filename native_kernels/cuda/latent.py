"""GPU operators of latent attention (MLA) between its products.

Prepares the arguments of latent.cu. Never waits, so everything can be captured.
"""

from __future__ import annotations

from ctypes import Structure, c_float, c_int, c_uint64

from native_kernels.cuda.gpu import GpuAngles, GpuKv, GpuLatent, GpuSequences, GpuVector, KvCodec
from native_kernels.cuda.operands import Rounded
from native_kernels.cuda.prompt_rows import RowAngles
from native_kernels.cuda.runtime.driver import Device, Module, Stream
from native_kernels.cuda.runtime.modules import load
from native_kernels.specs import LatentSpec, Temperature

MAX_DIM = 576  # numbers of a query or key, as in heads.cuh
_CODEC_BYTES: dict[KvCodec, int] = {"f32": 4, "f16": 2, "q8_0": 1}
_THREADS = 256


class _Latent(Structure):
    _fields_ = [
        ("q", c_uint64), ("k", c_uint64), ("queries", c_uint64), ("plain", Rounded),
        *((name, c_uint64) for name in ("norm", "cosines", "sines", "state", "keys", "key_scales")),
        ("epsilon", c_float), ("strength", c_float),
        *(
            (name, c_int)
            for name in ("n_heads", "key_dim", "rotated", "rank", "apart", "n_pairs", "neighbours", "codec", "capacity",
                         "start", "slot", "length", "offset")
        ),
    ]  # fmt: skip


class GpuLatentOps:
    """The group `latent attention` of native_kernels/cuda/gpu.py's `Gpu`, and the same for many positions.

    The first call loads the kernel. Raises: CudaError, NoMachineCodeError.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._module: Module | None = None

    def close(self) -> None:
        """Unload the kernel. A second call does nothing."""
        module, self._module = self._module, None
        if module is not None:
            module.close()

    def place_latent(self, x: GpuLatent, plain: GpuVector, kv: GpuKv, state: int, angles: GpuAngles) -> None:
        """Place one position. A position beyond the capacity is not stored."""
        at = angles.values, angles.values + 4, 2
        self._place(x, plain, kv, (state, 0, 0), at, angles, 1)

    def place_latents(
        self, x: GpuLatent, n_tokens: int, kv: GpuKv, where: int | GpuSequences, angles: RowAngles
    ) -> None:
        """Norm and rotate the keys of T positions, and store them into kv.

        where: the first of consecutive positions, or the sequences whose latest positions they are. The rotated numbers
        of q go to the end of each of `queries`; the others stay, multiplied by the temperature.
        """
        at = angles.cosines, angles.sines, 1
        place = (where.states, 0, where.slot) if isinstance(where, GpuSequences) else (0, where, 0)
        self._place(x, GpuVector(0, 0), kv, place, at, angles, n_tokens)

    def _place(
        self, x: GpuLatent, plain: GpuVector, kv: GpuKv, where: tuple[int, int, int], at: tuple[int, int, int],
        angles: GpuAngles | RowAngles, n_tokens: int,
    ) -> None:  # fmt: skip
        """where: state, start and slot; at: cosines, sines and the numbers between two of them."""
        if self._module is None:
            self._module = load(self._device, "latent")
        spec, temperature = x.spec, angles.temperature or Temperature(0.0, 1)
        job = _Latent(
            x.q, x.k, x.queries, Rounded(0, plain.values, plain.bytes, plain.scales, plain.n), x.norm.weight, *at[:2],
            where[0], kv.keys, kv.key_scales, x.norm.eps, temperature.strength, x.n_heads, spec.key_dim, x.rotated,
            spec.rank, at[2], angles.n, angles.order == "interleaved", _CODEC_BYTES[kv.codec], kv.capacity, *where[1:],
            temperature.length, temperature.offset,
        )  # fmt: skip
        self._module.function("place_latent").launch(self._stream, (x.n_heads + 1, n_tokens), (_THREADS,), job)


def why_not(spec: LatentSpec, rotated: int) -> str:
    """Return in half a sentence why the GPU has no kernels for such attention; "" if it has."""
    if max(spec.rank, spec.key_dim) + rotated > MAX_DIM:
        return f"The GPU's kernels for this model's attention have heads of {MAX_DIM} numbers at most"
    if any(n % 8 for n in (spec.rank + rotated, spec.key_dim + rotated)) or any(
        n % 4 for n in (spec.rank, spec.key_dim, spec.value_dim)
    ):
        return "The GPU's kernels for this model's attention do not have heads of such sizes"
    return ""
