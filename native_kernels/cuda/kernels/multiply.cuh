// Matrices times a vector, or a few, as products.cu explains.
#pragma once
#include "rounding.cuh"

struct Part {
    Planes planes;
    float* out;
    const float* bias;
    int n_rows, n_blocks;
};

// split: how many warps share a row, 1 to 8, a power of two. With EACH, the first rows_each rows (an even number) are
// multiplied by the first x.n numbers of x, the next ones by the next numbers, and so on; their results begin out_step
// numbers apart.
struct Products {
    Part parts[3];
    Vector x;
    int split, relu, rows_each, out_step;
    u64 vector_step;  // bytes from one vector to the next, and from its results to the next one's
};

// Blocks of WARPS warps, each with ROWS rows, or with its share of them. VECTORS: number of vectors, each of which gets
// the same bits as alone.
template <bool EACH, class C, int ROWS, int AHEAD, int WARPS, int VECTORS = 1>
DEVICE void multiply(const Products& job) {
    __shared__ float sums[VECTORS][WARPS][ROWS];
    int block = blockIdx.x, p = 0;
    while (block >= job.parts[p].n_blocks) block -= job.parts[p++].n_blocks;
    const Part& part = job.parts[p];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = WARPS / job.split;
    const int share = warp % job.split, first = (block * groups + warp / job.split) * ROWS;
    float found[VECTORS][ROWS] = {};
    if (first < part.n_rows) {
        typename C::Row rows[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) rows[i] = C::row(part.planes, job.x.n, min(first + i, part.n_rows - 1));
        if (EACH) {
            const int before = first / job.rows_each * job.x.n;
            const Vector x = {job.x.values + before, job.x.bytes + before, job.x.scales + before / 32, job.x.n};
            add_dots<C, ROWS, AHEAD>(rows, x, 32 * share + lane, 32 * job.split, C::units(x.n), found[0], true);
        } else if (VECTORS == 1) {
            add_dots<C, ROWS, AHEAD>(rows, job.x, 32 * share + lane, 32 * job.split, C::units(job.x.n), found[0], true);
        } else {
            add_dots_of_several<C, ROWS, AHEAD>(rows, job.x, job.vector_step, 32 * share + lane, 32 * job.split,
                                                C::units(job.x.n), found, true);
        }
    }
    WAIT;  // lanes without a unit
#pragma unroll
    for (int k = 0; k < VECTORS; k++) {
        const float whole = warp_sums(found[k]);
        if (lane % (32 / ROWS) == 0) sums[k][warp][lane * ROWS / 32] = whole;
    }
    __syncthreads();
    const int of_vector = groups * ROWS, vector = VECTORS == 1 ? 0 : threadIdx.x / of_vector;
    const int own = threadIdx.x - vector * of_vector, mine = own / ROWS, row = block * of_vector + own;
    if ((VECTORS == 1 ? mine >= groups : vector >= VECTORS) || row >= part.n_rows) return;
    float sum = 0.f;
    for (int k = 0; k < job.split; k++) sum += sums[vector][mine * job.split + k][own % ROWS];
    if (part.bias) sum += __ldg(part.bias + row);
    const int to = EACH ? row / job.rows_each * job.out_step + row % job.rows_each : row;
    float* out = (float*)((u8*)part.out + vector * job.vector_step);
    out[to] = job.relu && sum < 0.f ? 0.f : sum;  // NaN stays NaN
}
