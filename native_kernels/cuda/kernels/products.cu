// Rounding of a vector to bytes, and matrices times a vector: as numbers, or as bits where they reach a threshold.
//
// A row is summed by one warp or by several of a block, always in the same order; blocks share nothing, and nothing is
// allocated. Blocks have 256 threads, those of some `expect` 128 (products.py knows which).
//
// Rows per warp and loads of each in flight were tuned on an H200. There f16 matrices of 8192 x 8192 reach 95 % of the
// speed of a plain read and those of 5120 x 5120, which take 15 us, 81 %; q4_0 79 and 56 %. With four loads of a row in
// flight instead of two, fewer blocks fit and the last ones take longer: most shapes were 3 to 20 % slower.
#include "copies.cuh"
#include "multiply.cuh"

// ------------------------------------------------------------ rounding

// Zeros beyond the end.
DEVICE void four_numbers(const Rounded& job, int column, float (&v)[4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = column + j < job.n ? job.x[column + j] : 0.f;
}

KERNEL __launch_bounds__(256) quantise(const Rounded job) {
    START_NEXT; WAIT;
    const int column = 4 * (blockIdx.x * 256 + threadIdx.x);
    float v[4];
    four_numbers(job, column, v);
    round_four(job, column, v);
}

KERNEL __launch_bounds__(256) signs(const Rounded job) {
    START_NEXT; WAIT;
    const int column = 4 * (blockIdx.x * 256 + threadIdx.x);
    float v[4];
    four_numbers(job, column, v);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (v[j] == v[j]) v[j] = v[j] < 0.f ? -1.f : 1.f;
        if (column + j >= job.n) v[j] = 0.f;
        else if (job.values) job.values[column + j] = v[j];
    }
    if (job.bytes) round_four(job, column, v);
}

// ------------------------------------------------------------ products

KERNEL __launch_bounds__(256, 4) multiply_f32(const Products job) { START_NEXT; multiply<false, F32, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_f16(const Products job) { START_NEXT; multiply<false, F16, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_bf16(const Products job) { START_NEXT; multiply<false, BF16, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q8_0(const Products job) { START_NEXT; multiply<false, Q8_0, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q4_0(const Products job) { START_NEXT; multiply<false, Q4_0, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q4_k(const Products job) { START_NEXT; multiply<false, Q4_K, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 3) multiply_q6_k(const Products job) { START_NEXT; multiply<false, Q6_K, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_mxfp4(const Products job) { START_NEXT; multiply<false, MXFP4, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q5_k(const Products job) { START_NEXT; multiply<false, Q5_K, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_iq4_nl(const Products job) { START_NEXT; multiply<false, IQ4_NL, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_iq4_xs(const Products job) { START_NEXT; multiply<false, IQ4_XS, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q5_0(const Products job) { START_NEXT; multiply<false, Q5_0, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q4_1(const Products job) { START_NEXT; multiply<false, Q4_1, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q5_1(const Products job) { START_NEXT; multiply<false, Q5_1, 2, 2, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q3_k(const Products job) { START_NEXT; multiply<false, Q3_K, 2, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) multiply_q2_k(const Products job) { START_NEXT; multiply<false, Q2_K, 2, 2, 8>(job); }

// ------------------------------------------------------------ which neurons are expected to fire

struct Expected {
    Planes planes;
    Vector x;
    const float* bias;
    const u32* among;
    u32 *bits, *copied;
    int n_rows;
    float threshold;
};

// Of the requested rows, counted from the first, those from `from` up to `to`, ROWS at a time: a bit each. rank: of the
// row with the lane's number in the block, -1 if it is not requested.
template <class C, int ROWS, int AHEAD>
DEVICE u32 reached(const Expected& job, int rank, int from, int to) {
    const int lane = threadIdx.x % 32;
    u32 bits = 0;
    for (; from < to; from += ROWS) {
        typename C::Row rows[ROWS];
        float found[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const u32 there = __ballot_sync(FULL_WARP, rank == min(from + i, to - 1));
            const int row = 32 * blockIdx.x + __ffs(there) - 1;
            rows[i] = C::row(job.planes, job.x.n, row);
            found[i] = job.bias && lane == 0 ? __ldg(job.bias + row) : 0.f;
        }
        add_dots<C, ROWS, AHEAD>(rows, job.x, lane, 32, C::units(job.x.n), found);
        const u32 set = __ballot_sync(FULL_WARP, warp_sums(found) >= job.threshold);
#pragma unroll
        for (int i = 0; i < ROWS; i++) bits |= from + i < to ? (set >> (32 / ROWS * i) & 1) << (from + i) : 0;
    }
    return bits;
}

// A block of WARPS warps has the 32 rows of one word of bits. Few rows are dealt out one by one, many ROWS by ROWS.
template <class C, int ROWS, int AHEAD, int WARPS>
DEVICE void expect(const Expected& job) {
    __shared__ u32 found[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, left = job.n_rows - 32 * blockIdx.x;
    u32 asked = left < 32 ? (1u << left) - 1 : FULL_WARP;
    if (job.among) asked &= job.among[blockIdx.x];
    const int rank = asked >> lane & 1 ? __popc(asked & ((1u << lane) - 1)) : -1;
    const int n = __popc(asked), each = (n + WARPS - 1) / WARPS, from = min(n, warp * each), to = min(n, from + each);
    const u32 bits = 2 * each <= ROWS ? reached<C, 1, 2 * AHEAD>(job, rank, from, to)
                                      : reached<C, ROWS, AHEAD>(job, rank, from, to);
    if (lane == 0) found[warp] = bits;
    __syncthreads();
    if (warp) return;
    u32 all = 0;
#pragma unroll
    for (int k = 0; k < WARPS; k++) all |= found[k];
    all = __ballot_sync(FULL_WARP, rank >= 0 && (all >> rank & 1));
    if (lane) return;
    job.bits[blockIdx.x] = all;
    if (job.copied && n) atomicAdd(job.copied, (u32)n);
}

KERNEL __launch_bounds__(256, 4) expect_f32(const Expected job) { START_NEXT; WAIT; expect<F32, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_f16(const Expected job) { START_NEXT; WAIT; expect<F16, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_bf16(const Expected job) { START_NEXT; WAIT; expect<BF16, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_q8_0(const Expected job) { START_NEXT; WAIT; expect<Q8_0, 4, 1, 8>(job); }
KERNEL __launch_bounds__(128, 7) expect_q4_0(const Expected job) { START_NEXT; WAIT; expect<Q4_0, 8, 1, 4>(job); }
KERNEL __launch_bounds__(256, 4) expect_q4_k(const Expected job) { START_NEXT; WAIT; expect<Q4_K, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 2) expect_q6_k(const Expected job) { START_NEXT; WAIT; expect<Q6_K, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_mxfp4(const Expected job) { START_NEXT; WAIT; expect<MXFP4, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_q5_k(const Expected job) { START_NEXT; WAIT; expect<Q5_K, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_iq4_nl(const Expected job) { START_NEXT; WAIT; expect<IQ4_NL, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_iq4_xs(const Expected job) { START_NEXT; WAIT; expect<IQ4_XS, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_q5_0(const Expected job) { START_NEXT; WAIT; expect<Q5_0, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_q4_1(const Expected job) { START_NEXT; WAIT; expect<Q4_1, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_q5_1(const Expected job) { START_NEXT; WAIT; expect<Q5_1, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 3) expect_q3_k(const Expected job) { START_NEXT; WAIT; expect<Q3_K, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_q2_k(const Expected job) { START_NEXT; WAIT; expect<Q2_K, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_copy1(const Expected job) { START_NEXT; WAIT; expect<Copy<1>, 4, 1, 8>(job); }
KERNEL __launch_bounds__(256, 4) expect_copy2(const Expected job) { START_NEXT; WAIT; expect<Copy<2>, 4, 1, 8>(job); }
KERNEL __launch_bounds__(128, 7) expect_copy3(const Expected job) { START_NEXT; WAIT; expect<Copy<3>, 8, 1, 4>(job); }
KERNEL __launch_bounds__(128, 7) expect_copy4(const Expected job) { START_NEXT; WAIT; expect<Copy<4>, 8, 1, 4>(job); }
