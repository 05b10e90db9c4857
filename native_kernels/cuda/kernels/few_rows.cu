// Products of at most 32 positions with a matrix of halves, on tensor cores, for batched decode, which is bound by
// reading weights. Results equal those of multiply_rows in gemm.cu, whose blocks of 128 rows are too few then.
//
// A block of 256 threads computes 16 rows of the matrix times all positions. Its warps take turns along the columns, 32
// at a time, read straight from memory: four lanes read 16 bytes of each row each, and the same columns of the
// positions, so that the columns within 32 are permuted, but alike in both factors. The warps' sums are added in order.
// grid: y over the most rows, z products of the same x.
#include "tensor_cores.cuh"

#define ROWS 16
#define WARPS 8
#define DEPTH 32

// A product: its weights [n_out, depth], result and bias.
struct Product {
    const u16* w;
    float* out;
    const float* bias;
    u64 n_out;
};

// Up to three products of one x; the row strides of their weights and of their results are the same.
struct Products {
    Product of[3];
    const u16* x;
    u64 x_step, w_step, out_step;
    const float* factors;
    int n_tokens, depth, adds;
};

// Eight halves, of which `left` exist; the others become 0.
__device__ __forceinline__ uint4 take_8(const u16* from, int left) {
    if (left >= 8) return *(const uint4*)from;
    u32 v[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < left) v[i / 2] |= (u32)from[i] << (16 * (i & 1));
    return make_uint4(v[0], v[1], v[2], v[3]);
}

// TILES: of eight positions. AT_ONCE: steps of DEPTH columns in flight together.
template <int TILES, int AT_ONCE>
__device__ __forceinline__ void multiply_few(const Products& job) {
    __shared__ float all[WARPS][8 * TILES][ROWS + 1];
    const Product& mine = job.of[blockIdx.z];
    const u16 *x = job.x, *w = mine.w;
    const u64 x_step = job.x_step, w_step = job.w_step;
    const int n_tokens = job.n_tokens, depth = job.depth, n_out = (int)mine.n_out;
    if ((int)blockIdx.y * ROWS >= n_out) return;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int group = lane >> 2, part = lane & 3, row0 = blockIdx.y * ROWS;
    const u16* low = w + (u64)min(row0 + group, n_out - 1) * w_step + 8 * part;
    const u16* high = w + (u64)min(row0 + group + 8, n_out - 1) * w_step + 8 * part;
    const u16* from[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) from[t] = x + (u64)min(8 * t + group, n_tokens - 1) * x_step + 8 * part;

    float sums[TILES][4];
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++) sums[i / 4][i % 4] = 0.f;
    for (int start = DEPTH * warp; start < depth; start += DEPTH * WARPS * AT_ONCE) {
        uint4 a[AT_ONCE], b[AT_ONCE], c[AT_ONCE][TILES];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int k = start + DEPTH * WARPS * i, left = depth - k - 8 * part;
            a[i] = take_8(low + k, left);
            b[i] = take_8(high + k, left);
#pragma unroll
            for (int t = 0; t < TILES; t++) c[i][t] = take_8(from[t] + k, left);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const u32 first[4] = {a[i].x, b[i].x, a[i].y, b[i].y}, second[4] = {a[i].z, b[i].z, a[i].w, b[i].w};
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                multiply_tile(sums[t], first, c[i][t].x, c[i][t].y);
                multiply_tile(sums[t], second, c[i][t].z, c[i][t].w);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) all[warp][8 * t + 2 * part + (i & 1)][group + 8 * (i >> 1)] = sums[t][i];
    __syncthreads();
    for (int i = threadIdx.x; i < 8 * TILES * ROWS; i += 32 * WARPS) {
        const int token = i / ROWS, row = row0 + i % ROWS;
        if (token >= n_tokens || row >= n_out) continue;
        float value = 0.f;
#pragma unroll
        for (int k = 0; k < WARPS; k++) value += all[k][token][i % ROWS];
        value *= job.factors ? job.factors[token] : 1.f;
        if (mine.bias) value += mine.bias[row];
        float* to = mine.out + token * job.out_step + row;
        *to = job.adds ? *to + value : value;
    }
}

KERNEL __launch_bounds__(256, 2) multiply_few_8(const Products job) { multiply_few<1, 5>(job); }

KERNEL __launch_bounds__(256, 2) multiply_few_16(const Products job) { multiply_few<2, 4>(job); }

KERNEL __launch_bounds__(256, 2) multiply_few_32(const Products job) { multiply_few<4, 2>(job); }
