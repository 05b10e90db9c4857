// A gated short convolution, as in LFM2: causal, per channel, between two multiplications. A state: the last inputs,
// [width - 1, channels].
#include "vectors.cuh"

struct Conv {
    const float* x;        // [S T, 3, channels]: the gate behind, the gate before, the values
    const float* weights;  // [channels, width], the oldest position first
    float* out;            // [S T, channels]
    // The states of all sequences, `step` numbers apart: read from `first`, written to `second`, or the other way round
    // where swap (0: nowhere) is set. Both may be the same.
    float *first, *second;
    const int* swap;
    u64 step;
    int channels, width, n_each, n_rows;  // n_rows: positions of a thread, at least width - 1
};

// The convolution's input of a channel, `place` positions behind the first new one of its sequence.
DEVICE float input_of(const Conv& of, const float* before, int sequence, int place, int channel) {
    if (place < 0) return before[(u64)(place + of.width - 1) * of.channels + channel];
    const float* x = of.x + ((u64)sequence * of.n_each + place) * 3 * of.channels + channel;
    return x[of.channels] * x[2 * of.channels];
}

// Grid: blocks of channels, blocks of positions, sequences. The first positions' thread is the only one that reads a
// channel's state, and writes it last.
KERNEL __launch_bounds__(128) convolve(const Conv of) {
    WAIT;
    const int channel = blockIdx.x * 128 + threadIdx.x, begin = blockIdx.y * of.n_rows, sequence = blockIdx.z;
    if (channel >= of.channels) return;
    const bool swapped = of.swap && of.swap[sequence];
    const float* before = (swapped ? of.second : of.first) + of.step * sequence;
    const float* weights = of.weights + channel * of.width;
    for (int t = begin; t < min(begin + of.n_rows, of.n_each); t++) {
        const u64 row = (u64)sequence * of.n_each + t;
        float sum = 0.f;
        for (int j = 0; j < of.width; j++)
            sum = fmaf(input_of(of, before, sequence, t - of.width + 1 + j, channel), weights[j], sum);
        of.out[row * of.channels + channel] = sum * of.x[row * 3 * of.channels + channel];
    }
    if (begin) return;
    float* after = (swapped ? of.first : of.second) + of.step * sequence;
    for (int j = 0; j < of.width - 1; j++)
        after[(u64)j * of.channels + channel] =
            input_of(of, before, sequence, of.n_each - of.width + 1 + j, channel);
}
