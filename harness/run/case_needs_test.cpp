// SPDX-License-Identifier: Apache-2.0
// What a case costs assay itself is not put to a kernel's account: memory that is only laid out gives time,
// and a case that the machine cannot hold is refused before any kernel is called.
#include "harness/run/case_needs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/input/poison.hpp"
#include "harness/run/machine.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

Problem problem_of(const std::string& line) { return make_problem(parse_scenario(line)); }

TEST(Allowance, UnusedMemoryGivesTimeToo) {
  const std::string line = "cache_write h=8 d=128 batch=2q9s20 seed=1";
  const Problem small = problem_of(line), large = problem_of(line + " blocks=100000");
  const double more =
      check_allowance_s(work_of(large), large, 0) - check_allowance_s(work_of(small), small, 0);
  EXPECT_GT(more, 20) << "6.5 GB of cache are written, copied and compared";
}

TEST(Allowance, BlocksThatTakeNoMemoryTakeNoTime) {
  const Problem far = problem_of("paged h=8 d=128 blocks=100000 batch=2q1s20 seed=1");
  EXPECT_LT(laid_out_bytes(far), 1e7);
  EXPECT_LT(check_allowance_s(work_of(far), far, 0), 1);
}

TEST(TooLarge, IsSaidBeforeAKernelIsCalled) {
  const Problem p = problem_of("cache_write h=8 d=128 blocks=100000 batch=2q9s20 seed=1");
  EXPECT_EQ(too_large(p, true, 0), "") << "nobody knows";
  EXPECT_EQ(too_large(p, true, int64_t{14} << 30), "");
  EXPECT_THAT(too_large(p, true, int64_t{10} << 30), HasSubstr("12.2 GiB of the host's memory"));
  EXPECT_EQ(too_large(p, false, int64_t{10} << 30), "") << "the device has memory of its own";
  EXPECT_GT(available_memory_bytes(), int64_t{1} << 27);
}

TEST(Alone, IsWhatIsLargeOrLong) {
  const auto alone = [](const std::string& line, int32_t at_once, int64_t gib) {
    return wants_to_be_alone(parse_scenario(line), 3e7, at_once, gib << 30);
  };
  const std::string small = "paged h=4/2 d=64 batch=2q9s20";
  EXPECT_FALSE(alone(small, 64, 1));
  const std::string cache = "cache_write h=8 d=128 blocks=100000 batch=2q9s20";
  EXPECT_FALSE(alone(cache, 2, 64)) << "6.5 GB of operands, twice";
  EXPECT_TRUE(alone(cache, 2, 32));
  EXPECT_TRUE(alone(cache, 4, 64));
  // 38,400 rows of 512 elements, a few hundred bytes each.
  const std::string results = "paged h=128/1 d=576/512 page=64 layout=mla batch=300q1s150";
  EXPECT_FALSE(alone(results, 2, 24));
  EXPECT_TRUE(alone(results, 2, 12));
  EXPECT_TRUE(alone(results, 6, 24));
  EXPECT_FALSE(alone("prefill h=2 d=128 batch=1q200s128k", 2, 24));
  EXPECT_TRUE(alone("prefill h=8 d=128 batch=1q1000s128k", 2, 24)) << "5e11 flops";
}

}  // namespace
}  // namespace assay
