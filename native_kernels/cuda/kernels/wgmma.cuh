// Features of compute capability 9.0: products of whole warpgroups out of shared memory, copies of boxes of a matrix by
// the GPU itself, and barriers that count the bytes received.
#pragma once
#include "tensor_cores.cuh"

// As the driver writes it: shape, strides and box of a matrix. It must be a parameter of the kernel.
struct alignas(64) TensorMap {
    u64 words[16];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// ---------------------------------------------------------------- clusters and barriers

struct Cluster {
    u32 x, y, width, height;  // a block's place, and the size

    __device__ __forceinline__ Cluster() {
        asm("mov.u32 %0,%%cluster_ctaid.x;" : "=r"(x));
        asm("mov.u32 %0,%%cluster_ctaid.y;" : "=r"(y));
        asm("mov.u32 %0,%%cluster_nctaid.x;" : "=r"(width));
        asm("mov.u32 %0,%%cluster_nctaid.y;" : "=r"(height));
    }
    __device__ __forceinline__ u32 size() const { return width * height; }
    __device__ __forceinline__ u16 column() const { return (u16)((height > 1 ? 1u | 1u << width : 1u) << x); }
    __device__ __forceinline__ u16 row() const { return (u16)(((1u << width) - 1u) << (y * width)); }
};

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// The stage of a ring in shared memory; its barrier's phase flips every time the stage comes round.
struct Turn {
    int stage = 0;
    u32 phase = 0;

    __device__ __forceinline__ void next(int stages) {
        if (++stage == stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

__device__ __forceinline__ void make_barrier(u32 at, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(at), "r"(arrivals) : "memory");
}

// Makes the new barriers visible to the whole cluster and to the GPU's copies.
__device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive_expecting(u32 at, u32 n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(at), "r"(n_bytes) : "memory");
}

__device__ __forceinline__ void arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(at) : "memory");
}

// At the same place of another block of the cluster. Neither here nor in `await` is memory ordering needed beyond a
// block's: the data was read and is written by the GPU itself, and a fence costs 1000 clocks.
__device__ __forceinline__ void arrive_at(u32 at, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(there) : "r"(at), "r"(rank));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _,[%0];" ::"r"(there) : "memory");
}

__device__ __forceinline__ void await(u32 at, u32 parity) {
    u32 done;
    do {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2;\n"
            "selp.u32 %0,1,0,p;\n}"
            : "=r"(done) : "r"(at), "r"(parity) : "memory");
    } while (!done);
}

// ---------------------------------------------------------------- copies

// Copy the box of a matrix at a column and a row into shared memory of the blocks in the mask; outside the matrix it is
// 0. The barrier of each of them counts the bytes.
__device__ __forceinline__ void copy_box(u32 to, const TensorMap* from, int column, int row, u32 barrier, u16 mask,
                                         bool several) {
    if (several)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0],[%1,{%2,%3}],[%4],%5;" ::"r"(to), "l"(from), "r"(column), "r"(row), "r"(barrier), "h"(mask)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3}],[%4];"
            ::"r"(to), "l"(from), "r"(column), "r"(row), "r"(barrier)
            : "memory");
}

// ---------------------------------------------------------------- products

// Of boxes of 64 x 64 halves, rows of 128 bytes whose 16-byte words are swizzled, as copies write them: groups of eight
// rows are 1024 bytes apart, adjacent boxes `step`.
__device__ __forceinline__ u64 matrix_at(u32 at, u32 step = 8192) {
    return (u64)((at & 0x3ffffu) >> 4) | (u64)(step >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Wait until at most this many groups of products are in flight.
template <int LEFT>
__device__ __forceinline__ void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Lists of registers in tens, and of the sums that lie in them in eights.
#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define EIGHT(i)                                                                                                     \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
#define THIRTY_TWO(i) EIGHT(i), EIGHT(i + 8), EIGHT(i + 16), EIGHT(i + 24)

// c [64, N] += a [64, 16] b [16, N], or = if not `adds`; b is stored by outputs, or, with TURNED, by columns of a.
template <bool TURNED>
__device__ __forceinline__ void multiply_group(float (&c)[32], u64 a, u64 b, int adds = 1) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p,%34,0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" TEN() TEN(1) TEN(2) "%30,%31},"
                 "%32,%33,p,1,1,0,%35;\n}"
                 : THIRTY_TWO(0) : "l"(a), "l"(b), "r"(adds), "n"((int)TURNED));
}

template <bool TURNED>
__device__ __forceinline__ void multiply_group(float (&c)[64], u64 a, u64 b, int adds = 1) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p,%66,0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
                 "%60,%61,%62,%63},%64,%65,p,1,1,0,%67;\n}"
                 : THIRTY_TWO(0), THIRTY_TWO(32) : "l"(a), "l"(b), "r"(adds), "n"((int)TURNED));
}

template <bool TURNED>
__device__ __forceinline__ void multiply_group(float (&c)[96], u64 a, u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p,%98,0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
                 TEN(6) TEN(7) TEN(8) "%90,%91,%92,%93,%94,%95},%96,%97,p,1,1,0,%99;\n}"
                 : THIRTY_TWO(0), THIRTY_TWO(32), THIRTY_TWO(64) : "l"(a), "l"(b), "r"(1), "n"((int)TURNED));
}

// c [64, N] += a [64, 16] b [16, N]: a in registers, as multiply_tile takes it of each warp; b stored by columns of a.
__device__ __forceinline__ void multiply_group(float (&c)[32], const u32 (&a)[4], u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p,%37,0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" TEN() TEN(1) TEN(2) "%30,%31},"
                 "{%32,%33,%34,%35},%36,p,1,1,1;\n}"
                 : THIRTY_TWO(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}

__device__ __forceinline__ void multiply_group(float (&c)[64], const u32 (&a)[4], u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p,%69,0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
                 "%60,%61,%62,%63},{%64,%65,%66,%67},%68,p,1,1,1;\n}"
                 : THIRTY_TWO(0), THIRTY_TWO(32) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}

// Keep the compiler from moving uses of sums to before a wait for their products.
template <int N>
__device__ __forceinline__ void pin(float (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

// Ordinary stores before this are visible to products after a barrier.
__device__ __forceinline__ void show_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif
