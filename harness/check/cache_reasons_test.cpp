// SPDX-License-Identifier: Apache-2.0
// What a row says of a cache that a step left wrong: of which operands, and which holds the worst element.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "harness/check/testing/judged_step.hpp"

namespace assay {
namespace {

using ::testing::MatchesRegex;
using testkit::judge;

const Backend& faults_of_steps() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_step_faults.so");
  return backend;
}

// K, V and scales are one count, so their shares stand beside it, and so does what became of O.
TEST(CacheReasons, SaysWhichOperandsOfTheCacheAreWrongAndWhatOIs) {
  const std::string reason =
      judge(faults_of_steps(), "step h=4/2 d=64 kv=fp8_e4m3:head page=4 batch=2q1s33_2q5s37_1q9 seed=3",
            "step_scale_of_next_head")
          .reason;
  EXPECT_THAT(reason, MatchesRegex("cache wrong .* \\(k .* of .*, v .* of .*\\); O (right|wrong) in .*"));
}

// A wrong scale of one head: where one side has scales alone, the worst element is of that side.
TEST(CacheReasons, SaysOfWhichOperandTheWorstElementOfTheCacheIs) {
  for (const auto& [kv, said] : {std::pair{"fp8_e4m3:head/bf16", ", v 0 of .*; the worst one of k\\); O .*"},
                                 {"bf16/fp8_e4m3:head", "\\(k 0 of .*; the worst one of v\\); O .*"}}) {
    const std::string line = fmt::format("step h=4/2 d=64 kv={} page=4 batch=2q1s33_2q5s37_1q9 seed=3", kv);
    EXPECT_THAT(judge(faults_of_steps(), line, "step_scale_of_next_head").reason,
                MatchesRegex(std::string("cache wrong .*") + said));
  }
}

}  // namespace
}  // namespace assay
