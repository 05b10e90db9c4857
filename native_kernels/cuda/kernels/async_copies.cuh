// Copies into shared memory that run beside other work, in groups (compute capability 7.5 copies through registers).
#pragma once
#include "tensor_cores.cuh"

// Sixteen bytes into shared memory, of which only the first n are read and the others become 0.
__device__ __forceinline__ void copy_16(u32 to, const u16* from, int n) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(to), "l"(from), "r"(n) : "memory");
#else
    u32 v[4] = {0, 0, 0, 0};
    if (n == 16) {
        const uint4 all = *(const uint4*)from;
        v[0] = all.x; v[1] = all.y; v[2] = all.z; v[3] = all.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (2 * i < n) v[i / 2] |= (u32)from[i] << (16 * (i & 1));
    }
    asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
#endif
}

// N bytes, 4 or 8, into shared memory, of which only the first n are read.
template <int N>
__device__ __forceinline__ void copy_small(u32 to, const u8* from, int n) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0],[%1],%2,%3;" ::"r"(to), "l"(from), "n"(N), "r"(n) : "memory");
#endif
}

__device__ __forceinline__ void end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait until only the last N groups may still be in flight.
template <int N>
__device__ __forceinline__ void await_groups() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
