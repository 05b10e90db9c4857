// The input of a down that is stored row-wise: the activation of gate's products times up's, with its 8-bit form.
#include "activations.cuh"
#include "counts.cuh"
#include "rounding.cuh"

struct Elements {
    const float *first, *second;  // second 0: none
    Rounded to;
    u32* counts;
    int activation;
    float threshold;
};

// A thread's four numbers.
KERNEL __launch_bounds__(32 * MOST_WARPS) activate(const Elements job) {
    START_NEXT; WAIT;
    const int column = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    float v[4];
    u32 n_there = 0, n_opened = 0, n_fired = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[j] = 0.f;
        if (column + j < job.to.n) {
            v[j] = activated(job.activation, job.first[column + j], job.threshold);
            const bool opened = v[j] != 0.f;
            if (job.second && opened) v[j] *= beside(job.activation, job.second[column + j], job.threshold);
            if (job.to.values) job.to.values[column + j] = v[j];
            n_there++, n_opened += opened, n_fired += v[j] != 0.f;
        }
    }
    if (job.to.bytes) round_four(job.to, column, v);
    if (job.counts) {
#pragma unroll
        for (int o = 16; o; o >>= 1) {
            n_there += __shfl_xor_sync(FULL_WARP, n_there, o);
            n_opened += __shfl_xor_sync(FULL_WARP, n_opened, o);
            n_fired += __shfl_xor_sync(FULL_WARP, n_fired, o);
        }
        if (threadIdx.x % 32 == 0) add_counts(job.counts, n_there, n_opened, n_fired);
    }
}
