// SPDX-License-Identifier: Apache-2.0
// Shards partition any set of lines; options survive a trip through run.json.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/error.hpp"
#include "harness/run/case_stream.hpp"
#include "harness/run/options.hpp"

namespace assay {
namespace {

TEST(Shard, EveryLineFallsIntoExactlyOneAndPartsAreSimilar) {
  for (int32_t n : {1, 2, 3, 7, 64}) {
    std::vector<int> sizes(n, 0);
    for (int i = 0; i < 6400; ++i) {
      const std::string line = fmt::format("paged batch=1q1s{} seed={}", i, i % 7);
      int owners = 0;
      for (int32_t s = 1; s <= n; ++s)
        if (in_shard(line, {s, n})) {
          ++owners;
          ++sizes[s - 1];
        }
      ASSERT_EQ(owners, 1) << line << " of " << n;
    }
    for (int size : sizes) {
      EXPECT_GT(size, 6400 / n / 2);
      EXPECT_LT(size, 6400 / n * 2);
    }
  }
}

TEST(Shard, TheAssignmentIsTheSameEverywhere) {
  // FNV-1a of "a" is af63dc4c8601ec8c (the function's published test vector).
  EXPECT_EQ(hex(fingerprint("a")), "af63dc4c8601ec8c");
  EXPECT_TRUE(in_shard("a", {1 + static_cast<int32_t>(0xaf63dc4c8601ec8cull % 5), 5}));
}

TEST(Shard, TextIsChecked) {
  EXPECT_EQ(parse_shard("2/8"), (Shard{2, 8}));
  for (const char* bad : {"", "2", "0/4", "5/4", "2/", "/2", "a/b", "1/2x", "-1/2", "1/0"})
    EXPECT_THROW(parse_shard(bad), InputError) << bad;
}

std::vector<std::string> lines_of(CaseStream& stream) {
  std::vector<std::string> lines;
  while (const auto c = stream.next()) lines.push_back(c->line);
  return lines;
}

// pairs x heads x (d_qk + d_v): 10 x 4 x 112, 20 x 4 x 112, 30 x 4 x 112.
TEST(Selection, CasesLargerThanAskedForAreLeftOutAndCounted) {
  RunOptions o;
  o.suites = {"paged h=4/2 d=64/48 batch=1q1s[10:30:10] seed=1", "quantize_int8 h=64 d=128 batch=1q1000"};
  o.largest = 20 * 4 * 112;
  CaseStream stream(o);
  EXPECT_THAT(lines_of(stream),
              ::testing::ElementsAre(::testing::HasSubstr("1q1s10"), ::testing::HasSubstr("1q1s20"),
                                     ::testing::HasSubstr("quantize_int8")));
  EXPECT_EQ(stream.too_large(), 1);
  EXPECT_EQ(count_cases(o).cases, 3);

  const uint64_t selected = count_cases(o).fingerprint;
  o.largest = 0;
  CaseStream all(o);
  EXPECT_EQ(lines_of(all).size(), 4u);
  EXPECT_EQ(all.too_large(), 0);
  EXPECT_NE(count_cases(o).fingerprint, selected) << "another selection is another run";
}

TEST(Selection, TooLargeCasesBelongToOneShardAndTakeNothingFromTheLimit) {
  RunOptions o;
  o.suites = {"paged h=4 d=64 batch=1q1s[100,101,102,103,5,6,7] seed=1"};
  o.largest = 50 * 4 * 128;
  int64_t left_out = 0;
  for (int32_t s = 1; s <= 3; ++s) {
    o.shard = {s, 3};
    CaseStream part(o);
    lines_of(part);
    left_out += part.too_large();
  }
  EXPECT_EQ(left_out, 4);
  o.shard = {};
  o.limit = 2;
  CaseStream limited(o);
  EXPECT_THAT(lines_of(limited),
              ::testing::ElementsAre(::testing::HasSubstr("1q1s5 "), ::testing::HasSubstr("1q1s6 ")));
}

TEST(Options, RoundTripThroughJson) {
  RunOptions o;
  o.suites = {"smoke", "paged batch=1q1s7"};
  o.backends = {"cpu"};
  o.kernels = {"paged_*"};
  o.filter = "kv=fp8";
  o.seed = 0xfedcba9876543210ull;
  o.largest = 2e6;
  o.limit = 17;
  o.only = {{"paged batch=1q1s7", "paged_k", "./b.so"}};
  o.shard = {2, 3};
  o.timed = true;
  o.caches = {"cold", "hot"};
  o.rule = {0.03, 11, 22, 0.5, 0.01};
  o.rows_budget = 1e6;
  o.timeout_s = 7;
  o.worker_memory_bytes = 1 << 30;
  const nlohmann::json j = options_json(o);
  EXPECT_EQ(options_json(options_from_json(nlohmann::json::parse(j.dump()), "run.json")), j);
  o.seed.reset();
  EXPECT_EQ(options_from_json(options_json(o), "run.json").seed, std::nullopt);
}

TEST(Options, DamagedJsonNamesTheKey) {
  nlohmann::json j = options_json({});
  j["limit"] = "many";
  try {
    options_from_json(j, "run.json");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(),
                ::testing::HasSubstr("run.json: options: field 'limit' is 'many'; expected a whole number"));
  }
}

}  // namespace
}  // namespace assay
