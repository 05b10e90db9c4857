// A layer's hot neurons: gate, up, and the input of down (down.cu).
//
// FIRST and SECOND are the codecs of gate and up (weights.cuh); without a gate FIRST is up's. A block's warps share a
// tile of up to 32 slots, blockIdx.x, blockIdx.x + gridDim.x and so on, because neighbours often fire alike. One ballot
// finds the slots to compute, without a list in memory. `split` warps share a row; the others take other rows. At the
// end lane i of the first warp finishes slot i of the tile.
#include "activations.cuh"
#include "counts.cuh"
#include "weights.cuh"

#ifndef FIRST
#define FIRST F16
#endif
#ifndef SECOND
#define SECOND FIRST
#endif

struct Neurons {
    Planes first, second;
    const float *first_bias, *second_bias;
    Vector x;
    const int* neuron_in;  // negative: the slot is empty; 0: all slots are full
    const u32* bits;       // by neuron number; 0: all
    u32* fired;
    float* h;
    u32* counts;
    int n_slots, activation;
    float threshold;
    int split;
};

// Units of a row in flight per lane, by how many rows are read together; and how many blocks should fit on a
// multiprocessor.
template <class C>
struct Tuned {
    static const int OF_ONE = 4, OF_TWO = 2, RESIDENT = 5;
};
template <bool BRAIN>
struct Tuned<TwoByteFloats<BRAIN>> {
    static const int OF_ONE = 8, OF_TWO = 4, RESIDENT = BRAIN ? 4 : 6;
};
template <>
struct Tuned<F32> {
    static const int OF_ONE = 8, OF_TWO = 4, RESIDENT = 4;
};
struct OfSuperblocks {
    static const int OF_ONE = 2, OF_TWO = 2, RESIDENT = 5;
};
template <>
struct Tuned<Q4_K> : OfSuperblocks {};
template <>
struct Tuned<Q6_K> : OfSuperblocks {};
template <>
struct Tuned<Q5_K> : OfSuperblocks {};
template <>
struct Tuned<Q3_K> : OfSuperblocks {};

typedef float Sums[MOST_WARPS][32];  // [warp of a row][slot of the tile]

// Rows times x for the slots of the tile whose bit is set in `slots`: the share of part `part` of a row.
template <class C, int ROWS>
DEVICE void multiply(const Planes (&matrices)[ROWS], const Neurons& job, u32 slots, int part, Sums* out) {
    const int AHEAD = ROWS == 1 ? Tuned<C>::OF_ONE : Tuned<C>::OF_TWO;
    const int n_units = C::units(job.x.n), lane = threadIdx.x % 32, step = 32 * job.split;
#pragma unroll 1
    for (; slots; slots &= slots - 1) {
        const int place = __ffs(slots) - 1, slot = blockIdx.x + place * gridDim.x;
        typename C::Row rows[ROWS];
        float sums[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) rows[i] = C::row(matrices[i], job.x.n, slot), sums[i] = 0.f;
        int unit = 32 * part + lane;
#pragma unroll 1
        for (; unit - lane + (AHEAD - 1) * step + 32 <= n_units; unit += AHEAD * step) {
            typename C::Unit w[AHEAD][ROWS];
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
#pragma unroll
                for (int i = 0; i < ROWS; i++) w[a][i] = C::load(rows[i], unit + a * step);
            }
            WAIT;
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const typename C::Input v = C::input(job.x, unit + a * step);
#pragma unroll
                for (int i = 0; i < ROWS; i++) sums[i] = C::dot(w[a][i], v, sums[i]);
            }
        }
        add_dots<C, ROWS, (AHEAD + 1) / 2>(rows, job.x, unit, step, n_units, sums, true);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float sum = warp_sum(sums[i]);
            if (lane == 0) out[i][part][place] = sum;
        }
    }
}

// A slot's product, summed over its parts; bias 0: none.
DEVICE float whole(const Sums& sums, const Neurons& job, const float* bias, int slot) {
    const int lane = threadIdx.x % 32;
    float sum = sums[0][lane];
    for (int i = 1; i < job.split; i++) sum += sums[i][lane];
    return bias ? sum + __ldg(bias + slot) : sum;
}

template <class A, class B>
struct Same {
    static const bool VALUE = false;
};
template <class A>
struct Same<A, A> {
    static const bool VALUE = true;
};

enum Order { ONE, TOGETHER, IN_TURN };  // one matrix; both at once; the second where the first fires

template <Order ASKED>
DEVICE void tile(const Neurons& job) {
    const Order ORDER = ASKED == TOGETHER && !Same<FIRST, SECOND>::VALUE ? IN_TURN : ASKED;
    __shared__ Sums sums[2];
    if (job.bits) WAIT;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % job.split;
    const int n_groups = blockDim.x / 32 / job.split, group = warp / job.split;
    const u64 own = blockIdx.x + (u64)lane * gridDim.x;
    const bool there = own < job.n_slots;
    const int neuron = there && job.neuron_in ? __ldg(job.neuron_in + own) : there - 1;
    bool wanted = neuron >= 0;
    if (wanted && job.bits) wanted = job.bits[neuron / 32] >> (neuron % 32) & 1;
    const u32 computed = __ballot_sync(FULL_WARP, wanted), before = (1u << lane) - 1;
    u32 slots = __ballot_sync(FULL_WARP, wanted && __popc(computed & before) % n_groups == group);
    if constexpr (ORDER == TOGETHER) {
        const Planes both[2] = {job.first, job.second};
        multiply<FIRST, 2>(both, job, slots, part, sums);
    } else {
        const Planes alone[1] = {job.first};
        multiply<FIRST, 1>(alone, job, slots, part, sums);
    }
    WAIT;  // lanes without a unit
    __syncthreads();
    float value = 0.f;
    if (wanted && (warp == 0 || ORDER == IN_TURN))
        value = activated(job.activation, whole(sums[0], job, job.first_bias, own), job.threshold);
    const u32 opened = __ballot_sync(FULL_WARP, value != 0.f);
    if constexpr (ORDER == IN_TURN) {
        slots = __ballot_sync(FULL_WARP, value != 0.f && __popc(opened & before) % n_groups == group);
        const Planes alone[1] = {job.second};
        multiply<SECOND, 1>(alone, job, slots, part, sums + 1);
        __syncthreads();
    }
    if (warp) return;
    if (ORDER != ONE && value != 0.f) {
        value *= beside(job.activation, whole(sums[1], job, job.second_bias, own), job.threshold);
    }
    const u32 fired = __ballot_sync(FULL_WARP, value != 0.f);
    if (there) job.h[own] = value;
    if (job.fired && value != 0.f) atomicAdd(job.fired + own, 1);  // uncontended, but needs no wait
    if (job.counts && lane == 0) add_counts(job.counts, __popc(computed), __popc(opened), __popc(fired));
}

#define ROOM (Tuned<FIRST>::RESIDENT < Tuned<SECOND>::RESIDENT ? Tuned<FIRST>::RESIDENT : Tuned<SECOND>::RESIDENT)

KERNEL __launch_bounds__(32 * MOST_WARPS, Tuned<FIRST>::RESIDENT) hidden_of_one(const Neurons job) { START_NEXT; tile<ONE>(job); }
KERNEL __launch_bounds__(32 * MOST_WARPS, ROOM) hidden_together(const Neurons job) { START_NEXT; tile<TOGETHER>(job); }
KERNEL __launch_bounds__(32 * MOST_WARPS, ROOM) hidden_in_turn(const Neurons job) { START_NEXT; tile<IN_TURN>(job); }
