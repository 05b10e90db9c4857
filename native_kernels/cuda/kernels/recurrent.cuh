// Layers whose state is a matrix for each value head: their arguments, the states, and the convolution of their inputs.
#pragma once
#include "activations.cuh"
#include "vectors.cuh"

#ifndef KEY_DIM
#define KEY_DIM 128
#endif
#ifndef VALUE_DIM
#define VALUE_DIM 128
#endif

// The states of all sequences, `step` numbers apart: read from `first`, written to `second`, or the other way round
// where swap (0: nowhere) is set. Both may be the same. A state: matrices [H_v, KEY_DIM, VALUE_DIM], then the last
// inputs of the convolution [width - 1, channels].
struct States {
    float* first;
    float* second;
    const int* swap;
    u64 step;
};

struct Net {
    const float* qkv;         // [S T, channels], inputs of the convolution
    const float* gate;        // [S T, H_v VALUE_DIM]
    const float* alpha;       // [S T, H_v]
    const float* beta;        // [S T, H_v], of a delta net
    const float* conv;        // [channels, width], the oldest position first
    const float* conv_bias;   // [channels]; 0: none
    const float* decay;       // [H_v]
    const float* alpha_bias;  // [H_v]
    const float* norm;        // [VALUE_DIM], of Mamba-2 [H_v VALUE_DIM]
    const float* skip;        // [H_v], of Mamba-2
    u32* done;                // [S, H_v VALUE_DIM / unit], of Mamba-2: 0 between launches
    float* prepared;
    float* out;               // [S T, H_v VALUE_DIM]
    u8* bytes;                // its 8-bit form, of Mamba-2; 0: none
    float2* scales;
    States states;
    float epsilon;
    int n_each, key_heads, value_heads, width, tiled;
    int norm_size, unit;      // of Mamba-2: numbers that are normed together, and those that one block of `step` norms
};

DEVICE int channels_of(const Net& of) { return 2 * of.key_heads * KEY_DIM + of.value_heads * VALUE_DIM; }

DEVICE int key_head_of(const Net& of, int head) {
    return of.tiled ? head % of.key_heads : head / (of.value_heads / of.key_heads);
}

// Whether this head is the first that reads its key head.
DEVICE bool has_key(const Net& of, int head) {
    return of.tiled ? head < of.key_heads : head % (of.value_heads / of.key_heads) == 0;
}

DEVICE const float* state_before(const States& states, int sequence) {
    const bool swapped = states.swap && states.swap[sequence];
    return (swapped ? states.second : states.first) + states.step * sequence;
}

DEVICE float* state_after(const States& states, int sequence) {
    const bool swapped = states.swap && states.swap[sequence];
    return (swapped ? states.first : states.second) + states.step * sequence;
}

// The convolution's input of a channel, `place` positions behind the first new one of its sequence.
DEVICE float input_of(const Net& of, const float* before, int sequence, int place, int channel) {
    const int channels = channels_of(of);
    if (place >= 0) return of.qkv[((u64)sequence * of.n_each + place) * channels + channel];
    const u64 inputs = (u64)of.value_heads * KEY_DIM * VALUE_DIM;
    return before[inputs + (u64)(place + of.width - 1) * channels + channel];
}

// SiLU of the convolution of a channel at position t.
DEVICE float convolved(const Net& of, const float* before, int sequence, int t, int channel) {
    float sum = of.conv_bias ? of.conv_bias[channel] : 0.f;
    for (int j = 0; j < of.width; j++)
        sum = fmaf(input_of(of, before, sequence, t - of.width + 1 + j, channel), of.conv[channel * of.width + j], sum);
    return silu(sum);
}

// Write the last inputs of some channels to the new state: from `channel` on, each `step`-th. In place too.
DEVICE void keep_inputs(const Net& of, int sequence, int channel, int step) {
    const int channels = channels_of(of);
    const float* before = state_before(of.states, sequence);
    float* inputs = state_after(of.states, sequence) + (u64)of.value_heads * KEY_DIM * VALUE_DIM;
    for (; channel < channels; channel += step)
        for (int j = 0; j < of.width - 1; j++)
            inputs[(u64)j * channels + channel] =
                input_of(of, before, sequence, of.n_each - of.width + 1 + j, channel);
}

// softplus of alpha with its bias.
DEVICE float time_step(const Net& of, int row, int value_head) {
    const float x = of.alpha[(u64)row * of.value_heads + value_head] + of.alpha_bias[value_head];
    return x > 20.f ? x : log1pf(expf(x));
}
