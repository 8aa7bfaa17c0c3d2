// SPDX-License-Identifier: Apache-2.0
// Guards: whole after construction, and a write of one byte anywhere in them is found with its place.
// Anything that changes the layout of raw() must keep these offsets.
#include "harness/buffers/guarded_buffer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "harness/base/error.hpp"

namespace assay {
namespace {

constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();

TEST(GuardedBuffer, PayloadIsAlignedBetweenWholeGuards) {
  for (int64_t bytes : {0, 1, 63, 4095, 4096, 100001}) {
    GuardedBuffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(buffer.empty(), bytes == 0);
    EXPECT_EQ(buffer.raw_bytes(), bytes + 2 * kGuardBytes);
    EXPECT_EQ(buffer.payload(), buffer.raw() + kGuardBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.payload()) % 4096, 0u);
    std::memset(buffer.payload(), 0, bytes);
    EXPECT_EQ(broken_guard(buffer.raw(), bytes), kWhole);
  }
}

TEST(GuardedBuffer, FindsASingleForeignByteAndSaysWhere) {
  GuardedBuffer buffer(100);
  for (int64_t offset :
       {-kGuardBytes, int64_t{-17}, int64_t{-1}, int64_t{100}, int64_t{101}, 99 + kGuardBytes}) {
    const std::byte old = buffer.payload()[offset];
    buffer.payload()[offset] = std::byte{0};
    EXPECT_EQ(broken_guard(buffer.raw(), 100), offset);
    buffer.payload()[offset] = old;
  }
  EXPECT_EQ(broken_guard(buffer.raw(), 100), kWhole);
}

TEST(GuardedBuffer, EmptyAndCopiesAndRefusals) {
  const GuardedBuffer none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.payload(), nullptr);
  EXPECT_EQ(none.raw(), nullptr);
  EXPECT_EQ(none.raw_bytes(), 0);
  GuardedBuffer first(8);
  const GuardedBuffer second = first;  // one memory, as V on K's
  EXPECT_EQ(second.payload(), first.payload());
  EXPECT_THROW(GuardedBuffer(-1), CheckError);
#ifndef ASSAY_SANITIZED  // which ends the program on a request of this size
  EXPECT_THROW(GuardedBuffer(int64_t{1} << 60), InfrastructureError);
#endif
}

}  // namespace
}  // namespace assay
