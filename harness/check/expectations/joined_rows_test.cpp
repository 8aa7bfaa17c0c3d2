// SPDX-License-Identifier: Apache-2.0
#include "harness/check/expectations/joined_rows.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace assay {
namespace {

// Rows, heads and dimensions each with a stride of their own; numbers say row, head and dimension.
struct HalfOfRows {
  HalfOfRows(int64_t heads, int64_t dims, int32_t from) : memory(100, -1) {
    t.format = ASSAY_FP32, t.rank = 3;
    t.shape[0] = 2, t.shape[1] = heads, t.shape[2] = dims;
    t.stride[2] = 2, t.stride[1] = 2 * dims + 1, t.stride[0] = heads * t.stride[1] + 3;
    for (int row = 0; row < 2; ++row)
      for (int head = 0; head < heads; ++head)
        for (int d = 0; d < dims; ++d)
          memory[static_cast<size_t>(row * t.stride[0] + head * t.stride[1] + 2 * d)] =
              static_cast<float>(100 * row + 10 * head + from + d);
  }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(memory.data()); }
  std::vector<float> memory;
  assay_tensor t{};
};

std::vector<float> joined_of(const HalfOfRows& a, const HalfOfRows& b) {
  const assay_tensor t = joined_rows(a.t, b.t);
  std::vector<float> to(static_cast<size_t>(joined_bytes(t)) / sizeof(float));
  join_rows(a.t, a.data(), b.t, b.data(), reinterpret_cast<std::byte*>(to.data()));
  return to;
}

TEST(JoinedRows, EachHeadHasItsOwnBehindTheFirst) {
  EXPECT_EQ(joined_of({2, 2, 0}, {2, 1, 2}),
            (std::vector<float>{0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112}));
}

TEST(JoinedRows, OneHeadStandsBehindAll) {
  EXPECT_EQ(joined_of({2, 1, 0}, {1, 2, 5}),
            (std::vector<float>{0, 5, 6, 10, 5, 6, 100, 105, 106, 110, 105, 106}));
}

}  // namespace
}  // namespace assay
