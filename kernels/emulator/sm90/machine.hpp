// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous machinery on the emulator: what the functions of kernels/sm90/warp.h and warpgroup.h
// call there (sm90/include). Several blocks run at a time, one fiber per thread, warps in a seeded order.
// Copies and products are performed late: a product when its warp waits for it, a copy when nobody else can
// go on or, in every other launch, at a seeded random time before. Until then accumulators hold NaN.
//
// Every function is called by one thread (a fiber); those with a place take part in messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/emulator/device.hpp"

namespace gpu::emulator {

// What a tensor map says; sizes, boxes and coordinates in elements, innermost first, strides in bytes from
// the second axis on. 128 bytes as the device's.
struct alignas(64) TensorMap {
  static constexpr uint32_t kMagic = 0x6d617035;
  unsigned char* data;
  uint64_t size[5], stride[4];
  uint16_t box[5];
  uint8_t rank, element_bytes, swizzle;  // swizzle: 0 none, 1 to 3: 32, 64, 128 bytes
  uint32_t magic;
};
static_assert(sizeof(TensorMap) == 128);
// False where the driver refuses: starts, strides and boxes that the manual of cuTensorMapEncodeTiled
// forbids.
bool encode_map(TensorMap*, uint32_t element_bytes, uint32_t rank, void* data, const uint64_t* sizes,
                const uint64_t* strides, const uint32_t* boxes, const uint32_t* steps, uint32_t swizzle);

namespace machine {

// Ends the launch: the emulator does not model this.
[[noreturn]] void refuse(const char* what, Where);

uint32_t shared_address(const void*, Where);

// `bytes`: 4 or 16; zeros where `valid` is false.
void copy(uint32_t to, const void* from, uint32_t bytes, bool valid, Where);
void commit_copies();
void wait_copies(int younger);

void load_matrix(uint32_t (&)[4], uint32_t from, bool transposed, Where);
void store_matrix(uint32_t to, const uint32_t (&)[4], bool transposed, Where);
uint32_t transpose(uint32_t, Where);
void store_shared(uint32_t to, uint32_t, Where);
void load_relaxed(const void* from, void* to, size_t bytes, Where);
void store_relaxed(void* to, const void* from, size_t bytes, Where);

void barrier_init(uint32_t bar, uint32_t arrivals, Where);
void barrier_init_fence();
void barrier_arrive(uint32_t bar, uint32_t expect_bytes, Where);
void arrive_when_copied(uint32_t bar, Where);
void barrier_wait(uint32_t bar, uint32_t parity, Where);
uint32_t cluster_rank();
void cluster_arrive(Where);
void cluster_wait(Where);
// `bytes`: 8 or 16, to the shared memory of block `rank`, whose barrier counts them.
void send(uint32_t to, uint32_t bar, uint32_t rank, const float* values, uint32_t bytes, Where);
void barrier_arrive_at(uint32_t bar, uint32_t rank, Where);
void named_barrier(int id, int threads, bool waits, Where);

// Where a box begins, in elements, innermost first: of the axes that the instruction names.
struct Corner {
  uint32_t axes;
  std::array<int, 5> at;
};
// blocks: 0 this block, else a bit for each of the cluster.
void load_box(uint32_t blocks, uint32_t to, const TensorMap&, uint32_t bar, const Corner&, Where);
void store_box(const TensorMap&, uint32_t from, const Corner&, Where);
void store_commit();
void store_wait_read();
void fence_async();
bool elect(Where);
void wait_previous();
void set_registers(int count, bool up, Where);

enum class Format : uint8_t { kBf16, kFp16, kE4m3, kInt8 };
// D[64][columns] (+)= A B, 32 bytes along k of each operand.
struct Product {
  uint16_t columns;
  Format format;
  bool add;                   // to what the accumulators hold
  bool a_by_rows, b_by_rows;  // the operand in shared memory is MN-major
};
void mma_fence(Where);
void mma_commit(Where);
void mma_wait(int left, Where);
// sums: of four bytes each, float, of int8 int32_t. registers: of A, or null: A lies at descriptor a.
void multiply(const Product&, void* sums, const uint32_t* registers, uint64_t a, uint64_t b, Where);

}  // namespace machine
}  // namespace gpu::emulator
