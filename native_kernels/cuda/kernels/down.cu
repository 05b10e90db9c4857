// Down of a layer's hot neurons, stored neuron by neuron: partial sums of h[s] * row s, each over few rows.
//
// CODEC is the matrix's (weights.cuh). Blocks of 256 threads, grid (columns, parts). A block lists the slots of its
// part with nonzero h: eight neighbours of every 8 * parts, because neighbours often fire alike. Its threads share the
// columns, and GROUPS of them the rows of the list; the groups' sums are added in shared memory. The reader of the
// parts adds them up. No row of a slot with h = 0 is read.
#include "weights.cuh"

#ifndef CODEC
#define CODEC F16
#endif

#define THREADS 256
#define WARPS (THREADS / 32)
#define GROUPS 4
#define MOST_SLOTS 2048  // of a part

struct Down {
    Planes planes;
    const float* h;
    float* parts;  // [gridDim.y, n_cols]
    int n_slots, n_cols;
};

// ------------------------------------------------------------ the list of a part

struct Active {
    float values[MOST_SLOTS];
    int slots[MOST_SLOTS];
    int n_of_warps[WARPS];
    u32 top_of_warps[WARPS];
};

// Fill the list, warp by warp, and return its length. top: the bits of the largest |h|.
DEVICE int list_active(const Down& job, Active& list, u32& top) {
    const int PASSES = MOST_SLOTS / THREADS, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float values[PASSES];
    int n = 0;
    top = 0;
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        const int place = i * THREADS + threadIdx.x;
        const u32 slot = (place / 8 * gridDim.y + blockIdx.y) * 8 + place % 8;
        values[i] = slot < job.n_slots ? job.h[slot] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        n += __popc(__ballot_sync(FULL_WARP, values[i] != 0.f));
        const u32 size = __float_as_uint(values[i]) & 0x7fffffffu;
        top = size > top ? size : top;
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const u32 other = __shfl_xor_sync(FULL_WARP, top, o);
        top = other > top ? other : top;
    }
    if (lane == 0) list.n_of_warps[warp] = n, list.top_of_warps[warp] = top;
    __syncthreads();
    int at = 0, all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) at += list.n_of_warps[w];
        all += list.n_of_warps[w];
        top = list.top_of_warps[w] > top ? list.top_of_warps[w] : top;
    }
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        const bool active = values[i] != 0.f;
        const u32 some = __ballot_sync(FULL_WARP, active);
        if (active) {
            const int place = i * THREADS + threadIdx.x, to = at + __popc(some & ((1u << lane) - 1));
            list.values[to] = values[i];
            list.slots[to] = (place / 8 * gridDim.y + blockIdx.y) * 8 + place % 8;
        }
        at += __popc(some);
    }
    __syncthreads();
    return all;
}

// ------------------------------------------------------------ numbers stored as such

// A thread has a unit's columns of the rows of its group, ROWS at a time.
template <class C>
struct ByThread {
    static const int UNITS = THREADS / GROUPS;  // per block
    static const int ROWS = 8;
    typedef float Sums[GROUPS][UNITS][C::COLUMNS + 1];

    DEVICE float scale_back(u32) { return 1.f; }

    template <bool WHOLE>
    DEVICE void add(const Down& job, const Active& list, int n, int first, int unit, float (&sums)[C::COLUMNS]) {
        typename C::Unit w[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (WHOLE || first + i < n) w[i] = C::load(C::row(job.planes, job.n_cols, list.slots[first + i]), unit);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (WHOLE || first + i < n) {
                float numbers[C::COLUMNS];
                C::values(w[i], numbers);
                const float h = list.values[first + i];
#pragma unroll
                for (int c = 0; c < C::COLUMNS; c++) sums[c] = fmaf(h, numbers[c], sums[c]);
            }
        }
    }

    DEVICE void run(const Down& job, const Active& list, int n, u32, Sums& out) {
        const int own = threadIdx.x % UNITS, group = threadIdx.x / UNITS, unit = blockIdx.x * UNITS + own;
        float sums[C::COLUMNS];
#pragma unroll
        for (int c = 0; c < C::COLUMNS; c++) sums[c] = 0.f;
        if (unit < C::units(job.n_cols)) {
            int first = group * ROWS;
#pragma unroll 1
            for (; first + ROWS <= n; first += GROUPS * ROWS) add<true>(job, list, n, first, unit, sums);
            if (first < n) add<false>(job, list, n, first, unit, sums);
        }
#pragma unroll
        for (int c = 0; c < C::COLUMNS; c++) out[group][own][c] = sums[c];
    }
};

// ------------------------------------------------------------ small whole numbers under scales

DEVICE u32 bytes_of(u32 a, u32 b, u32 which) { return __byte_perm(a, b, which); }

// Halves 1024 + n or 64 + n to n, exactly.
DEVICE u32 less(u32 halves, u32 by) {
    u32 v;
    asm("sub.rn.f16x2 %0,%1,%2;" : "=r"(v) : "r"(halves), "r"(by));
    return v;
}

DEVICE u32 two_halves(float low, float high) {
    u32 v;
    asm("{.reg .f16 a,b; cvt.rn.f16.f32 a,%1; cvt.rn.f16.f32 b,%2; mov.b32 %0,{a,b};}" : "=r"(v) : "f"(low), "f"(high));
    return v;
}

// A unit's integers and their factors: sets of 16 columns, each under one factor. PAIRS: pairs of rows that a lane
// holds at once; EARLY: whether the next ones are loaded before these are used (both as registers allow).
// numbers: of two rows' units those in the bytes 2 i and 2 i + 1, as halves of a word: a's low, b's high; [set][byte].
// factors: of both sets, and what MINIMA subtract from both.
// v & mask | with; the compiler makes two instructions of it if it knows both.
DEVICE u32 masked(u32 v, u32 mask, u32 with) {
    u32 found;
    asm("lop3.b32 %0,%1,%2,%3,0xea;" : "=r"(found) : "r"(v), "r"(mask), "r"(with));
    return found;
}

// The nibbles at bit 0 or 4 of each half of a word as mantissas of halves.
DEVICE u32 low_nibbles(u32 v) { return masked(v, 0x000f000fu, 0x64006400u); }   // 1024 +
DEVICE u32 high_nibbles(u32 v) { return masked(v, 0x00f000f0u, 0x54005400u); }  // 64 +

// Of units of two times 16 columns.
template <class C>
struct Whole {
    static const int SETS = 2, PAIRS = 1;
    static const bool MINIMA = C::HAS_MINIMA, EARLY = false;
    DEVICE void numbers(const typename C::Unit& a, const typename C::Unit& b, int i, u32 (&out)[2][2]) {
        const u32 one_byte = 0x64646464u, sign = MINIMA ? 0 : 0x80808080u, zero = MINIMA ? 0x64006400u : 0x64806480u;
        u32 of_a[2], of_b[2];
        C::words(a, i / 2, of_a[0], of_a[1]);
        C::words(b, i / 2, of_b[0], of_b[1]);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const u32 p = bytes_of(of_a[s] ^ sign, of_b[s] ^ sign, i % 2 ? 0x7362 : 0x5140);
            out[s][0] = less(bytes_of(p, one_byte, 0x4140), zero);
            out[s][1] = less(bytes_of(p, one_byte, 0x4342), zero);
        }
    }
    DEVICE float4 factors(const typename C::Unit& w) { return C::factors(w); }
};

template <>
struct Whole<Q4_0> {
    static const int SETS = 2, PAIRS = 2;
    static const bool MINIMA = false, EARLY = true;
    DEVICE void numbers(const Q4_0::Unit& a, const Q4_0::Unit& b, int i, u32 (&out)[2][2]) {
        const u32 p = bytes_of(word_of(a.bytes, i / 2), word_of(b.bytes, i / 2), i % 2 ? 0x7632 : 0x5410);
        out[0][0] = less(low_nibbles(p), 0x64086408u), out[0][1] = less(low_nibbles(p >> 8), 0x64086408u);
        out[1][0] = less(high_nibbles(p), 0x54805480u), out[1][1] = less(high_nibbles(p >> 8), 0x54805480u);
    }
    DEVICE float4 factors(const Q4_0::Unit& w) {
        const float scale = half_to_float(w.scale);
        return make_float4(scale, scale, 0.f, 0.f);
    }
};

template <>
struct Whole<Q4_K> {
    static const int SETS = 2, PAIRS = 1;
    static const bool MINIMA = true, EARLY = true;
    DEVICE void numbers(const Q4_K::Unit& a, const Q4_K::Unit& b, int i, u32 (&out)[2][2]) {
        const u32 p = bytes_of(word_of(a.bytes, i / 2), word_of(b.bytes, i / 2), i % 2 ? 0x7632 : 0x5410);
        out[0][0] = less(low_nibbles(p), 0x64006400u), out[0][1] = less(low_nibbles(p >> 8), 0x64006400u);
        out[1][0] = less(high_nibbles(p), 0x54005400u), out[1][1] = less(high_nibbles(p >> 8), 0x54005400u);
    }
    DEVICE float4 factors(const Q4_K::Unit& w) { return Q4_K::factors(w); }
};

template <>
struct Whole<Q6_K> {
    static const int SETS = 2, PAIRS = 1;
    static const bool MINIMA = false, EARLY = false;
    DEVICE u32 six_bits(u32 nibbles, u32 upper) {
        return less(masked(upper, 0x00300030u, low_nibbles(nibbles)), 0x64206420u);
    }
    DEVICE void numbers(const Q6_K::Unit& a, const Q6_K::Unit& b, int i, u32 (&out)[2][2]) {
        const u32 which = i % 2 ? 0x7632 : 0x5410;
        const u32 p = bytes_of(word_of(a.low, i / 2), word_of(b.low, i / 2), which);
        const u32 q = bytes_of(word_of(a.high, i / 2), word_of(b.high, i / 2), which) >> a.shift;
        out[0][0] = six_bits(p, q << 4), out[0][1] = six_bits(p >> 8, q >> 4);
        out[1][0] = six_bits(p >> 4, q), out[1][1] = six_bits(p >> 12, q >> 8);
    }
    DEVICE float4 factors(const Q6_K::Unit& w) {
        const float large = half_to_float(w.large);
        return make_float4(large * (float)w.low_scale, large * (float)w.high_scale, 0.f, 0.f);
    }
};

template <>
struct Whole<Q8_0> {
    static const int SETS = 1, PAIRS = 2;
    static const bool MINIMA = false, EARLY = true;
    DEVICE void numbers(const Q8_0::Unit& a, const Q8_0::Unit& b, int i, u32 (&out)[1][2]) {
        const u32 s = 0x80808080u, one_byte = 0x64646464u;
        const u32 p = bytes_of(word_of(a.bytes, i / 2) ^ s, word_of(b.bytes, i / 2) ^ s, i % 2 ? 0x7362 : 0x5140);
        out[0][0] = less(bytes_of(p, one_byte, 0x4140), 0x64806480u);
        out[0][1] = less(bytes_of(p, one_byte, 0x4342), 0x64806480u);
    }
    DEVICE float4 factors(const Q8_0::Unit& w) { return make_float4(half_to_float(w.scale), 0.f, 0.f, 0.f); }
};

// sums += a * b: a [16, 8 or 16] by rows, b [8 or 16, 8] by columns, in halves; in the tensor cores' register layout.
DEVICE void multiply_tile(float (&sums)[4], const u32 (&a)[1][2], const u32 (&b)[1]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[0][0]), "r"(a[0][1]), "r"(b[0]));
}

DEVICE void multiply_tile(float (&sums)[4], const u32 (&a)[2][2], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0][0]), "r"(a[0][1]), "r"(a[1][0]), "r"(a[1][1]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int k = 0; k < 2; k++) multiply_tile(sums, {{a[k][0], a[k][1]}}, {b[k]});
#endif
}

// A warp has eight adjacent units, and four times ROWS rows at a time: lane (g, t) has unit g of the t-th ROWS. With
// plain arithmetic, a GPU with fast memory is limited by instructions here, not by bytes; so the tensor cores multiply.
// a has a column of every unit in each of its rows, b the h times factor of every unit in each of its columns: only the
// diagonal of a b is needed, the rest is overhead. h times factor is passed as the sum of two halves, 22 bits, after
// all h were scaled by a power of two to be below 16.
template <class C>
struct ByTensor {
    static const int SETS = Whole<C>::SETS;
    static const int OF_WARP = 8, PAIRS = Whole<C>::PAIRS, ROWS = 2 * PAIRS;
    static const int UNITS = WARPS / GROUPS * OF_WARP;  // per block
    typedef float Sums[GROUPS][UNITS][C::COLUMNS + 1];

    // 2 to the power of e; e as in the bits of a float.
    DEVICE float power(int e) { return __uint_as_float((u32)e << 23); }
    DEVICE int exponent(u32 top) {
        const int e = 257 - (int)(top >> 23);
        return e < 1 ? 1 : e > 253 ? 253 : e;
    }
    DEVICE float scale_back(u32 top) { return power(254 - exponent(top)); }

    struct Rows {
        typename C::Unit w[ROWS];
    };

    // Beyond the end of the list its last row again, with weight 0.
    DEVICE void load(const Down& job, const Active& list, int n, int first, int unit, Rows& rows) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int slot = list.slots[first + i < n ? first + i : n - 1];
            rows.w[i] = C::load(C::row(job.planes, job.n_cols, slot), unit);
        }
    }

    DEVICE float h_of(const Active& list, int n, int i) { return i < n ? list.values[i] : 0.f; }

    DEVICE void add(
        const Active& list, int n, int first, const Rows& rows, float scale, float (&sums)[SETS][8][4],
        float (&minus)[2]) {
        u32 high[2][PAIRS], low[2][PAIRS];  // [set][rows 0 and 1, 2 and 3]
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const float h0 = h_of(list, n, first + 2 * k) * scale, h1 = h_of(list, n, first + 2 * k + 1) * scale;
            const float4 f0 = Whole<C>::factors(rows.w[2 * k]), f1 = Whole<C>::factors(rows.w[2 * k + 1]);
            split(h0 * f0.x, h1 * f1.x, high[0][k], low[0][k]);
            if (SETS > 1) split(h0 * f0.y, h1 * f1.y, high[1][k], low[1][k]);
            if (Whole<C>::MINIMA) {
                minus[0] += h0 * f0.z + h1 * f1.z;
                minus[1] += h0 * f0.w + h1 * f1.w;
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            u32 numbers[SETS][PAIRS][2];
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                u32 of_pair[SETS][2];
                Whole<C>::numbers(rows.w[2 * k], rows.w[2 * k + 1], i, of_pair);
#pragma unroll
                for (int s = 0; s < SETS; s++)
                    numbers[s][k][0] = of_pair[s][0], numbers[s][k][1] = of_pair[s][1];
            }
#pragma unroll
            for (int s = 0; s < SETS; s++) {
                multiply_tile(sums[s][i], numbers[s], high[s]);
                multiply_tile(sums[s][i], numbers[s], low[s]);
            }
        }
    }

    DEVICE void split(float v0, float v1, u32& high, u32& low) {
        high = two_halves(v0, v1);
        const float2 most = halves_to_floats(high);
        low = two_halves(v0 - most.x, v1 - most.y);
    }

    DEVICE void run(const Down& job, const Active& list, int n, u32 top, Sums& out) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp % GROUPS;
        const int own = warp / GROUPS * OF_WARP + lane / 4, last = C::units(job.n_cols) - 1;
        const int unit = blockIdx.x * UNITS + own < last ? blockIdx.x * UNITS + own : last;
        const float scale = power(exponent(top));
        float sums[SETS][8][4] = {}, minus[2] = {};
        int first = (4 * group + lane % 4) * ROWS;
        const int step = 4 * ROWS * GROUPS;
        Rows rows;
        if (n) load(job, list, n, first, unit, rows);
#pragma unroll 1
        for (; first - lane % 4 * ROWS < n; first += step) {
            Rows next;
            if (Whole<C>::EARLY) load(job, list, n, first + step, unit, next);
            add(list, n, first, rows, scale, sums, minus);
            if (Whole<C>::EARLY) rows = next;
            else load(job, list, n, first + step, unit, rows);
        }
#pragma unroll
        for (int s = 0; Whole<C>::MINIMA && s < 2; s++) {
            minus[s] += __shfl_xor_sync(FULL_WARP, minus[s], 1);
            minus[s] += __shfl_xor_sync(FULL_WARP, minus[s], 2);
        }
        if (lane % 4 == lane / 8) {  // the lanes that hold the diagonal
            const bool odd = lane / 4 & 1;
#pragma unroll
            for (int s = 0; s < SETS; s++) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float least = Whole<C>::MINIMA ? minus[s] : 0.f;
                    out[group][own][16 * s + 2 * i] = (odd ? sums[s][i][1] : sums[s][i][0]) - least;
                    out[group][own][16 * s + 2 * i + 1] = (odd ? sums[s][i][3] : sums[s][i][2]) - least;
                }
            }
        }
    }
};

template <class C>
struct Way {
    typedef ByTensor<C> Is;
};
template <>
struct Way<F32> {
    typedef ByThread<F32> Is;
};
template <bool BRAIN>
struct Way<TwoByteFloats<BRAIN>> {
    typedef ByThread<TwoByteFloats<BRAIN>> Is;
};

KERNEL __launch_bounds__(256, 2) down(const Down job) {
    START_NEXT; WAIT;
    typedef Way<CODEC>::Is Is;
    __shared__ Active list;
    __shared__ Is::Sums sums;
    u32 top;
    const int n = list_active(job, list, top);
    Is::run(job, list, n, top, sums);
    __syncthreads();
    const float back = Is::scale_back(top);
    float* part = job.parts + (u64)blockIdx.y * job.n_cols;
#pragma unroll 1
    for (int i = threadIdx.x; i < Is::UNITS * CODEC::COLUMNS; i += THREADS) {
        const int own = i / CODEC::COLUMNS, number = i % CODEC::COLUMNS;
        const int unit = blockIdx.x * Is::UNITS + own;
        const int column = CODEC::column(unit, number);
        float sum = 0.f;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) sum += sums[g][own][number];
        if (unit < CODEC::units(job.n_cols) && column < job.n_cols) part[column] = sum * back;
    }
}
