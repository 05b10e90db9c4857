// Finish a library's product of rows, which has neither the rows' factors nor a bias.
//
// scale_rows: rows [T, n] of f32, `step` apart, times factors[t], plus bias[n] (0: none). With `undo`, times 1 /
// factors[t] instead, so that a product which is still to be multiplied by them can be added. Factors are powers of
// two, so both are exact. Mostly they are 1 and there is no bias: then nothing is read. grid: x T, y the rows of one
// product or of two; 256 threads.
#include "common.cuh"

KERNEL __launch_bounds__(256) scale_rows(float* out, float* other, u64 step, int n, const float* factors,
                                         const float* bias, const float* other_bias, int undo) {
    WAIT;
    const float given = factors[blockIdx.x], factor = undo ? 1.f / given : given;
    const float* shift = blockIdx.y ? other_bias : bias;
    if (factor == 1.f && !shift) return;
    float* row = (blockIdx.y ? other : out) + blockIdx.x * step;
    for (int i = threadIdx.x; i < n; i += 256) row[i] = row[i] * factor + (shift ? shift[i] : 0.f);
}
