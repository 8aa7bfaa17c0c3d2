// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous instructions: mbarriers, bulk tensor copies (TMA), products of a warpgroup (wgmma),
// the hand-over of registers. Each function is one instruction and states its rule; section names are those
// of the PTX ISA manual, version 9.0. Kernels hold no inline assembly, so that an emulator can offer the same
// functions.
//
// Who sees what when: copies and products work in the async proxy. What they read of ordinary stores needs
// fence_async() by the writer before it signals; what a copy wrote is seen after the wait for its mbarrier.
#pragma once

#include <cuda.h>

#include "kernels/sm90/warp.h"

namespace sm90 {

// ---- mbarriers (section "mbarrier"). A phase completes when all expected arrivals have come and all
// expected bytes have been copied; then the next one begins with the same counts. Phases alternate between
// parity 0 and 1.
__device__ inline void barrier_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals));
}
// Makes initialised barriers visible to copies; __syncthreads() makes them visible to the block.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// One arrival that also says how many bytes this phase waits for.
__device__ inline void barrier_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// An arrival of this lane once its cp.async so far have written; one of those the barrier counts (noinc).
__device__ inline void arrive_when_copied(uint32_t bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
// Returns once the phase of the given parity has completed (a fresh barrier counts as having completed parity
// 1). For consumers: with a time hint, as below, ptxas may serialize the products around it (message C7520).
__device__ inline void barrier_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra leave;\nbra again;\nleave:\n}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}
// The same for producers, which wait most of the time: they sleep (10 ms at most) instead of polling.
__device__ inline void barrier_wait_asleep(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 10000000;\n"
      "@done bra leave;\nbra again;\nleave:\n}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}
// Does nothing, but the assembler must have `value` computed here, before what follows: an arrival that never
// happens, since no number is above infinity. Without this it moves waits for products up and arithmetic down
// as it likes.
__device__ inline void hold_until(float value, uint32_t any_barrier) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.gt.f32 p, %0, 0f7F800000;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [%1];\n}\n" ::"f"(value),
      "r"(any_barrier)
      : "memory");
}

// ---- clusters (sections "barrier.cluster", "mapa"): blocks of one cluster run at the same time and reach
// each other's shared memory. cluster_sync(): all threads of all its blocks; what they did before is seen
// after.
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same in two steps: a thread that has arrived goes on until it waits, which it does before it arrives
// again. Relaxed: of what it did before only initialised barriers are seen after, by their fence.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Stores to the address `to` in the shared memory of block `rank`, which must be running (st.async): seen
// there behind a wait for the barrier `bar` of that block, which counts the bytes.
__device__ inline void send(uint32_t to, uint32_t bar, uint32_t rank, float4 x) {
  asm volatile(
      "{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, "
      "[counter];\n}\n" ::"r"(to),
      "r"(bar), "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
      : "memory");
}
__device__ inline void send(uint32_t to, uint32_t bar, uint32_t rank, float2 x) {
  asm volatile(
      "{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [counter];\n}\n" ::"r"(
          to),
      "r"(bar), "r"(rank), "f"(x.x), "f"(x.y)
      : "memory");
}
// An arrival at the barrier that lies at the same address in block `rank` of the cluster. Relaxed: it says
// that something was read; ordinary writes before it are not seen by who waits. (As a release at cluster
// scope it took 1,500 cycles.)
__device__ inline void barrier_arrive_at(uint32_t bar, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n}\n" ::"r"(bar),
      "r"(rank)
      : "memory");
}

// ---- named barriers (bar.sync): all `threads`, whole warps of the block, that name the same of 16 barriers.
// bar.arrive counts, too, and does not wait.
__device__ inline void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- bulk tensor copies (section "cp.async.bulk.tensor"). A map (cuTensorMapEncodeTiled) describes a tensor
// of up to five dimensions, of strides that are multiples of 16 bytes, and a box; coordinates count elements,
// innermost first. Loads fill with zeros what lies outside the tensor and count the whole box on the barrier;
// stores leave it out. With 128-byte swizzle the 16-byte chunk i of row r of a box lies at chunk i ^ (r % 8)
// of that row, rows 128 bytes apart, the start a multiple of 1,024.
constexpr uint64_t kEvictFirst = 0x12F0000000000000ull;  // cache policies as createpolicy makes them
constexpr uint64_t kEvictLast = 0x14F0000000000000ull;
constexpr uint64_t kEvictNormal = 0x1000000000000000ull;

__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ inline void load_box(uint32_t to, const CUtensorMap* map, uint32_t bar, int x0, int x1, int x2,
                                uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(bar), "r"(x0), "r"(x1), "r"(x2), "l"(policy)
      : "memory");
}
// Of a map of five axes.
__device__ inline void load_box5(uint32_t to, const CUtensorMap* map, uint32_t bar, int x0, int x1, int x2,
                                 int x3, int x4, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
      "l"(map), "r"(bar), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "l"(policy)
      : "memory");
}
// The same box into the shared memory of all blocks of the cluster whose bit is set, at the same address,
// with the bytes counted on the barrier at the same address in each.
__device__ inline void load_box_for(uint16_t blocks, uint32_t to, const CUtensorMap* map, uint32_t bar,
                                    int x0, int x1, int x2, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(to),
      "l"(map), "r"(bar), "r"(x0), "r"(x1), "r"(x2), "h"(blocks), "l"(policy)
      : "memory");
}
// Stores belong to groups of the thread that issues them; the same thread commits and waits.
__device__ inline void store_box(const CUtensorMap* map, uint32_t from, int x0, int x1, int x2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(x0), "r"(x1), "r"(x2)
               : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until the shared memory of all stores that this thread committed has been read.
__device__ inline void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// Orders this thread's ordinary accesses to shared memory before later ones of copies and products.
__device__ inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// True in one lane of a whole warp, in a way that the compiler knows: a copy is then issued without a loop
// over lanes (elect.sync).
__device__ inline bool elect() {
  uint32_t chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(chosen));
  return chosen;
}

// ---- dependent launches (griddepcontrol): the next kernel of the stream, launched with programmatic
// serialization, may start once all blocks have called launch_next(); it waits for the end of this kernel,
// and for its writes, in wait_previous(), which all its blocks call.
__device__ inline void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ inline void wait_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- registers (setmaxnreg): by all warps of a warpgroup, in a kernel with a register limit at entry
// (__launch_bounds__(threads, 1)); up waits until others have given back enough.
template <int kCount>
__device__ inline void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
// No instruction: the values must be in registers here and no use may move across.
template <int kCount>
__device__ inline void pin(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int kCount>
__device__ inline void pin(uint32_t (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
template <int kCount>
__device__ inline void pin(int32_t (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// ---- products of a warpgroup (section "wgmma.mma_async"), by all its 128 threads. Products are
// asynchronous: mma_fence() before the first one that follows ordinary accesses to its registers,
// mma_commit() closes a group, mma_wait<n>() returns with at most n groups in flight. Until then accumulators
// may not be touched, A registers not written, shared operands not overwritten. Products with the same
// accumulator run in order.
__device__ inline void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ inline void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Lower word of the descriptor of an operand in shared memory with 128-byte swizzle (section "Matrix
// descriptor"); addresses and distances count in units of 16 bytes. K-major (Q, K): rows of 128 bytes, + 32
// bytes per k16, `leading_bytes` unused. MN-major (V): blocks of 8 keys x 64 columns = 1 KiB; the next 64
// columns lie `leading_bytes` further, + 2,048 bytes per k16. The upper word is the same for all operands
// here: the next 8 rows (or keys) lie 1 KiB further; bits 62-63 of the whole = 1 are the swizzle. So
// addresses need 32 bits only.
#define SM90_UPPER "0x40000040"
__device__ inline uint32_t operand(uint32_t address, uint32_t leading_bytes) {
  return ((address & 0x3FFFF) >> 4) | (leading_bytes >> 4) << 16;
}

#define SM90_R4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define SM90_R16(c, d, i) SM90_R4(c, d, i), SM90_R4(c, d, i + 4), SM90_R4(c, d, i + 8), SM90_R4(c, d, i + 12)
#define SM90_R8(c, d) SM90_R4(c, d, 0), SM90_R4(c, d, 4)
#define SM90_R16_(c, d) SM90_R16(c, d, 0)
#define SM90_L8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define SM90_L16 SM90_L8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define SM90_R32(c, d) SM90_R16(c, d, 0), SM90_R16(c, d, 16)
#define SM90_R40(c, d) SM90_R32(c, d), SM90_R4(c, d, 32), SM90_R4(c, d, 36)
#define SM90_R64(c, d) SM90_R32(c, d), SM90_R16(c, d, 32), SM90_R16(c, d, 48)
#define SM90_L32                                                                                            \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%" \
  "28,"                                                                                                     \
  "%29,%30,%31"
#define SM90_L64                                                                                           \
  SM90_L32                                                                                                 \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%" \
  "57,"                                                                                                    \
  "%58,%59,%60,%61,%62,%63"

#define SM90_R128(c, d) \
  SM90_R64(c, d), SM90_R16(c, d, 64), SM90_R16(c, d, 80), SM90_R16(c, d, 96), SM90_R16(c, d, 112)
#define SM90_L40 SM90_L32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define SM90_L128                                                                                          \
  SM90_L64                                                                                                 \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%" \
  "89,"                                                                                                    \
  "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%"  \
  "112,"                                                                                                   \
  "%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define SM90_R48(c, d) SM90_R32(c, d), SM90_R16(c, d, 32)
#define SM90_L48 SM90_L40 ",%40,%41,%42,%43,%44,%45,%46,%47"

// kK: elements of k of one product; types: of D, A and B; order: signs and, of 16-bit formats, how operands
// lie (whole numbers have neither).
#define SM90_WGMMA(kN, kK, L, types, add, upper, operands, order)           \
  "{\n.reg .pred p;\n.reg .b64 da, db;\nsetp.ne.b32 p, " add ", 0;\n" upper \
  "wgmma.mma_async.sync.aligned.m64n" #kN "k" #kK types " {" L "}, " operands ", p" order ";\n}\n"
#define SM90_SHARED(kN, kK, L, types, add, order, upper_b, i0, i1) \
  SM90_WGMMA(kN, kK, L, types, add,                                \
             "mov.b64 da, {" i0 ", " SM90_UPPER "};\nmov.b64 db, {" i1 ", " upper_b "};\n", "da, db", order)
#define SM90_REGISTERS(kN, kK, L, types, add, order, upper_b, i0, i1, i2, i3, i4) \
  SM90_WGMMA(kN, kK, L, types, add, "mov.b64 db, {" i4 ", " upper_b "};\n",       \
             "{" i0 "," i1 "," i2 "," i3 "}, db", order)
#define SM90_FLOATS(type) ".f32." type "." type

// D[64][kN] (+)= A[64][16] * B[16][kN], operands in fp16 or bf16, fp32 sums spread over the warpgroup: lane l
// of warp w holds row 16 w + l / 4 (and + 8), columns 8 j + 2 (l % 4) + {0, 1} in d[4 j + {0, 1}] (and + 2).
// A in registers: the same rows, columns 2 (l % 4) + {0, 1} in a[0] (rows + 8: a[1]), + 8 in a[2] and a[3].
// With A and B from shared memory: first: D = A B, next: D += A B, both K-major; values: D += A B, A K-major,
// B MN-major; turned: D += A B, A MN-major, B K-major. With A from registers: held: D += A B, B K-major;
// transposed: D += A B, B MN-major. kGroup: bytes from 8 rows (or keys) of B to the next 8.
template <bool kHalf, int kN, int kGroup = 1024>
struct Mma;

// The same of e4m3, 32 elements of k a product, both operands K-major (there is nothing else): + 32 bytes per
// k32. A in registers: columns 4 (l % 4) + {0 .. 3} in a[0] (rows + 8: a[1]), + 16 in a[2] and a[3].
// held_first: D = A B. Sums keep 13 bits (calibrated), so they should not run long.
template <int kN>
struct Mma8;

// The same of int8 with sums in int32, exact (they wrap): 32 elements of k, both operands K-major from shared
// memory, + 32 bytes per k32. N is 8, 24 or a multiple of 16. The type of D is .s32: no signs, no order of
// operands (section "wgmma.mma_async", syntax for integers).
template <int kN>
struct MmaInt8;

#define SM90_MMA_SHARED(name, R, L, kN, kK, sums, types, constraint, add, order, upper, i0, i1) \
  static __device__ inline void name(sums(&d)[kN / 2], uint32_t a, uint32_t b) {                \
    asm volatile(SM90_SHARED(kN, kK, L, types, add, order, upper, i0, i1)                       \
                 : R(constraint, d)                                                             \
                 : "r"(a), "r"(b));                                                             \
  }
#define SM90_MMA_HELD(name, R, L, kN, kK, type, constraint, add, order, upper, i0, i1, i2, i3, i4)   \
  static __device__ inline void name(float(&d)[kN / 2], const uint32_t* a, uint32_t b) {             \
    asm volatile(                                                                                    \
        SM90_REGISTERS(kN, kK, L, SM90_FLOATS(type), add, ", 1, 1" order, upper, i0, i1, i2, i3, i4) \
        : R(constraint, d)                                                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));                                       \
  }
#define SM90_MMA_APART(kHalf, kN, kGroup, upper, type, R, L, i0, i1, i2, i3, i4)                             \
  template <>                                                                                                \
  struct Mma<kHalf, kN, kGroup> {                                                                            \
    SM90_MMA_SHARED(first, R, L, kN, 16, float, SM90_FLOATS(type), "=f", "0", ", 1, 1, 0, 0", upper, i0, i1) \
    SM90_MMA_SHARED(next, R, L, kN, 16, float, SM90_FLOATS(type), "+f", "1", ", 1, 1, 0, 0", upper, i0, i1)  \
    SM90_MMA_SHARED(values, R, L, kN, 16, float, SM90_FLOATS(type), "+f", "1", ", 1, 1, 0, 1", upper, i0,    \
                    i1)                                                                                      \
    SM90_MMA_SHARED(turned, R, L, kN, 16, float, SM90_FLOATS(type), "+f", "1", ", 1, 1, 1, 0", upper, i0,    \
                    i1)                                                                                      \
    SM90_MMA_HELD(held, R, L, kN, 16, type, "+f", "1", ", 0", upper, i0, i1, i2, i3, i4)                     \
    SM90_MMA_HELD(transposed, R, L, kN, 16, type, "+f", "1", ", 1", upper, i0, i1, i2, i3, i4)               \
  };
#define SM90_MMA(kHalf, kN, type, R, L, i0, i1, i2, i3, i4) \
  SM90_MMA_APART(kHalf, kN, 1024, SM90_UPPER, type, R, L, i0, i1, i2, i3, i4)
#define SM90_MMA8(kN, R, L, i0, i1, i2, i3, i4)                                                              \
  template <>                                                                                                \
  struct Mma8<kN> {                                                                                          \
    SM90_MMA_SHARED(first, R, L, kN, 32, float, SM90_FLOATS("e4m3"), "=f", "0", ", 1, 1", SM90_UPPER, i0,    \
                    i1)                                                                                      \
    SM90_MMA_SHARED(next, R, L, kN, 32, float, SM90_FLOATS("e4m3"), "+f", "1", ", 1, 1", SM90_UPPER, i0, i1) \
    SM90_MMA_HELD(held_first, R, L, kN, 32, "e4m3", "=f", "0", "", SM90_UPPER, i0, i1, i2, i3, i4)           \
    SM90_MMA_HELD(held, R, L, kN, 32, "e4m3", "+f", "1", "", SM90_UPPER, i0, i1, i2, i3, i4)                 \
  };
#define SM90_MMA_INT8(kN, R, L, i0, i1)                                                            \
  template <>                                                                                      \
  struct MmaInt8<kN> {                                                                             \
    SM90_MMA_SHARED(first, R, L, kN, 32, int32_t, ".s32.s8.s8", "=r", "0", "", SM90_UPPER, i0, i1) \
    SM90_MMA_SHARED(next, R, L, kN, 32, int32_t, ".s32.s8.s8", "+r", "1", "", SM90_UPPER, i0, i1)  \
  };
SM90_MMA(false, 16, "bf16", SM90_R8, SM90_L8, "%8", "%9", "%10", "%11", "%12")
SM90_MMA(true, 16, "f16", SM90_R8, SM90_L8, "%8", "%9", "%10", "%11", "%12")
SM90_MMA(false, 32, "bf16", SM90_R16_, SM90_L16, "%16", "%17", "%18", "%19", "%20")
SM90_MMA(true, 32, "f16", SM90_R16_, SM90_L16, "%16", "%17", "%18", "%19", "%20")
SM90_MMA(false, 64, "bf16", SM90_R32, SM90_L32, "%32", "%33", "%34", "%35", "%36")
SM90_MMA(true, 64, "f16", SM90_R32, SM90_L32, "%32", "%33", "%34", "%35", "%36")
SM90_MMA(false, 128, "bf16", SM90_R64, SM90_L64, "%64", "%65", "%66", "%67", "%68")
SM90_MMA(true, 128, "f16", SM90_R64, SM90_L64, "%64", "%65", "%66", "%67", "%68")
SM90_MMA(false, 80, "bf16", SM90_R40, SM90_L40, "%40", "%41", "%42", "%43", "%44")
SM90_MMA(true, 80, "f16", SM90_R40, SM90_L40, "%40", "%41", "%42", "%43", "%44")
SM90_MMA(false, 256, "bf16", SM90_R128, SM90_L128, "%128", "%129", "%130", "%131", "%132")
SM90_MMA(true, 256, "f16", SM90_R128, SM90_L128, "%128", "%129", "%130", "%131", "%132")
// Pages in boxes (prefill_producers.h): 8 rows of all columns, then the next 8.
#define SM90_PAGES(kN, kGroup, upper, R, L, i0, i1, i2, i3, i4)              \
  SM90_MMA_APART(false, kN, kGroup, upper, "bf16", R, L, i0, i1, i2, i3, i4) \
  SM90_MMA_APART(true, kN, kGroup, upper, "f16", R, L, i0, i1, i2, i3, i4)
SM90_PAGES(128, 2048, "0x40000080", SM90_R64, SM90_L64, "%64", "%65", "%66", "%67", "%68")
SM90_PAGES(80, 4096, "0x40000100", SM90_R40, SM90_L40, "%40", "%41", "%42", "%43", "%44")
SM90_PAGES(256, 4096, "0x40000100", SM90_R128, SM90_L128, "%128", "%129", "%130", "%131", "%132")
SM90_MMA8(96, SM90_R48, SM90_L48, "%48", "%49", "%50", "%51", "%52")
SM90_MMA8(128, SM90_R64, SM90_L64, "%64", "%65", "%66", "%67", "%68")
SM90_MMA_INT8(128, SM90_R64, SM90_L64, "%64", "%65")

}  // namespace sm90
