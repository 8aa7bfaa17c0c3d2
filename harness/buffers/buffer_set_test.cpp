// SPDX-License-Identifier: Apache-2.0
// Buffers by name and by address, shared by whoever holds the set.
#include "harness/buffers/buffer_set.hpp"

#include <gtest/gtest.h>

#include "harness/base/error.hpp"

namespace assay {
namespace {

TEST(BufferSet, FindsByNameAndByAddress) {
  BufferSet set;
  EXPECT_EQ(set.add("k", GuardedBuffer(100)), 0);
  EXPECT_EQ(set.add("o", GuardedBuffer(0)), 1);
  EXPECT_EQ(set.count(), 2);
  EXPECT_EQ(set.name(1), "o");
  EXPECT_EQ(set.find("k"), 0);
  EXPECT_EQ(set.find("v"), -1);
  const GuardedBuffer& k = set[0];
  for (const std::byte* inside : {k.raw(), k.payload(), k.payload() + 99, k.raw() + k.raw_bytes() - 1})
    EXPECT_EQ(set.containing(inside), 0);
  EXPECT_EQ(set.containing(set[1].payload()), 1) << "an empty buffer has guards";
  EXPECT_NE(set.containing(k.raw() + k.raw_bytes()), 0);
  EXPECT_EQ(set.containing(&set), -1);
  EXPECT_THROW(set.add("k", GuardedBuffer(1)), CheckError);
  EXPECT_THROW(set[2], CheckError);
}

TEST(BufferSet, CopiesShareTheirBuffers) {
  BufferSet set;
  const BufferSet copy = set;
  set.add("k", GuardedBuffer(8));
  ASSERT_EQ(copy.count(), 1);
  GuardedBuffer handle = set[0];
  handle.payload()[3] = std::byte{7};
  EXPECT_EQ(copy[0].payload()[3], std::byte{7});
}

TEST(Bindings, NameBuffersAfterOperandsAndMayShareThem) {
  BufferSet set;
  Bindings first(set, "first."), second(set, "second.");
  first.add(Operand::kO, 64);
  second.bind(Operand::kPartialO, first[Operand::kO]);
  EXPECT_EQ(set.find("first.o"), 0);
  EXPECT_EQ(set.count(), 1);
  EXPECT_EQ(second[Operand::kPartialO].payload(), first[static_cast<int>(Operand::kO)].payload());
  EXPECT_TRUE(second[Operand::kO].empty());
  EXPECT_THROW(first.add(Operand::kO, 64), CheckError);
}

}  // namespace
}  // namespace assay
