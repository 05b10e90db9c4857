// Shared by the kernels: short names, and loads and stores in an order that the CPU sees.
//
// No toolkit header is needed. Memory that the CPU writes while a kernel runs is read with load_fresh, never through a
// const __restrict__ pointer: the compiler may read that through a cache that is not coherent with the CPU.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

// From 9.0 on a kernel may start before the previous kernel of its stream ends (runtime/driver.py), so every kernel waits
// for its end and its writes before it reads or writes anything but weights. WAIT is the first statement, except in:
//
//   kernels of a token  START_NEXT; WAIT: the next kernel may start when all blocks of this one have begun. It must read
//                       what this one writes with plain loads: __ldg and load_once may read too early, or from a cache
//                       that is not coherent.
//   some of their       START_NEXT, and WAIT after the first weights, which no kernel of a token writes, were requested.
//   products
//
// Prefill was not faster where its kernels start the next one. Both statements may be repeated.
#if __CUDA_ARCH__ >= 900
#define START_NEXT asm volatile("griddepcontrol.launch_dependents;")
#define WAIT asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define START_NEXT
#define WAIT
#endif

// Sixteen bytes of weights: read once, so they bypass the first-level cache.
__device__ __forceinline__ uint4 load_once(const uint4* at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

// What an earlier kernel wrote, read here and no earlier.
__device__ __forceinline__ uint4 load_written(const uint4* at) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

// Numbers that the CPU has written.
__device__ __forceinline__ float4 load_fresh(const float4* at) {
    float4 v;
    asm volatile("ld.volatile.global.v4.f32 {%0,%1,%2,%3},[%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(at));
    return v;
}

// A flag for the CPU, which sees it only after everything that this thread wrote before.
__device__ __forceinline__ void store_flag(u64* at, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0],%1;" ::"l"(at), "l"(value) : "memory");
}
