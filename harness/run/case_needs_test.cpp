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

}  // namespace
}  // namespace assay
