// Convert rows as files and bundles store them to the planes of layouts.py. Only the order of bytes changes.
//
// A thread writes 16 bytes of one plane of one row, from pairs of bytes: blocks of 18, 34 or 210 bytes have no
// alignment, and those of 17 are not even on even addresses.
#include "common.cuh"

// How a plane comes from a row: it has field_bytes of each block of block_bytes, from `offset` on. n_lines: 16-byte
// lines per row. n_bytes: the plane's bytes in a row, the rest of its last line is 0.
struct Plane {
    u8* to;
    int n_lines, field_bytes, block_bytes, offset, n_bytes;
};

struct Repacked {
    const u8* raw;
    u64 stride;
    const int* rows;  // target rows; 0: consecutive from `first` on
    int first, n_rows, n_planes;
    int lanes;      // 0: no lanes; else bytes of a block's numbers, 16 or 32, in the first plane
    int n_groups;   // of a row in lanes
    Plane planes[4];
};

__device__ __forceinline__ u32 pair_at(const u8* at) {
    return (u64)at & 1 ? __ldg(at) | (u32)__ldg(at + 1) << 8 : __ldg((const u16*)at);
}

__device__ __forceinline__ u32 word_at(const u8* at) { return pair_at(at) | pair_at(at + 2) << 16; }

__device__ __forceinline__ u32 some_at(const u8* at, int bytes_left) {
    return (bytes_left > 0 ? pair_at(at) : 0) | (bytes_left > 2 ? pair_at(at + 2) << 16 : 0);
}

// Four bytes of a group's chunk in a row of lanes: docs/bundle.md, section 4.
__device__ __forceinline__ u32 chunk_at(const Repacked& job, const u8* row, int group, int chunk) {
    const int block = group / 16, lanes = min(16, job.n_groups - 16 * block);
    return word_at(row + block * 16 * job.lanes + chunk * 4 * lanes + group % 16 * 4);
}

// Word k of a q4_0 block: columns 4 k to 4 k + 3 in its low nibbles, 16 more in its high ones. In lanes, the low
// nibbles of chunk c are columns 8 c to 8 c + 3, the high ones the next four.
__device__ __forceinline__ u32 nibbles_at(const Repacked& job, const u8* row, int group, int k) {
    const u32 low = chunk_at(job, row, group, k / 2) >> (4 * (k % 2));
    const u32 high = chunk_at(job, row, group, 2 + k / 2) >> (4 * (k % 2));
    return (low & 0x0f0f0f0fu) | (high & 0x0f0f0f0fu) << 4;
}

__device__ __forceinline__ uint4 line_of_lanes(const Repacked& job, const u8* row, int line) {
    if (job.lanes == 32) {
        const int group = line / 2, first = line % 2 * 4;
        return make_uint4(chunk_at(job, row, group, first), chunk_at(job, row, group, first + 1),
                          chunk_at(job, row, group, first + 2), chunk_at(job, row, group, first + 3));
    }
    return make_uint4(nibbles_at(job, row, line, 0), nibbles_at(job, row, line, 1), nibbles_at(job, row, line, 2),
                      nibbles_at(job, row, line, 3));
}

__device__ __forceinline__ const u8* place_of(const Plane& plane, const u8* row, int byte) {
    return row + (u64)(byte / plane.field_bytes) * plane.block_bytes + plane.offset + byte % plane.field_bytes;
}

// A line of fields that are shorter than one.
__device__ __forceinline__ uint4 gathered_line(const Plane& plane, const u8* row, int line) {
    u32 words[4] = {};
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        const int byte = 16 * line + i;
        u32 pair = 0;
        if (plane.field_bytes > 1) {
            if (byte < plane.n_bytes) pair = pair_at(place_of(plane, row, byte));
        } else {
            if (byte < plane.n_bytes) pair = __ldg(place_of(plane, row, byte));
            if (byte + 1 < plane.n_bytes) pair |= (u32)__ldg(place_of(plane, row, byte + 1)) << 8;
        }
        words[i / 4] |= pair << (8 * (i % 4));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ uint4 whole_line(const Plane& plane, const u8* row, int line) {
    const u8* at = place_of(plane, row, 16 * line);
    const int left = plane.n_bytes - 16 * line;
    if (left >= 16 && ((u64)at & 15) == 0) return __ldg((const uint4*)at);
    return make_uint4(some_at(at, left), some_at(at + 4, left - 4), some_at(at + 8, left - 8),
                      some_at(at + 12, left - 12));
}

KERNEL __launch_bounds__(256) unpack_rows(const Repacked job) {
    WAIT;
    const u8* row = job.raw + blockIdx.x * job.stride;
    const int to = job.rows ? job.rows[blockIdx.x] : job.first + (int)blockIdx.x;
    if (to < 0 || to >= job.n_rows) return;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        if (p == job.n_planes) break;
        const Plane& plane = job.planes[p];
        uint4* out = (uint4*)plane.to + (u64)to * plane.n_lines;
        for (int line = threadIdx.x; line < plane.n_lines; line += blockDim.x) {
            if (p == 0 && job.lanes) out[line] = line_of_lanes(job, row, line);
            else if (plane.field_bytes % 16 == 0) out[line] = whole_line(plane, row, line);
            else out[line] = gathered_line(plane, row, line);
        }
    }
    __threadfence();  // for kernels that read weights before they wait
}
