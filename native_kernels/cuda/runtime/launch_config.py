"""The configuration of a launch with clusters of blocks or an early start, for cuLaunchKernelEx (cuda.h)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int, c_uint, c_void_p
from functools import cache

_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

Three = tuple[int, int, int]


class _Attribute(Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class LaunchConfig(Structure):
    """CUlaunchConfig of the CUDA driver API."""

    _fields_ = (("grid", c_uint * 3), ("block", c_uint * 3), ("shared_bytes", c_uint), ("stream", c_void_p),
                ("attributes", POINTER(_Attribute)), ("n_attributes", c_uint))  # fmt: skip

    @classmethod
    def of(
        cls, grid: Three, block: Three, shared_bytes: int, stream: c_void_p | int, cluster: Three | None
    ) -> LaunchConfig:
        """Build a configuration.

        cluster: blocks per cluster; the grid must be whole clusters. None: an early start, as in Function.waits.
        """
        return cls((c_uint * 3)(*grid), (c_uint * 3)(*block), shared_bytes, stream, _attribute(cluster), 1)


@cache
def _attribute(cluster: Three | None) -> ctypes._Pointer[_Attribute]:
    kind, value = (_EARLY, (1,)) if cluster is None else (_CLUSTER, cluster)
    return ctypes.pointer(_Attribute(kind, 0, (c_uint * 16)(*value)))
