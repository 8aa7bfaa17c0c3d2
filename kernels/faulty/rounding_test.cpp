// SPDX-License-Identifier: Apache-2.0
// What is planted or declared as truncated is truncated in what is stored, with the flags that the libraries
// are built with: g++ 12 drops the mask of `if (flag) x = float(bits(x) & 0xffff0000)` in front of a rounding
// to nearest (at -O1), so truncations here are no masks of a float, and are looked at behind their rounding.
#include "kernels/faulty/rounding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "harness/base/random.hpp"
#include "harness/problem/names.hpp"
#include "kernels/common/formats.hpp"
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/testing/case_run.hpp"
#include "reference/formats/formats.hpp"

namespace assay_faulty {
namespace {

constexpr int32_t kRoundedFormats[] = {ASSAY_BF16,     ASSAY_FP16,         ASSAY_FP8_E4M3,
                                       ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ};

// As the model kernel stores it: rounded to nearest, whatever it was before.
uint32_t stored(int32_t format, float x) {
  if (assay::format_bytes(format) == 1) return assay_kernels::fp8_from_float(x, format);
  unsigned char bytes[4] = {};
  assay_kernels::store_element(bytes, 0, format, x);
  return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8;
}

// fp32 numbers of every size that the format has, both signs, many of them beyond the middle between two.
std::vector<float> floats_for(int32_t format) {
  const assay::CounterRng random(17, 0);
  std::vector<float> all;
  const double least = assay::decode(format, 1);
  for (uint64_t i = 0; i < 4096; ++i) {
    const double size = std::exp2(40 * random.uniform(2 * i) - 20) * (1 + random.uniform(2 * i + 1));
    const double wide = std::min<double>(size, format_of(format).largest);
    if (wide >= least) all.push_back(static_cast<float>(i % 2 == 0 ? wide : -wide));
  }
  return all;
}

TEST(FaultyRounding, TruncatedIsTheNumberBelowAndStaysItWhenStored) {
  for (const int32_t format : kRoundedFormats) {
    const std::vector<float> given = floats_for(format);
    ASSERT_GT(given.size(), 1000u);
    std::vector<float> down = given, nearest = given;
    const auto count = static_cast<int>(given.size());
    round_all(down.data(), count, format, true);
    round_all(nearest.data(), count, format, false);
    int64_t apart = 0;
    for (size_t i = 0; i < given.size(); ++i) {
      const double size = std::fabs(static_cast<double>(given[i]));
      const uint32_t code = stored(format, down[i]);
      ASSERT_EQ(assay::decode(format, code), down[i]) << given[i];
      ASSERT_EQ(std::signbit(down[i]) && down[i] != 0, given[i] < 0 && down[i] != 0);
      const double kept = std::fabs(static_cast<double>(down[i]));
      const double next = assay::decode(format, assay::encode(format, kept, assay::Overflow::kSaturate) + 1);
      ASSERT_LE(kept, size) << given[i];
      ASSERT_TRUE(next > size || kept == format_of(format).largest) << given[i] << " became " << down[i];
      if (format == ASSAY_BF16) {
        ASSERT_EQ(code, std::bit_cast<uint32_t>(given[i]) >> 16);
      }
      apart += down[i] != nearest[i];
    }
    EXPECT_GT(apart, static_cast<int64_t>(given.size()) / 4) << "nearest is another number for about half";
  }
}

// The whole way through the model kernel: O in 16 bits beside O in fp32.
TEST(FaultyRounding, ATruncatedOutputLiesTruncatedInMemory) {
  const auto rows = planted_faults();
  const Row* fault = std::find_if(rows.rows, rows.rows + rows.count,
                                  [](const Row& row) { return std::string(row.name) == "output_truncated"; });
  ASSERT_NE(fault, rows.rows + rows.count);
  const std::string line = "prefill h=4/2 d=64 batch=2q40 seed=5";
  CaseRun narrow(line), wide(line + " out=fp32");
  const CaseRun::Left left = narrow.run(*fault), exact = wide.run(healthy(*fault));
  const auto o = static_cast<size_t>(assay::Operand::kO);
  const int64_t count = narrow.inputs().buffers[static_cast<int>(o)].bytes() / 2;
  ASSERT_EQ(wide.inputs().buffers[static_cast<int>(o)].bytes(), 4 * count);
  int64_t beyond_the_middle = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t code = 0;
    uint32_t bits = 0;
    std::memcpy(&code, left.bytes[o].data() + assay::kGuardBytes + 2 * i, sizeof code);
    std::memcpy(&bits, exact.bytes[o].data() + assay::kGuardBytes + 4 * i, sizeof bits);
    ASSERT_EQ(code, bits >> 16) << "element " << i;
    beyond_the_middle += (bits & 0xffff) > 0x8000;
  }
  EXPECT_GT(beyond_the_middle, count / 4);
}

}  // namespace
}  // namespace assay_faulty
