// How a block of `attend` reads a cache of halves or bytes: 16 positions per warp, multiplied by tensor cores; every
// warp is a party. Included by attention.cu.
//
// The weighted values of a wide head do not fit into a warp's registers: then the warps score 16 positions each, agree on
// the highest score, and each adds up its own dimensions of the values of all 64. The block is one party.
//
// Tensor cores multiply halves and add floats. Keys and values are halves, or bytes that halves hold exactly; queries
// and weights are split into two halves each, so that no precision of a float is lost: a query's two are in the upper
// and the lower half of one matrix, a weight's are multiplied one after the other.
//
// In a warp lane 4 g + t has: of keys, dimensions 8 t to 8 t + 7 of each 32 of position g (and g + 8); of scores, head
// g at positions 2 t, 2 t + 1 (and those + 8); of values, those positions' dimensions from DIMS g on of each 8 DIMS; of
// weighted values, the same dimensions for the heads 2 t and 2 t + 1. The dimensions of a product may be permuted if
// both sides are alike.
#pragma once

static_assert(HEADS == 8, "a product has 8 columns of heads");

#define WARPS (THREADS / 32)
#define PARTIES (WIDE ? 1 : WARPS)
#define TILE 16
#define STEP (WARPS * TILE)    // positions that a block reads at a time
#define BLOCKS (HEAD_DIM > 128 || HEAD_DIM % 8 ? 2 : 3)
#define SMALL (HEAD_DIM <= 128)  // whether there are registers for the queries and a whole tile at once
#define DIMS (4 * CODEC)       // numbers of values that a lane loads at a time: 8 halves, 4 bytes
#define KEY_PIECES ((HEAD_DIM + 31) / 32)
#define SCALE_WORDS ((KEY_PIECES + 1) / 2)
#define VALUE_PIECES ((VALUE_DIM + 8 * DIMS - 1) / (8 * DIMS))
#define BYTES_UP 64.f  // keeps weights times scales of bytes among the larger halves; a power of 2, so it costs nothing

#if CODEC == 2
typedef uint4 KeyPiece;
typedef uint4 ValuePiece;
#else
typedef uint2 KeyPiece;
typedef u32 ValuePiece;
#endif

// Results of the parties: highest scores (in powers of 2), sums of weights, weighted values.
struct Found {
    float top[PARTIES][HEADS], sum[PARTIES][HEADS];
    __align__(16) float mixed[PARTIES][HEADS][ROW_DIM];
};

// out [16, 8] += a [16, 16] b [16, 8].
DEVICE void multiply_add(float (&out)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(out[0]), "+f"(out[1]), "+f"(out[2]), "+f"(out[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(out[0]), "+f"(out[1]), "+f"(out[2]), "+f"(out[3])
        : "r"(a0), "r"(a1), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(out[0]), "+f"(out[1]), "+f"(out[2]), "+f"(out[3])
        : "r"(a2), "r"(a3), "r"(b1));
#endif
}

DEVICE u32 floats_to_halves(float low, float high) {
    return (u32)float_to_half(low) | (u32)float_to_half(high) << 16;
}

// Two floats as halves, and their remainders, as halves too.
DEVICE void cut(float low, float high, u32& coarse, u32& fine) {
    coarse = floats_to_halves(low, high);
    const float2 kept = halves_to_floats(coarse);
    fine = floats_to_halves(low - kept.x, high - kept.y);
}

// Two signed bytes of a word, 0 and 1 or 2 and 3, as halves: inserted below the exponent of 1024.
DEVICE u32 bytes_to_halves(u32 word, bool upper) {
    u32 placed = __byte_perm(word ^ 0x80808080u, 0x64646464u, upper ? 0x4342 : 0x4140), out;
    asm("sub.rn.f16x2 %0,%1,%2;" : "=r"(out) : "r"(placed), "r"(0x64806480u));
    return out;
}

// Four bytes of a row of HEAD_DIM numbers, 0 beyond its end, for rows that are not 16-byte aligned.
DEVICE u32 load_word(const u8* cache, u64 row, int byte) {
    const u8* at = cache + row * (HEAD_DIM * CODEC) + byte;
#if HEAD_DIM * CODEC % 4 == 0
    return byte < HEAD_DIM * CODEC ? *(const u32*)at : 0;
#else
    u32 word = 0;
    for (int i = 0; i < 4; i++)
        if (byte + i < HEAD_DIM * CODEC) word |= (u32)at[i] << (8 * i);
    return word;
#endif
}

// From dimension d on as many numbers as a piece has.
DEVICE void load_piece(const u8* cache, u64 row, int d, uint4& out) {
    out = make_uint4(0, 0, 0, 0);
#if HEAD_DIM % 8
    const int byte = CODEC * d;
    out.x = load_word(cache, row, byte); out.y = load_word(cache, row, byte + 4);
    out.z = load_word(cache, row, byte + 8); out.w = load_word(cache, row, byte + 12);
#else
    if (d < HEAD_DIM) out = load_written((const uint4*)cache + (row * HEAD_DIM + d) / 8);
#endif
}

DEVICE void load_piece(const u8* cache, u64 row, int d, uint2& out) {
    out = make_uint2(0, 0);
#if HEAD_DIM % 8
    out.x = load_word(cache, row, d); out.y = load_word(cache, row, d + 4);
#else
    if (d < HEAD_DIM) out = ((const uint2*)cache)[(row * HEAD_DIM + d) / 8];
#endif
}

DEVICE void load_piece(const u8* cache, u64 row, int d, u32& out) {
    out = 0;
#if HEAD_DIM % 8
    out = load_word(cache, row, d);
#else
    if (d < HEAD_DIM) out = ((const u32*)cache)[(row * HEAD_DIM + d) / 4];
#endif
}

// This lane's positions of a tile, number 0 to 3.
DEVICE int position_of(int base, int t, int number) { return base + 8 * (number / 2) + 2 * t + number % 2; }

// The scales of each 32 numbers of this lane's four positions, two per word; halves have none.
typedef u32 Scales[4][SCALE_WORDS];

DEVICE void load_scales(const Task& task, const u16* scales, int base, int t, Scales& out) {
#if CODEC == 1
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u16* at = scales + (task.rows + min(position_of(base, t, i), task.end - 1)) * KEY_PIECES;
#pragma unroll
        for (int k = 0; k < SCALE_WORDS; k++) {
#if KEY_PIECES % 2 == 0
            out[i][k] = ((const u32*)at)[k];
#else
            out[i][k] = at[2 * k] | (2 * k + 1 < KEY_PIECES ? (u32)at[2 * k + 1] << 16 : 0);
#endif
        }
    }
#endif
}

// This lane's keys of a tile's lower and upper 8 positions.
DEVICE void load_keys(const Task& task, int base, int g, int t, KeyPiece (&low)[KEY_PIECES],
                      KeyPiece (&high)[KEY_PIECES], Scales& scales) {
    load_scales(task, task.key_scales, base, t, scales);
#pragma unroll
    for (int p = 0; p < KEY_PIECES; p++) {
        load_piece(task.keys, task.rows + min(base + g, task.end - 1), 32 * p + 8 * t, low[p]);
        load_piece(task.keys, task.rows + min(base + 8 + g, task.end - 1), 32 * p + 8 * t, high[p]);
    }
}

// This lane's values of its four positions of a tile.
DEVICE void load_values(const Task& task, int base, int g, int t, ValuePiece (*out)[4], Scales& scales) {
    load_scales(task, task.value_scales, base, t, scales);
#pragma unroll
    for (int p = 0; p < VALUE_PIECES; p++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int position = min(position_of(base, t, i), task.end - 1);
            load_piece(task.values, task.rows + position, DIMS * (8 * p + g), out[p][i]);
        }
}

// The halves of a piece, two a word.
DEVICE void halves_of(const uint4& p, u32 (&out)[4]) { out[0] = p.x; out[1] = p.y; out[2] = p.z; out[3] = p.w; }

DEVICE void halves_of(const uint2& p, u32 (&out)[4]) {
    out[0] = bytes_to_halves(p.x, false); out[1] = bytes_to_halves(p.x, true);
    out[2] = bytes_to_halves(p.y, false); out[3] = bytes_to_halves(p.y, true);
}

DEVICE void halves_of(const u32& p, u32 (&out)[2]) {
    out[0] = bytes_to_halves(p, false);
    out[1] = bytes_to_halves(p, true);
}

// A lane's queries: of head g the dimensions that it has of keys, split in two; for each piece four words of the coarse
// halves and four of the fine ones, QUERY_STEP words apart.
#define QUERY_STEP (SMALL ? 1 : 32)
DEVICE void load_queries(const Task& task, int g, int t, u32* q) {
#pragma unroll
    for (int p = 0; p < KEY_PIECES; p++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int d = 32 * p + 8 * t + 2 * j;
            float low = 0.f, high = 0.f;
            if (g < task.n_heads && d < HEAD_DIM) low = task.q[g * HEAD_DIM + d];
            if (g < task.n_heads && d + 1 < HEAD_DIM) high = task.q[g * HEAD_DIM + d + 1];
            cut(task.scale * low, task.scale * high, q[(8 * p + j) * QUERY_STEP], q[(8 * p + 4 + j) * QUERY_STEP]);
        }
}

DEVICE float scale_of(const Scales& scales, int number, int piece) {
    return half_to_float((u16)(scales[number][piece / 2] >> (16 * (piece % 2))));
}

// Add N pieces, from piece `from` on, to the scores of 8 positions: this lane's two, its numbers `first` and first + 1 of
// the tile. sum: 0 at first, of halves; `out` of bytes.
template <int N>
DEVICE void add_scores(const KeyPiece (&keys)[N], int from, const u32* q, const Scales& scales, int first,
                       float (&sum)[4], float* out) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int p = from + i;
        u32 k[4];
        halves_of(keys[i], k);
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const u32 *one = q + (8 * p + j) * QUERY_STEP, *next = one + QUERY_STEP;
            multiply_add(sum, one[0], one[4 * QUERY_STEP], next[0], next[4 * QUERY_STEP], k[j], k[j + 1]);
        }
        if (CODEC == 1) {
            out[0] = fmaf(scale_of(scales, first, p), sum[0] + sum[2], out[0]);
            out[1] = fmaf(scale_of(scales, first + 1, p), sum[1] + sum[3], out[1]);
            sum[0] = sum[1] = sum[2] = sum[3] = 0.f;
        }
    }
}

DEVICE void score(const KeyPiece (&keys)[KEY_PIECES], const u32* q, const Scales& scales, int first, float* out) {
    float sum[4] = {0.f, 0.f, 0.f, 0.f};
    out[0] = out[1] = 0.f;
    add_scores(keys, 0, q, scales, first, sum, out);
    if (CODEC == 2) {
        out[0] = sum[0] + sum[2];
        out[1] = sum[1] + sum[3];
    }
}

// Turn the scores of 4 positions into weights, and rescale the previous results to the new highest score.
DEVICE void weigh(float (&scores)[4], float& top, float& sum, float (*mixed)[4], int t) {
    float higher = fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3]));
    higher = fmaxf(higher, __shfl_xor_sync(FULL_WARP, higher, 1));
    higher = fmaxf(top, fmaxf(higher, __shfl_xor_sync(FULL_WARP, higher, 2)));
    const float fade = exp2f(top - higher);
    top = higher;
    sum *= fade;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        scores[i] = exp2f(scores[i] - top);
        sum += scores[i];
    }
    const float even = __shfl_sync(FULL_WARP, fade, 8 * t), odd = __shfl_sync(FULL_WARP, fade, 8 * t + 4);
    if (__all_sync(FULL_WARP, fade == 1.f)) return;
#pragma unroll
    for (int i = 0; i < VALUE_PIECES * DIMS / 2; i++) {
        mixed[i][0] *= even; mixed[i][1] *= odd;
        mixed[i][2] *= even; mixed[i][3] *= odd;
    }
}

// Weights of a lane's four positions, split in two halves each.
DEVICE void cut_weights(const float (&weights)[4], u32 (&coarse)[2], u32 (&fine)[2]) {
    cut(weights[0], weights[1], coarse[0], fine[0]);
    cut(weights[2], weights[3], coarse[1], fine[1]);
}

// mixed += weights times a piece of the values of this lane's four positions.
DEVICE void mix_piece(const ValuePiece (&values)[4], const u32 (&coarse)[2], const u32 (&fine)[2], float (*mixed)[4]) {
    u32 v[4][DIMS / 2];
#pragma unroll
    for (int i = 0; i < 4; i++) halves_of(values[i], v[i]);
#pragma unroll
    for (int j = 0; j < DIMS / 2; j++) {
        const u32 a0 = __byte_perm(v[0][j], v[1][j], 0x5410), a1 = __byte_perm(v[0][j], v[1][j], 0x7632);
        const u32 a2 = __byte_perm(v[2][j], v[3][j], 0x5410), a3 = __byte_perm(v[2][j], v[3][j], 0x7632);
        multiply_add(mixed[j], a0, a1, a2, a3, coarse[0], coarse[1]);
        multiply_add(mixed[j], a0, a1, a2, a3, fine[0], fine[1]);
    }
}

DEVICE void mix(const ValuePiece (*values)[4], const Scales& scales, const float (&weights)[4], float (*mixed)[4]) {
    u32 coarse[2], fine[2];
    if (CODEC == 2) cut_weights(weights, coarse, fine);
#pragma unroll
    for (int p = 0; p < VALUE_PIECES; p++) {
        if (CODEC == 1) {  // 32 numbers a piece, with one scale
            float scaled[4];
#pragma unroll
            for (int i = 0; i < 4; i++) scaled[i] = BYTES_UP * scale_of(scales, i, p) * weights[i];
            cut_weights(scaled, coarse, fine);
        }
        mix_piece(values[p], coarse, fine, mixed + p * (DIMS / 2));
    }
}

// A piece's weighted values, as a lane has them, to their places in a row.
DEVICE void leave_piece(const float (*mixed)[4], int p, int g, int t, float (*rows)[ROW_DIM]) {
#pragma unroll
    for (int j = 0; j < DIMS / 2; j++) {
        const int d = DIMS * (8 * p + g) + 2 * j;
        const float* v = mixed[j];
        const float down = CODEC == 1 ? 1.f / BYTES_UP : 1.f;
        if (d >= ROW_DIM) continue;
        *(float2*)&rows[2 * t][d] = make_float2(down * v[0], down * v[2]);
        *(float2*)&rows[2 * t + 1][d] = make_float2(down * v[1], down * v[3]);
    }
}

DEVICE void leave(float top, float sum, const float (*mixed)[4], int warp, int g, int t, Found& found) {
    sum += __shfl_xor_sync(FULL_WARP, sum, 1);
    sum += __shfl_xor_sync(FULL_WARP, sum, 2);
    if (t == 0) {
        found.top[warp][g] = top;
        found.sum[warp][g] = sum;
    }
#pragma unroll
    for (int p = 0; p < VALUE_PIECES; p++) leave_piece(mixed + p * (DIMS / 2), p, g, t, found.mixed[warp]);
}

#if !WIDE
DEVICE void find(const Task& task, Found& found) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float top = NOTHING, sum = 0.f, mixed[VALUE_PIECES * DIMS / 2][4];
#pragma unroll
    for (int i = 0; i < VALUE_PIECES * DIMS / 2; i++) mixed[i][0] = mixed[i][1] = mixed[i][2] = mixed[i][3] = 0.f;
    KeyPiece low[KEY_PIECES], high[KEY_PIECES];
    ValuePiece values[VALUE_PIECES][4];
    int base = task.first + TILE * warp;
    Scales key_scales = {}, value_scales = {};
    if (SMALL) {
        load_keys(task, base, g, t, low, high, key_scales);
        load_values(task, base, g, t, values, value_scales);
    }
#if HEAD_DIM <= 128
    u32 q[8 * KEY_PIECES];
    load_queries(task, g, t, q);
#else
    __shared__ u32 queries[8 * KEY_PIECES][32];  // shared by all warps
    u32* q = &queries[0][threadIdx.x % 32];
    if (warp == 0) load_queries(task, g, t, q);
    __syncthreads();
#endif
    for (; base < task.end; base += STEP) {  // the next tile is loaded as soon as there are registers for it
        const bool more = base + STEP < task.end;
        float weights[4];
        if (!SMALL) load_keys(task, base, g, t, low, high, key_scales);
        score(low, q, key_scales, 0, weights);
        score(high, q, key_scales, 2, weights + 2);
        if (SMALL && more) load_keys(task, base + STEP, g, t, low, high, key_scales);
        if (!SMALL) load_values(task, base, g, t, values, value_scales);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (task.cap > 0.f) weights[i] = task.cap * tanhf(weights[i]);
            if (position_of(base, t, i) >= task.end) weights[i] = __int_as_float(0xff800000);
        }
        weigh(weights, top, sum, mixed, t);
        mix(values, value_scales, weights, mixed);
        if (SMALL && more) load_values(task, base + STEP, g, t, values, value_scales);
    }
    leave(top, sum, mixed, warp, g, t, found);
}
#else
#define OWN_PIECES ((VALUE_PIECES + WARPS - 1) / WARPS)  // of values, for each warp
#define AHEAD (KEY_PIECES % 4 == 0 ? 4 : KEY_PIECES % 3 == 0 ? 3 : KEY_PIECES % 2 == 0 ? 2 : 1)  // pieces of keys

// The scores of this lane's four positions of a tile.
DEVICE void score_tile(const Task& task, int base, int g, int t, const u32* q, float (&scores)[4]) {
    Scales scales = {};
    load_scales(task, task.key_scales, base, t, scales);
    float low_sum[4] = {0.f, 0.f, 0.f, 0.f}, high_sum[4] = {0.f, 0.f, 0.f, 0.f};
    scores[0] = scores[1] = scores[2] = scores[3] = 0.f;
#pragma unroll
    for (int from = 0; from < KEY_PIECES; from += AHEAD) {
        KeyPiece low[AHEAD], high[AHEAD];
#pragma unroll
        for (int p = 0; p < AHEAD; p++) {
            const int d = 32 * (from + p) + 8 * t;
            load_piece(task.keys, task.rows + min(base + g, task.end - 1), d, low[p]);
            load_piece(task.keys, task.rows + min(base + 8 + g, task.end - 1), d, high[p]);
        }
        add_scores(low, from, q, scales, 0, low_sum, scores);
        add_scores(high, from, q, scales, 2, high_sum, scores + 2);
    }
    if (CODEC == 2) {
        scores[0] = low_sum[0] + low_sum[2];
        scores[1] = low_sum[1] + low_sum[3];
        scores[2] = high_sum[0] + high_sum[2];
        scores[3] = high_sum[1] + high_sum[3];
    }
}

DEVICE void find(const Task& task, Found& found) {
    __shared__ u32 queries[8 * KEY_PIECES][32];
    __shared__ float tops[WARPS][HEADS], weights[STEP][HEADS];
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    u32* q = &queries[0][threadIdx.x % 32];
    if (warp == 0) load_queries(task, g, t, q);
    float top = NOTHING, sum = 0.f, mixed[OWN_PIECES * DIMS / 2][4];
#pragma unroll
    for (int i = 0; i < OWN_PIECES * DIMS / 2; i++) mixed[i][0] = mixed[i][1] = mixed[i][2] = mixed[i][3] = 0.f;
    __syncthreads();
    for (int base = task.first; base < task.end; base += STEP) {
        float scores[4], highest = NOTHING;
        score_tile(task, base + TILE * warp, g, t, q, scores);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (task.cap > 0.f) scores[i] = task.cap * tanhf(scores[i]);
            if (position_of(base + TILE * warp, t, i) >= task.end) scores[i] = __int_as_float(0xff800000);
            highest = fmaxf(highest, scores[i]);
        }
        highest = fmaxf(highest, __shfl_xor_sync(FULL_WARP, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(FULL_WARP, highest, 2));
        if (t == 0) tops[warp][g] = highest;
        __syncthreads();
        highest = top;
#pragma unroll
        for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, tops[w][g]);
        const float fade = exp2f(top - highest);
        top = highest;
        sum *= fade;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float weight = exp2f(scores[i] - top);
            sum += weight;
            weights[position_of(TILE * warp, t, i)][g] = weight;
        }
        const float even = __shfl_sync(FULL_WARP, fade, 8 * t), odd = __shfl_sync(FULL_WARP, fade, 8 * t + 4);
#pragma unroll
        for (int i = 0; i < OWN_PIECES * DIMS / 2; i++) {
            mixed[i][0] *= even; mixed[i][1] *= odd;
            mixed[i][2] *= even; mixed[i][3] *= odd;
        }
        __syncthreads();
        for (int tile = 0; tile < STEP && base + tile < task.end; tile += TILE) {
            float by[4];
            u32 coarse[2], fine[2];
#pragma unroll
            for (int i = 0; i < 4; i++) by[i] = weights[position_of(tile, t, i)][g];
            if (CODEC == 2) cut_weights(by, coarse, fine);
#pragma unroll
            for (int own = 0; own < OWN_PIECES; own++) {
                const int p = WARPS * own + warp;
                if (p >= VALUE_PIECES) continue;
                ValuePiece values[4];
                float scaled[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const u64 row = task.rows + min(position_of(base + tile, t, i), task.end - 1);
                    load_piece(task.values, row, DIMS * (8 * p + g), values[i]);
                    if (CODEC == 1) scaled[i] = BYTES_UP * half_to_float(task.value_scales[row * KEY_PIECES + p]) * by[i];
                }
                if (CODEC == 1) cut_weights(scaled, coarse, fine);
                mix_piece(values, coarse, fine, mixed + own * (DIMS / 2));
            }
        }
    }
    sum += __shfl_xor_sync(FULL_WARP, sum, 1);
    sum += __shfl_xor_sync(FULL_WARP, sum, 2);
    __syncthreads();
    if (t == 0) tops[warp][g] = sum;
    __syncthreads();
    if (warp == 0 && t == 0) {
        found.top[0][g] = top;
        found.sum[0][g] = tops[0][g];
#pragma unroll
        for (int w = 1; w < WARPS; w++) found.sum[0][g] += tops[w][g];
    }
#pragma unroll
    for (int own = 0; own < OWN_PIECES; own++)
        if (WARPS * own + warp < VALUE_PIECES)
            leave_piece(mixed + own * (DIMS / 2), WARPS * own + warp, g, t, found.mixed[0]);
}
#endif
