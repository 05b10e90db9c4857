// Copy rows of matrices from host memory to the GPU's own, where the wanted rows are not contiguous, so that the copy
// engine cannot do it. It is limited by the bus, so a few blocks are enough.
#include "common.cuh"

#define AT_ONCE 4  // 16-byte loads that each thread has in flight

// Row i begins at rows + i * stride, with any alignment, and goes to `to` + its place * step; both are multiples of 16.
struct Source {
    const u8* rows;
    u64 stride, row_bytes;
    u8* to;
    u64 step;
};

// Sixteen bytes from byte `skip` of two 16-byte words on.
__device__ __forceinline__ uint4 joined(uint4 a, uint4 b, int skip) {
    u32 v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    if (skip & 8) {
#pragma unroll
        for (int i = 0; i < 6; i++) v[i] = v[i + 2];
    }
    if (skip & 4) {
#pragma unroll
        for (int i = 0; i < 5; i++) v[i] = v[i + 1];
    }
    const int bits = 8 * (skip & 3);
    return make_uint4(__funnelshift_r(v[0], v[1], bits), __funnelshift_r(v[1], v[2], bits),
                      __funnelshift_r(v[2], v[3], bits), __funnelshift_r(v[3], v[4], bits));
}

// The lowest `n` bytes of four.
__device__ __forceinline__ u32 lowest(u32 v, int n) { return n >= 4 ? v : n <= 0 ? 0u : v & ((1u << (8 * n)) - 1u); }

// Copy row ids[i] (row i without ids) of each of n_sources matrices to place i of n. A warp takes a row. It reads aligned 16-byte words
// (never one without a byte of the row), and combines two of them for each word of the target; the rest of the last one
// becomes 0.
KERNEL __launch_bounds__(1024) gather_rows(Source first, Source second, Source third, int n_sources, const int* ids,
                                           int n) {
    WAIT;
    const int lane = threadIdx.x & 31, warps = (blockDim.x >> 5) * gridDim.x;
    for (int i = (threadIdx.x >> 5) * gridDim.x + blockIdx.x; i < n * n_sources; i += warps) {
        const int which = i / n, place = i - which * n;
        const Source from = which == 0 ? first : which == 1 ? second : third;
        const u64 start = (u64)from.rows + (u64)(ids ? ids[place] : place) * from.stride;
        const int skip = (int)(start & 15), row_bytes = (int)from.row_bytes;
        const uint4* pieces = (const uint4*)(start - skip);
        uint4* to = (uint4*)(from.to + (u64)place * from.step);
        const int n_read = (skip + row_bytes + 15) / 16, n_made = (row_bytes + 15) / 16;
        uint4 before = make_uint4(0, 0, 0, 0);
        // From the beginning of a memory line on, so that a warp reads whole lines.
        for (int start_at = -(int)((start & 127) / 16); start_at <= n_made; start_at += 32 * AT_ONCE) {
            uint4 found[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                const int piece = start_at + 32 * k + lane;
                found[k] = make_uint4(0, 0, 0, 0);
                if (piece >= 0 && piece < n_read) found[k] = load_once(pieces + piece);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                const uint4 own = found[k], edge = before;
                uint4 lower;
                lower.x = __shfl_sync(0xffffffffu, lane == 31 ? edge.x : own.x, (lane + 31) & 31);
                lower.y = __shfl_sync(0xffffffffu, lane == 31 ? edge.y : own.y, (lane + 31) & 31);
                lower.z = __shfl_sync(0xffffffffu, lane == 31 ? edge.z : own.z, (lane + 31) & 31);
                lower.w = __shfl_sync(0xffffffffu, lane == 31 ? edge.w : own.w, (lane + 31) & 31);
                before = own;
                const int made = start_at + 32 * k + lane - 1, left = row_bytes - 16 * made;
                if (made < 0 || made >= n_made) continue;
                uint4 v = joined(lower, own, skip);
                if (left < 16)
                    v = make_uint4(lowest(v.x, left), lowest(v.y, left - 4), lowest(v.z, left - 8),
                                   lowest(v.w, left - 12));
                to[made] = v;
            }
        }
    }
}
