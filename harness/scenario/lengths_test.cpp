// SPDX-License-Identifier: Apache-2.0
// Drawn lengths against the distributions that lengths.hpp states, group expansion, and the search for
// trace files.
#include "harness/scenario/lengths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/scenario/batch.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

BatchSpec drawn(BatchSpec::Kind kind, int32_t n, LengthRange q, LengthRange s, double a = 1.2) {
  BatchSpec spec;
  spec.kind = kind;
  spec.n = n;
  spec.q = q;
  spec.s = s;
  spec.exponent = a;
  return spec;
}

TEST(Groups, ExpandInOrderAndShareWithTheFirstOfTheirGroup) {
  BatchSpec spec;
  spec.groups = {{2, 1, 100, 0}, {3, 4, 64, 48}, {1, 7, 7, 7}, {2, 1, 10, 99}};
  EXPECT_THAT(draw_requests(spec, 0),
              ElementsAre(Request{1, 100, -1, 0}, Request{1, 100, -1, 0}, Request{4, 64, -1, 0},
                          Request{4, 64, 2, 48}, Request{4, 64, 2, 48}, Request{7, 7, -1, 0},
                          Request{1, 10, -1, 0}, Request{1, 10, 6, 10}));
}

TEST(Uniform, FillsTheRangeEvenly) {
  const auto requests = draw_requests(drawn(BatchSpec::Kind::kUniform, 16000, {1, 1}, {5, 12}), 3);
  std::vector<int> count(13);
  for (const Request& r : requests) {
    ASSERT_EQ(r.q_len, 1);
    ASSERT_GE(r.kv_len, 5);
    ASSERT_LE(r.kv_len, 12);
    ++count[r.kv_len];
  }
  for (int x = 5; x <= 12; ++x) EXPECT_NEAR(count[x], 2000, 4 * std::sqrt(2000 * 7.0 / 8)) << x;  // 4 sigma
}

TEST(Uniform, KvIsNeverBelowQAndOnlyRaisedWhereItMust) {
  const auto requests = draw_requests(drawn(BatchSpec::Kind::kUniform, 2000, {1, 16}, {4, 8}), 1);
  bool raised = false;
  for (const Request& r : requests) {
    ASSERT_GE(r.kv_len, r.q_len);
    ASSERT_LE(r.kv_len, std::max(8, r.q_len));
    raised |= r.kv_len > 8;
  }
  EXPECT_TRUE(raised);
}

// Every value of a small range against its exact probability.
void check_zipf(LengthRange range, double a) {
  const int n = 40000;
  const auto requests = draw_requests(drawn(BatchSpec::Kind::kZipf, n, {1, 1}, range, a), 11);
  std::vector<int> count(range.high + 1);
  for (const Request& r : requests) {
    ASSERT_GE(r.kv_len, range.low);
    ASSERT_LE(r.kv_len, range.high);
    ++count[r.kv_len];
  }
  double total = 0;
  for (int x = range.low; x <= range.high; ++x) total += std::pow(x, -a);
  for (int x = range.low; x <= range.high; ++x) {
    const double p = std::pow(x, -a) / total;
    EXPECT_NEAR(count[x], n * p, 4.5 * std::sqrt(n * p * (1 - p)) + 1) << "x=" << x << " a=" << a;
  }
}

TEST(Zipf, MatchesTheStatedProbabilities) {
  check_zipf({1, 8}, 1.2);
  check_zipf({1, 8}, 1.0);
  check_zipf({1, 5}, 3.5);
  check_zipf({6, 9}, 0.0);
  check_zipf({20, 40}, 2.0);
}

TEST(Zipf, ReachesAWideRangeAndEdgesOfIt) {
  const auto wide = draw_requests(drawn(BatchSpec::Kind::kZipf, 4000, {1, 1}, {128, 1 << 26}, 1.0), 5);
  const auto beyond = [&](int limit) {
    return std::count_if(wide.begin(), wide.end(), [&](const Request& r) { return r.kv_len > limit; });
  };
  EXPECT_GT(beyond(1 << 20), 600);  // a = 1 spends equal shares on equal ratios: 6 of 19 octaves
  EXPECT_LT(beyond(1 << 20), 2000);
  const auto one = draw_requests(drawn(BatchSpec::Kind::kZipf, 3, {1, 1}, {77, 77}, 1.2), 5);
  for (const Request& r : one) EXPECT_EQ(r.kv_len, 77);
}

TEST(Draws, DependOnSeedAndIndexOnly) {
  for (const auto kind : {BatchSpec::Kind::kUniform, BatchSpec::Kind::kZipf}) {
    const auto few = draw_requests(drawn(kind, 5, {1, 9}, {16, 4096}), 42);
    const auto many = draw_requests(drawn(kind, 50, {1, 9}, {16, 4096}), 42);
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
    EXPECT_NE(many, draw_requests(drawn(kind, 50, {1, 9}, {16, 4096}), 43));
  }
}

TEST(Draws, RejectBadRanges) {
  const auto uniform = BatchSpec::Kind::kUniform, zipf = BatchSpec::Kind::kZipf;
  EXPECT_THROW(draw_requests(drawn(uniform, 0, {1, 1}, {1, 8}), 0), InputError);
  EXPECT_THROW(draw_requests(drawn(uniform, 1, {2, 1}, {1, 8}), 0), InputError);
  EXPECT_THROW(draw_requests(drawn(uniform, 1, {1, 1}, {-1, 8}), 0), InputError);
  EXPECT_THROW(draw_requests(drawn(zipf, 1, {1, 1}, {0, 8}), 0), InputError);
  EXPECT_THROW(draw_requests(drawn(zipf, 1, {1, 1}, {1, 8}, -1), 0), InputError);
  EXPECT_THROW(draw_requests(drawn(zipf, 1, {1, 1}, {1, 8}, std::nan("")), 0), InputError);
}

class TraceFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("assay_lengths_test_{}", ::getpid());
    fs::create_directories(folder_ / "a");
    fs::create_directories(folder_ / "b");
  }
  void TearDown() override {
    ::unsetenv("ASSAY_TRACE_PATH");
    fs::remove_all(folder_);
  }
  void write(const std::string& name, const std::string& rows) {
    std::ofstream(folder_ / name) << "TIMESTAMP,ContextTokens,GeneratedTokens\n" << rows;
  }
  fs::path folder_;
};

BatchSpec trace_spec(const std::string& file, int64_t step) {
  BatchSpec spec;
  spec.kind = BatchSpec::Kind::kTrace;
  spec.file = file;
  spec.step = step;
  spec.tokens = 100;
  spec.seqs = 4;
  return spec;
}

TEST_F(TraceFiles, AreFoundInTheFoldersInOrder) {
  write("a/mine.csv", "2023-11-16 18:15:46,7,2\n");
  write("b/mine.csv", "2023-11-16 18:15:46,9,2\n");
  write("b/other.csv", "2023-11-16 18:15:46,5,2\n");
  EXPECT_FALSE(trace_available("mine.csv"));
  ::setenv("ASSAY_TRACE_PATH",
           fmt::format(":{}::{}:", (folder_ / "a").string(), (folder_ / "b").string()).c_str(), 1);
  EXPECT_TRUE(trace_available("mine.csv"));
  EXPECT_TRUE(trace_available("other.csv"));
  EXPECT_FALSE(trace_available("third.csv"));
  EXPECT_THAT(draw_requests(trace_spec("mine.csv", 0), 0), ElementsAre(Request{7, 7, -1, 0}));
  EXPECT_THAT(draw_requests(trace_spec("mine.csv", 1), 0), ElementsAre(Request{1, 8, -1, 0}));
  EXPECT_THAT(draw_requests(trace_spec((folder_ / "b/mine.csv").string(), 0), 0),
              ElementsAre(Request{9, 9, -1, 0}));
  // A changed file is read again.
  write("a/mine.csv", "2023-11-16 18:15:46,11,2\n2023-11-16 18:15:46,12,2\n");
  EXPECT_EQ(draw_requests(trace_spec("mine.csv", 0), 0).size(), 2u);
}

TEST_F(TraceFiles, MissingOnesListTheFolders) {
  ::setenv("ASSAY_TRACE_PATH", "/nowhere/at/all", 1);
  add_trace_folder("/added/folder");
  try {
    draw_requests(trace_spec("missing.csv", 0), 0);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("missing.csv: no such trace file"));
    EXPECT_THAT(e.what(), AllOf(HasSubstr("., /nowhere/at/all, "), HasSubstr(", /added/folder")));
  }
}

TEST_F(TraceFiles, ErrorsNameTheFile) {
  write("short.csv", "2023-11-16 18:15:46,7,2\n");
  add_trace_folder(folder_.string());
  try {
    draw_requests(trace_spec("short.csv", 9), 0);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_EQ(e.place().file, "short.csv");
    EXPECT_THAT(e.what(), HasSubstr("step 9 is past the end"));
  }
  write("broken.csv", "2023-11-16 18:15:46,seven,2\n");
  try {
    draw_requests(trace_spec("broken.csv", 0), 0);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("broken.csv:2:21"));
  }
}

TEST(ShippedTraces, GiveEveryKindOfStep) {
  add_trace_folder(ASSAY_SOURCE_DIR "/scenarios/traces");
  for (const char* file : {"small.csv", "small.jsonl"}) {
    SCOPED_TRACE(file);
    const auto trace = load_trace(file);
    int decodes = 0, extends = 0, prefills = 0, shared = 0;
    ReplayOptions options;
    options.max_tokens = 2048;
    for (const ReplayStep& step : replay_profile(*trace, options, 1, 1 << 20)) {
      decodes += step.decodes;
      extends += step.extends;
      prefills += step.prefills;
      for (const Request& r : step.requests) shared += r.shared_with >= 0;
    }
    EXPECT_GT(decodes, 0);
    EXPECT_GT(extends, 0);
    EXPECT_GT(prefills, 0);
    EXPECT_EQ(shared > 0, std::string(file) == "small.jsonl");
  }
}

}  // namespace
}  // namespace assay
