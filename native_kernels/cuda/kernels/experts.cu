// The chosen experts of one token: products with the rows of those that are resident, each in its slot.
//
// CODEC is the codec of the matrices (weights.cuh), UNITS_AHEAD the units of a row that a lane has in flight. Slots are read
// from memory when a kernel runs, so that captured work serves every choice. An expert that is not resident adds 0.
#include "weights.cuh"

#ifndef CODEC
#define CODEC Q4_0
#endif
#ifndef UNITS_AHEAD
#define UNITS_AHEAD 2
#endif

#define WARPS_OF_BLOCK 8
#define ROWS_OF_WARP 2  // at a time

struct Product {
    Planes planes;
    float* out;
    const float* bias;  // [S, n_rows]; 0: none
    int weighed;        // whether the weights multiply it
};

// out [K, n_rows] = weight (of products that are weighed) * (the slot's rows times x + bias), of one or two matrices. x: one vector for all experts, or
// one after another, x_step numbers apart. weights [K]. split: warps that share a row, a power of two.
struct Products {
    Product products[2];
    Vector x;
    const int* slots;
    const float* weights;
    int x_step, n_rows, split;
};

// Grid: blocks of rows, experts, matrices.
KERNEL __launch_bounds__(32 * WARPS_OF_BLOCK, 4) multiply_chosen(const Products job) {
    START_NEXT; WAIT;
    __shared__ float sums[WARPS_OF_BLOCK][ROWS_OF_WARP];
    const Product& product = job.products[blockIdx.z];
    const int expert = blockIdx.y, slot = job.slots[expert], warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int groups = WARPS_OF_BLOCK / job.split, share = warp % job.split;
    const int mine = threadIdx.x / ROWS_OF_WARP, row = blockIdx.x * groups * ROWS_OF_WARP + threadIdx.x;
    float* out = product.out + (u64)expert * job.n_rows;
    if (slot < 0) {
        if (mine < groups && row < job.n_rows) out[row] = 0.f;
        return;
    }
    const u64 at = (u64)expert * job.x_step;
    const Vector x = {job.x.values + at, job.x.bytes + at, job.x.scales + at / 32, job.x.n};
    const int first = (blockIdx.x * groups + warp / job.split) * ROWS_OF_WARP;
    float found[ROWS_OF_WARP] = {};
    if (first < job.n_rows) {
        CODEC::Row rows[ROWS_OF_WARP];
#pragma unroll
        for (int i = 0; i < ROWS_OF_WARP; i++)
            rows[i] = CODEC::row(product.planes, x.n, slot * job.n_rows + min(first + i, job.n_rows - 1));
        add_dots<CODEC, ROWS_OF_WARP, UNITS_AHEAD>(rows, x, 32 * share + lane, 32 * job.split, CODEC::units(x.n), found);
    }
    const float whole = warp_sums(found);
    if (lane % (32 / ROWS_OF_WARP) == 0) sums[warp][lane * ROWS_OF_WARP / 32] = whole;
    __syncthreads();
    if (mine >= groups || row >= job.n_rows) return;
    float sum = 0.f;
    for (int k = 0; k < job.split; k++) sum += sums[mine * job.split + k][threadIdx.x % ROWS_OF_WARP];
    if (product.bias) sum += __ldg(product.bias + (u64)slot * job.n_rows + row);
    out[row] = product.weighed ? sum * job.weights[expert] : sum;
}

// parts [K, segments, D] = weight * (sums over a segment of the expert's neurons of h times its row of down), where down
// is stored by neuron, [S * F, D]. The bias [S, D] belongs to the first segment. Rows with h = 0 are not read.
struct Sums {
    Planes planes;
    const float *h, *bias, *weights;
    const int* slots;
    float* parts;
    int width, n_cols;
};

// Grid: blocks of 32 units of columns, segments, experts. A block's warps take turns with the rows.
KERNEL __launch_bounds__(128) sum_chosen(const Sums job) {
    START_NEXT; WAIT;
    __shared__ float sums[4][32 * CODEC::COLUMNS];
    const int expert = blockIdx.z, segment = blockIdx.y, segments = gridDim.y;
    const int slot = job.slots[expert], warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int n_units = CODEC::units(job.n_cols), unit = blockIdx.x * 32 + lane;
    const float* h = job.h + (u64)expert * job.width;
    float* out = job.parts + ((u64)expert * segments + segment) * job.n_cols;
    float sum[CODEC::COLUMNS] = {};
    if (slot >= 0 && unit < n_units) {
        const int first = (int)((u64)job.width * segment / segments);
        const int last = (int)((u64)job.width * (segment + 1) / segments);
        for (int j = first + warp; j < last; j += 4) {
            const float by = h[j];
            if (by == 0.f) continue;
            float v[CODEC::COLUMNS];
            CODEC::values(CODEC::load(CODEC::row(job.planes, job.n_cols, slot * job.width + j), unit), v);
#pragma unroll
            for (int i = 0; i < CODEC::COLUMNS; i++) sum[i] = fmaf(by, v[i], sum[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < CODEC::COLUMNS; i++) sums[warp][i * 32 + lane] = sum[i];
    __syncthreads();
    const float weight = slot < 0 ? 0.f : job.weights ? job.weights[expert] : 1.f;
    for (int at = threadIdx.x; at < 32 * CODEC::COLUMNS; at += 128) {
        const int of = blockIdx.x * 32 + at % 32;
        const int column = CODEC::column(of, at / 32);
        if (of >= n_units || column >= job.n_cols) continue;
        float v = 0.f;
#pragma unroll
        for (int w = 0; w < 4; w++) v += sums[w][at];
        if (job.bias && segment == 0 && slot >= 0) v += __ldg(job.bias + (u64)slot * job.n_cols + column);
        out[column] = weight * v;
    }
}
