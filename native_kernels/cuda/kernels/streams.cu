// Several residual streams of each position (AltUp), and gates that are cut off. All numbers are f32.
#include "rounding.cuh"
#include "vectors.cuh"

#define MOST_STREAMS 8

// n streams of gridDim.y positions: stream i of position t begins at i * step + t * width. scores [T, n]: the router's, before their tanh.
// weights: a row for each mixture.
struct Streams {
    float *values, *predicted;
    const float *scores, *weights;
    u64 step;
    int n, width;
};

// mixed [n_mixed] = weights [n_mixed, n] times the tanh of the position's scores.
DEVICE void mix(const Streams& job, int n_mixed, float* mixed) {
    const float* scores = job.scores + (u64)blockIdx.y * job.n;
    for (int i = threadIdx.x; i < n_mixed; i += blockDim.x) {
        float sum = 0.f;
        for (int j = 0; j < job.n; j++) sum += job.weights[i * job.n + j] * tanhf(scores[j]);
        mixed[i] = sum;
    }
    __syncthreads();
}

// predicted = the streams plus a mixture of all streams for each; the first stream becomes the first of predicted.
// A column per thread.
KERNEL __launch_bounds__(64) predict_streams(const Streams job) {
    WAIT;
    __shared__ float mixture[MOST_STREAMS * MOST_STREAMS];
    mix(job, job.n * job.n, mixture);
    const int column = blockIdx.x * 64 + threadIdx.x;
    if (column >= job.width) return;
    const u64 at = (u64)blockIdx.y * job.width + column;
    float v[MOST_STREAMS];
#pragma unroll
    for (int j = 0; j < MOST_STREAMS; j++) v[j] = j < job.n ? job.values[j * job.step + at] : 0.f;
#pragma unroll
    for (int i = 0; i < MOST_STREAMS; i++) {
        if (i >= job.n) break;
        float sum = 0.f;
#pragma unroll
        for (int j = 0; j < MOST_STREAMS; j++) sum += j < job.n ? mixture[i * job.n + j] * v[j] : 0.f;
        job.predicted[i * job.step + at] = v[i] + sum;
        if (i == 0) job.values[at] = v[i] + sum;
    }
}

// The streams = predicted + (1 + share) * what the first stream has changed since. scaled [T, width] = the first stream
// times scale [width], and the 8-bit form of a single position if bytes are given. Four columns per thread.
KERNEL __launch_bounds__(32) correct_streams(const Streams job, const float* scale, const Rounded scaled) {
    WAIT;
    __shared__ float shares[MOST_STREAMS];
    mix(job, job.n, shares);
    const int first = 4 * (blockIdx.x * 32 + threadIdx.x);
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[k] = 0.f;
        if (first + k >= job.width) continue;
        const u64 at = (u64)blockIdx.y * job.width + first + k;
        const float change = job.values[at] - job.predicted[at];
#pragma unroll
        for (int i = 0; i < MOST_STREAMS; i++) {
            if (i >= job.n) break;
            const float now = job.predicted[i * job.step + at] + (1.f + shares[i]) * change;
            job.values[i * job.step + at] = now;
            if (i == 0) v[k] = now * scale[first + k];
        }
        scaled.values[at] = v[k];
    }
    if (scaled.bytes) round_four(scaled, first, v);
}

// Adds added [T, width] to each of gridDim.z rows of positions, `step` numbers apart.
KERNEL __launch_bounds__(128) add_to_each(float* rows, u64 step, int width, const float* added) {
    WAIT;
    const int column = blockIdx.x * 128 + threadIdx.x;
    const u64 at = (u64)blockIdx.y * width + column;
    if (column < width) rows[blockIdx.z * step + at] += added[at];
}

// Scales each of gridDim.x rows of positions, `step` numbers apart, to the root mean square of `first` [T, width]. A row's
// own mean square counts as at least `least`.
KERNEL __launch_bounds__(512) scale_alike(const float* first, float* rows, u64 step, int width, float least) {
    WAIT;
    __shared__ float places[16];
    const float* like = first + (u64)blockIdx.y * width;
    float* row = rows + blockIdx.x * step + (u64)blockIdx.y * width;
    float wanted = 0.f, own = 0.f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        wanted += like[i] * like[i];
        own += row[i] * row[i];
    }
    wanted = block_sum(wanted, places), own = block_sum(own, places);
    const float n = (float)width;
    const float factor = __fdiv_rn(__fsqrt_rn(wanted / n), __fsqrt_rn(fmaxf(own / n, least)));
    for (int i = threadIdx.x; i < width; i += blockDim.x) row[i] *= factor;
}

// x [gridDim.x, n], rows `step` numbers apart: what exceeds the row's mean by `cutoff` standard deviations, else 0.
KERNEL __launch_bounds__(1024) cut_off(float* x, u64 step, int n, float cutoff) {
    WAIT;
    __shared__ float places[32];
    float *row = x + blockIdx.x * step, sum = 0.f, squares = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i];
    const float mean = block_sum(sum, places) / (float)n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
    const float least = mean + cutoff * __fsqrt_rn(block_sum(squares, places) / (float)n);
    for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = fmaxf(row[i] - least, 0.f);
}
