// How many neurons a launch computed, how many passed the first activation, and how many fired.
#pragma once
#include "common.cuh"

#define MOST_WARPS 4  // of a block

// One thread's share.
static __device__ __forceinline__ void add_counts(u32* counts, u32 computed, u32 opened, u32 fired) {
    if (computed) atomicAdd(counts, computed);
    if (opened) atomicAdd(counts + 1, opened);
    if (fired) atomicAdd(counts + 2, fired);
}
