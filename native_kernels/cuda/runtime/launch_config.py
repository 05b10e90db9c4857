"""The launch configuration of a kernel with clusters of blocks, for the driver's cuLaunchKernelEx (cuda.h)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int, c_uint, c_void_p
from functools import cache

_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION

Three = tuple[int, int, int]


class _Attribute(Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class LaunchConfig(Structure):
    """CUlaunchConfig."""

    _fields_ = (("grid", c_uint * 3), ("block", c_uint * 3), ("shared_bytes", c_uint), ("stream", c_void_p),
                ("attributes", POINTER(_Attribute)), ("n_attributes", c_uint))  # fmt: skip

    @classmethod
    def of(cls, grid: Three, block: Three, shared_bytes: int, stream: c_void_p | int, cluster: Three) -> LaunchConfig:
        """Build a configuration. cluster: blocks per cluster; the grid must be whole clusters."""
        return cls((c_uint * 3)(*grid), (c_uint * 3)(*block), shared_bytes, stream, _clustered(cluster), 1)


@cache
def _clustered(cluster: Three) -> ctypes._Pointer[_Attribute]:
    return ctypes.pointer(_Attribute(_CLUSTER, 0, (c_uint * 16)(*cluster)))
