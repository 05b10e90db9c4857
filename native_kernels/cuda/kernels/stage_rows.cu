// Copy the rows of neurons that any sequence of a batch needs from host memory, over the bus, to the GPU. The places of
// the others are cleared, so that every number there is defined.
//
// Every block lists the neurons in the same order, and all warps of the grid take turns with their rows, so that the
// bus is equally busy until the end, however the rows are spread.
#include "common.cuh"

#define THREADS 1024
#define WARPS (THREADS / 32)
#define MOST_SLOTS 16384
#define MOST_PLANES 12  // of three matrices
#define AHEAD 4         // lines of a row in flight per lane

struct Plane {
    const uint4* from;
    uint4* to;
    u64 n_lines;  // of a row; rows are contiguous
};

struct Staged {
    Plane planes[MOST_PLANES];
    const int* neuron_in;  // negative: the slot is empty
    const u32* words;      // by neuron number, 0: not needed; address 0: all are needed
    u32* count;            // incremented by the neurons read
    int n_planes, n_slots;
};

// The needed slots in order, then the others in order; returns how many are needed.
__device__ __forceinline__ int listed(const Staged& job, u16* order, int* of_warp) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int n_needed = 0;
    for (int start = 0; start < job.n_slots; start += THREADS) {
        const int slot = start + (int)threadIdx.x, neuron = slot < job.n_slots ? job.neuron_in[slot] : -1;
        const bool needed = neuron >= 0 && (!job.words || job.words[neuron]);
        const u32 mine = __ballot_sync(0xffffffffu, needed);
        if (lane == 0) of_warp[warp] = __popc(mine);
        __syncthreads();
        int before = n_needed;
        for (int w = 0; w < WARPS; w++) {
            if (w < warp) before += of_warp[w];
            n_needed += of_warp[w];
        }
        before += __popc(mine & ((1u << lane) - 1));
        if (needed) order[before] = (u16)slot;
        else if (slot < job.n_slots) order[job.n_slots - 1 - (slot - before)] = (u16)slot;
        __syncthreads();
    }
    return n_needed;
}

KERNEL __launch_bounds__(1024, 1) stage_rows(const Staged job) {
    WAIT;
    __shared__ u16 order[MOST_SLOTS];
    __shared__ int of_warp[WARPS];
    const int n_needed = listed(job, order, of_warp);
    if (blockIdx.x == 0 && threadIdx.x == 0) *job.count += (u32)n_needed;
    const int lane = threadIdx.x & 31, n_warps = gridDim.x * WARPS;
    const int first = (threadIdx.x >> 5) * gridDim.x + blockIdx.x;
    const uint4 none = make_uint4(0, 0, 0, 0);
    for (int unit = first; unit < (job.n_slots - n_needed) * job.n_planes; unit += n_warps) {
        const Plane& plane = job.planes[unit % job.n_planes];
        const int n_lines = (int)plane.n_lines;
        uint4* to = plane.to + (u64)order[n_needed + unit / job.n_planes] * n_lines;
        for (int i = lane; i < n_lines; i += 32) to[i] = none;
    }
    for (int unit = first; unit < n_needed * job.n_planes; unit += n_warps) {
        const Plane& plane = job.planes[unit % job.n_planes];
        const int n_lines = (int)plane.n_lines;
        const u64 row = (u64)order[unit / job.n_planes] * n_lines;
        const uint4* from = plane.from + row;
        uint4* to = plane.to + row;
        for (int start = lane; start < n_lines; start += 32 * AHEAD) {
            uint4 lines[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                lines[i] = start + 32 * i < n_lines ? load_once(from + start + 32 * i) : none;
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (start + 32 * i < n_lines) to[start + 32 * i] = lines[i];
        }
    }
}
