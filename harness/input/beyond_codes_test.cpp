// SPDX-License-Identifier: Apache-2.0
// What is counted as beyond the largest code: placed by hand, and what recipes bring about.
#include "harness/input/beyond_codes.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/problem/names.hpp"
#include "harness/scenario/scenario.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

Inputs written_by(const std::string& line) { return build_inputs(make_problem(parse_scenario(line))); }

void fill(const assay_tensor& t, double x) {
  for (int64_t row = 0; row < t.shape[0]; ++row)
    for (int64_t head = 0; head < t.shape[1]; ++head)
      for (int64_t d = 0; d < t.shape[2]; ++d)
        store(t.format, t.data, row * t.stride[0] + head * t.stride[1] + d * t.stride[2], x);
}

// int8 ends at 127, and 127.5 is a tie that the even 128 takes; e4m3 ends at 448, and 464 is a tie that 448
// takes.
TEST(BeyondCodes, CountsWhatRoundsPastTheLastCodeUnderItsScale) {
  const struct {
    const char* kv;
    double last, past;
  } cases[] = {{"int8", 127.49, 127.51}, {"fp8_e4m3", 463.9, 464.1}, {"fp8_e5m2", 61430, 61450}};
  for (const auto& c : cases)
    for (const char* scale : {"tensor", "host", "head", "channel"}) {
      const std::string line =
          fmt::format("step h=4/2 d=8 from=fp32 kv={}:{} pad=2 batch=2q3s9 seed=1", c.kv, scale);
      SCOPED_TRACE(line);
      Inputs in = written_by(line);
      const assay_tensor &k = in.tensors.dense_k, &scales = in.tensors.k_scale;
      fill(k, 0);
      EXPECT_EQ(beyond_codes(in, false).values, 6 * 2 * 8);  // padded rows are not written
      EXPECT_EQ(beyond_codes(in, false).beyond, 0);
      const int64_t head = 1, d = 3;
      double own = in.k_scale_host;
      if (scales.data != nullptr)
        own = load(ASSAY_FP32, scales.data,
                   scales.rank == 2      ? head * scales.stride[0] + d * scales.stride[1]
                   : scales.shape[0] > 1 ? head * scales.stride[0]
                                         : 0);
      const int64_t at = k.stride[0] + head * k.stride[1] + d * k.stride[2];
      for (const double sign : {1.0, -1.0}) {
        store(k.format, k.data, at, sign * c.last * own);
        EXPECT_EQ(beyond_codes(in, false).beyond, 0);
        store(k.format, k.data, at, sign * c.past * own);
        EXPECT_EQ(beyond_codes(in, false).beyond, 1);
      }
    }
}

// Of a row in two tensors the second half counts too, and of the latent layout nothing twice.
TEST(BeyondCodes, CountsRowsOfTwoTensorsWhole) {
  const Inputs in =
      written_by("step h=4/1 d=48/32 from=fp32 kv=int8:tensor layout=mla sources=2 batch=2q5s20");
  const BeyondCodes k = beyond_codes(in, false);
  EXPECT_EQ(k.values, 10 * 48);
  EXPECT_EQ(beyond_codes(in, true).values, 0);
  fill(in.tensors.dense_k, 0), fill(in.tensors.dense_v, 1e6);
  EXPECT_EQ(beyond_codes(in, false).beyond, 10 * (48 - in.tensors.dense_k.shape[2]));
}

TEST(BeyondCodes, NothingBecomesACodeUnderAScaleOfItsOwnOrInACacheOfNumbers) {
  for (const char* line :
       {"step h=4/2 d=8 from=fp32 kv=int8:token_head batch=2q3s9", "step h=4/2 d=8 batch=2q3s9",
        "step h=4/2 d=8 kv=int8:head write=off batch=2q3s9",
        "cache_write h=4/2 d=8 kv=int8:head from=codes batch=2q3s9", "paged h=4/2 d=8 batch=1q1s9"})
    for (const bool of_v : {false, true}) EXPECT_EQ(beyond_codes(written_by(line), of_v).values, 0) << line;
}

// What the text of input= says of the recipes: some of nearly all, of outliers in few lines, of known answers
// in none.
TEST(BeyondCodes, RecipesBringThemAboutAsTheirTextSays) {
  const auto lines_with = [](const std::string& recipe, const char* scale = "head") {
    int lines = 0;
    for (int seed = 1; seed <= 12; ++seed)
      for (const bool of_v : {false, true})
        lines += beyond_codes(written_by(fmt::format("step h=4/2 d=32 kv=int8:{} batch=2q1s40_1q9s30 "
                                                     "input={} seed={}",
                                                     scale, recipe, seed)),
                              of_v)
                     .beyond > 0;
    return lines;
  };
  for (const char* recipe : {"normal", "peaked", "ascending", "codes"})
    EXPECT_GE(lines_with(recipe), 22) << recipe;
  EXPECT_LE(lines_with("outlier"), 12);
  EXPECT_GE(lines_with("outlier", "channel"), 22);
  EXPECT_EQ(lines_with("exact"), 0);
}

}  // namespace
}  // namespace assay
