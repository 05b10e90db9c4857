// How a block of `attend` reads a cache of f32: a row of keys by a team of lanes, 8 numbers per lane, with float units. A
// wide row takes a whole warp, with EACH times 8 numbers per lane. Every team is a party. Included by attention.cu.
#pragma once

#define PIECES ((HEAD_DIM + 7) / 8)
#define EACH ((PIECES + 31) / 32)
#define OWN (8 * EACH)  // numbers of a row that a lane has
#define LANES (PIECES > 16 ? 32 : PIECES > 8 ? 16 : PIECES > 4 ? 8 : PIECES > 2 ? 4 : PIECES)
#define PARTIES (THREADS / LANES)
#define ROWS (WIDE ? 1 : 2)        // that a team has in flight at a time
#define STEP (PARTIES * ROWS)      // positions that a block reads at a time
#define BLOCKS (WIDE || HEADS > 4 ? 2 : 3)  // on a multiprocessor at the same time

// Results of the parties: highest scores (in powers of 2), sums of weights, weighted values.
struct Found {
    float top[PARTIES][HEADS], sum[PARTIES][HEADS];
    __align__(16) float mixed[PARTIES][HEADS][ROW_DIM];
};

static_assert(!WIDE || HEADS <= 2, "wide rows leave registers for two heads");

// The same of one team: its lane's dimensions.
struct Mine {
    float top[HEADS], sum[HEADS], mixed[HEADS][OWN];
};

// This lane's numbers of a row, 0 beyond its end.
DEVICE void load_own(const u8* cache, u64 row, int lane, float (&out)[OWN]) {
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int piece = lane + LANES * e;
#if HEAD_DIM % 8
        const float* at = (const float*)cache + row * HEAD_DIM;
#pragma unroll
        for (int j = 0; j < 8; j++) out[8 * e + j] = 8 * piece + j < HEAD_DIM ? at[8 * piece + j] : 0.f;
#else
        const float4* at = (const float4*)cache + row * (HEAD_DIM / 4) + 2 * piece;
        const float4 none = make_float4(0.f, 0.f, 0.f, 0.f);
        const float4 a = piece < PIECES ? at[0] : none, b = piece < PIECES ? at[1] : none;
        out[8 * e] = a.x; out[8 * e + 1] = a.y; out[8 * e + 2] = a.z; out[8 * e + 3] = a.w;
        out[8 * e + 4] = b.x; out[8 * e + 5] = b.y; out[8 * e + 6] = b.z; out[8 * e + 7] = b.w;
#endif
    }
}

// Scores of ROWS rows of keys, of which the first `valid` exist; the same in every lane of the team.
DEVICE void score(const float (*keys)[OWN], const float (*q)[OWN], int valid, float cap, float (*scores)[ROWS]) {
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float s = 0.f;
#pragma unroll
            for (int j = 0; j < OWN; j++) s = fmaf(q[h][j], keys[r][j], s);
#pragma unroll
            for (int o = LANES / 2; o; o >>= 1) s += __shfl_xor_sync(FULL_WARP, s, o);
            if (cap > 0.f) s = cap * tanhf(s);
            scores[h][r] = r < valid ? s : __int_as_float(0xff800000);
        }
}

DEVICE void mix(const float (*values)[OWN], float (*scores)[ROWS], Mine& mine) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float top = mine.top[h];
#pragma unroll
        for (int r = 0; r < ROWS; r++) top = fmaxf(top, scores[h][r]);
        const float fade = exp2f(mine.top[h] - top);
        mine.top[h] = top;
        mine.sum[h] *= fade;
#pragma unroll
        for (int j = 0; j < OWN; j++) mine.mixed[h][j] *= fade;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float weight = exp2f(scores[h][r] - top);
            mine.sum[h] += weight;
#pragma unroll
            for (int j = 0; j < OWN; j++) mine.mixed[h][j] = fmaf(weight, values[r][j], mine.mixed[h][j]);
        }
    }
}

DEVICE void leave(const Mine& mine, int team, int lane, Found& found) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (lane == 0) {
            found.top[team][h] = mine.top[h];
            found.sum[team][h] = mine.sum[h];
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int d = 8 * (lane + LANES * e);
            if (d >= ROW_DIM) continue;
            const float* v = mine.mixed[h] + 8 * e;
            float4* at = (float4*)&found.mixed[team][h][d];
            at[0] = make_float4(v[0], v[1], v[2], v[3]);
            at[1] = make_float4(v[4], v[5], v[6], v[7]);
        }
    }
}

DEVICE void find(const Task& task, Found& found) {
    const int team = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    float k[ROWS][OWN], v[ROWS][OWN], q[HEADS][OWN];
    Mine mine;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const u64 row = task.rows + min(task.first + r * PARTIES + team, task.end - 1);
        load_own(task.keys, row, lane, k[r]);
        load_own(task.values, row, lane, v[r]);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        load_own((const u8*)task.q, min(h, task.n_heads - 1), lane, q[h]);
        mine.top[h] = NOTHING;
        mine.sum[h] = 0.f;
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            q[h][j] *= task.scale;
            mine.mixed[h][j] = 0.f;
        }
    }
    for (int base = task.first; base < task.end; base += STEP) {
        float scores[HEADS][ROWS];
        const bool more = base + STEP < task.end;
        const int left = task.end - base - team;  // rows of this team that exist: every PARTIES-th
        score(k, q, left > 0 ? (left + PARTIES - 1) / PARTIES : 0, task.cap, scores);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (more) load_own(task.keys, task.rows + min(base + STEP + r * PARTIES + team, task.end - 1), lane, k[r]);
        mix(v, scores, mine);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (more)
                load_own(task.values, task.rows + min(base + STEP + r * PARTIES + team, task.end - 1), lane, v[r]);
    }
    leave(mine, team, lane, found);
}
