// Matrices times a vector, as products.cu explains.
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
};

// Blocks of WARPS warps, each with ROWS rows, or with its share of them.
template <bool EACH, class C, int ROWS, int AHEAD, int WARPS>
DEVICE void multiply(const Products& job) {
    __shared__ float sums[WARPS][ROWS];
    int block = blockIdx.x, p = 0;
    while (block >= job.parts[p].n_blocks) block -= job.parts[p++].n_blocks;
    const Part& part = job.parts[p];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = WARPS / job.split;
    const int share = warp % job.split, first = (block * groups + warp / job.split) * ROWS;
    float found[ROWS] = {};
    if (first < part.n_rows) {
        typename C::Row rows[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) rows[i] = C::row(part.planes, job.x.n, min(first + i, part.n_rows - 1));
        if (EACH) {
            const int before = first / job.rows_each * job.x.n;
            const Vector x = {job.x.values + before, job.x.bytes + before, job.x.scales + before / 32, job.x.n};
            add_dots<C, ROWS, AHEAD>(rows, x, 32 * share + lane, 32 * job.split, C::units(x.n), found);
        } else {
            add_dots<C, ROWS, AHEAD>(rows, job.x, 32 * share + lane, 32 * job.split, C::units(job.x.n), found);
        }
    }
    const float whole = warp_sums(found);
    if (lane % (32 / ROWS) == 0) sums[warp][lane * ROWS / 32] = whole;
    __syncthreads();
    const int mine = threadIdx.x / ROWS, row = block * groups * ROWS + threadIdx.x;
    if (mine >= groups || row >= part.n_rows) return;
    float sum = 0.f;
    for (int k = 0; k < job.split; k++) sum += sums[mine * job.split + k][threadIdx.x % ROWS];
    if (part.bias) sum += __ldg(part.bias + row);
    const int to = EACH ? row / job.rows_each * job.out_step + row % job.rows_each : row;
    part.out[to] = job.relu && sum < 0.f ? 0.f : sum;  // NaN stays NaN
}
