// SPDX-License-Identifier: Apache-2.0
// One fabricated kernel (testing/mistakes.hpp) for each step of a kernel and each way in which it goes wrong:
// what is asked for is the cause and, where strangers planted what no hypothesis named, the words that tell
// which form of it. The table of the README says which steps and ways these are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <numbers>

#include "harness/explain/testing/step_classes.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

class ExplainsTheClass : public ::testing::TestWithParam<FaultClass> {};

TEST_P(ExplainsTheClass, ByItsNameAndForm) {
  const FaultClass& c = GetParam();
  const Explanation x = explain(fabricated(c.line, kFake, c.make, c.declare));
  const std::string text = explanation_text(x, make_problem(parse_scenario(c.line)), 5, false);
  EXPECT_EQ(first_cause(x), c.cause) << text;
  EXPECT_TRUE(sure(x.ranking)) << text;
  EXPECT_THAT(text, HasSubstr(c.how));
}

const FaultClass kMasks[] = {
    {"mask", "off by one", "TileFullByItsFirstKey", "paged h=4/2 d=64 batch=1q20s70_2q7s45 seed=101",
     "mask.causal_long", "",
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) {
         return j / 32 * 32 <= s.position - s.cell.row % 16 || given(s, j);
       };
     }},
    {"mask", "left out", "NoLeftEdgeInTheFirstTile",
     "paged h=4/2 d=64 window=40 batch=1q20s150_2q1s131 seed=102", "mask.window_long",
     "tiles of 32 keys of the first row's oldest key",
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) {
         const int32_t oldest = std::max(0, s.position - s.cell.row % 16 - s.problem.window_left);
         return given(s, j) || (j <= s.position && j / 32 == oldest / 32);
       };
     }},
    {"mask", "another's", "TileLeftOutByItsFirstKey",
     "paged h=4/2 d=64 window=40 batch=1q20s150_2q9s131 seed=102", "mask.window_short",
     "left out whose first key the last row does not see",
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) {
         const int32_t rows = s.problem.requests[s.cell.request].q_len;
         const int32_t last = std::min(s.cell.row / 8 * 8 + 7, rows - 1);
         return given(s, j) && j / 16 * 16 >= s.position + last - s.cell.row - s.problem.window_left;
       };
     }},
    {"mask", "unit", "WindowOfRowAndHead", "paged h=8/2 d=64 window=24 batch=3q1s90_1q5s60 seed=103",
     "mask.window_anchor", "and the head's number in its group",
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) {
         return given(s, j) && j >= s.position + s.cell.head % s.problem.group() - s.problem.window_left;
       };
     }},
};

const FaultClass kIndexes[] = {
    {"pages", "another's", "LastPageOfTheNextRequest",
     "paged h=4/2 d=64 batch=2q1s90_1q5s60_1q2s77_1q1s50 seed=120", "page.of_other_request",
     "last, partly filled page from the first of the next",
     [](const Problem&, Rules& r) {
       r.edit_terms = [](Scene& s, std::vector<Term>& terms) {
         const auto n = static_cast<int32_t>(s.problem.requests.size());
         if (s.cell.request + 1 == n || s.kv_len % 16 == 0 || s.kv_len < 16) return;
         for (Term& t : terms) {
           if (t.position / 16 != s.kv_len / 16) continue;
           int64_t block = -1, slot = 0;
           s.keys.place(s.cell.request + 1, t.position % 16, &block, &slot);
           t.k_row = t.v_row = s.keys.extra(block, slot);
         }
       };
     }},
    {"Q", "range", "RowsOfQAlignedDown", "paged h=4/2 d=64 batch=1q9_1q14s40_1q9s33_1q8s20 seed=125",
     "rows.query_of_other_row", "a multiple of 4 rows, rounded down",
     [](const Problem& p, Rules& r) {
       query_is(r, [&p](const Scene& s) {
         int32_t start = 0;
         for (int32_t i = 0; i < s.cell.request; ++i) start += p.requests[i].q_len;
         Cell c{0, start / 4 * 4 + s.cell.row, s.cell.head};
         while (c.row >= p.requests[c.request].q_len) c.row -= p.requests[c.request++].q_len;
         return c;
       });
     }},
    {"Q", "stale", "SecondPackOfHeads", "paged h=32/2 d=64 batch=2q1s70_1q4s40 seed=124", "heads.q_swapped",
     "modulo 8",
     [](const Problem&, Rules& r) {
       query_is(r, [](const Scene& s) {
         Cell c = s.cell;
         if (c.head % 16 >= 8) c.head -= 8;
         return c;
       });
     }},
};

const FaultClass kSoftmax[] = {
    {"maximum and row sum", "twice", "RowSumRescaledThoughTheMaximumStayed",
     "paged h=4/2 d=64 batch=1q80_2q20s90 seed=115", "softmax.stale_maximum",
     "the row sum rescaled all the same",
     [](const Problem&, Rules& r) {
       r.arithmetic.tile_keys = 32;
       r.lazy_below = 5.5;
       r.lazy_sum_rescaled = true;
     },
     [](assay_arithmetic& a) {
       a.order_declared = 1, a.tile_keys = 32, a.splits = 1, a.p_format = ASSAY_FP32;
     }},
    {"exponential", "precision", "ParabolaThatIsNotOneAtPowers",
     "paged h=4/2 d=64 batch=3q1s90_1q5s60 seed=131", "precision.exp", "the first of the power itself",
     [](const Problem&, Rules& r) {
       r.exp_of = [](double x) {
         const double y = x * std::numbers::log2e, whole = std::floor(y), f = y - whole;
         return std::ldexp(1.0017248 + f * (0.65763628 + f * 0.33718944), static_cast<int>(whole));
       };
     }},
    {"exponential", "left out", "LargestWeightsAlone",
     "paged h=4/2 d=64 batch=3q1s120_1q5s90_1q1s50 seed=169", "softmax.small_dropped",
     "all but the 64 largest weights",
     [](const Problem&, Rules& r) {
       r.edit_scores = [](const Scene&, std::vector<double>& x) {
         std::vector<double> sorted = x;
         std::sort(sorted.begin(), sorted.end(), std::greater<>());
         for (double& score : x)
           if (x.size() > 64 && score < sorted[63]) score = -std::numeric_limits<double>::infinity();
       };
     }},
    {"P V", "left out", "WeightsDroppedAtRandom", "paged h=4/2 d=64 batch=3q1s120_1q5s100 seed=154",
     "keys.lanes_v_dropped", "no rule names",
     [](const Problem&, Rules& r) {
       r.edit_terms = [](Scene& s, std::vector<Term>& terms) {
         for (Term& t : terms) {
           uint32_t mixed = t.position * 2654435761u + s.cell.row * 40503u + s.cell.head * 9176u;
           mixed ^= mixed >> 15, mixed *= 2246822519u, mixed ^= mixed >> 13;
           if (mixed % 50 == 0) t.in_output = 0;
         }
       };
     }},
    {"P V", "precision", "SecondPassWithACoarserQuery", "paged h=4/2 d=80 batch=1q25_1q20s50 seed=153",
     "precision.query", "in the weights that meet V alone",
     [](const Problem& p, Rules& r) {
       r.passes = Passes::kOutput;
       r.edit_q = [scale = double(p.softmax_scale)](const Scene& s, double* q) {
         for (int32_t d = 0; d < s.problem.head_dim_qk; ++d)
           q[d] = round_to(ASSAY_BF16, q[d] * scale) / scale;
       };
     }},
    {"maximum and row sum", "range", "MaximumWithoutAWarp",
     "paged h=2/1 d=32 input=steep batch=1q150 seed=149", "softmax.maximum_short", "larger weights overflow",
     [](const Problem&, Rules& r) { r.in_maximum = [](const Scene&, int32_t j) { return j % 64 < 48; }; }},
    {"P V", "range", "WeightsBeyondTheFormat", "paged h=4/2 d=64 input=peaked batch=3q1s60_1q5s50 seed=163",
     "softmax.p_saturated", "448", [](const Problem&, Rules& r) { r.round_clamp = 448; },
     [](assay_arithmetic& a) {
       a.order_declared = 1, a.tile_keys = 64, a.splits = 1, a.p_format = ASSAY_FP8_E4M3, a.p_offset_log2 = 9;
     }},
};

std::string name_of(const ::testing::TestParamInfo<FaultClass>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Masks, ExplainsTheClass, ::testing::ValuesIn(kMasks), name_of);
INSTANTIATE_TEST_SUITE_P(Indexes, ExplainsTheClass, ::testing::ValuesIn(kIndexes), name_of);
INSTANTIATE_TEST_SUITE_P(Softmax, ExplainsTheClass, ::testing::ValuesIn(kSoftmax), name_of);
INSTANTIATE_TEST_SUITE_P(Steps, ExplainsTheClass, ::testing::ValuesIn(kSteps), name_of);

// How many classes of a step and a way are asked for above, as the README has it.
std::string table() {
  const char* steps[] = {
      "Q",   "K and V",         "pages",      "scores", "mask", "exponential", "maximum and row sum",
      "P V", "parts and merge", "store of O", "LSE"};
  const char* ways[] = {"another's", "off by one", "stale", "left out", "twice",
                        "unit",      "precision",  "range", "order"};
  std::map<std::pair<std::string, std::string>, int> held;
  const auto add = [&](const auto& list) {
    for (const FaultClass& c : list) ++held[{c.step, c.way}];
  };
  add(kMasks), add(kIndexes), add(kSoftmax), add(kSteps);
  std::string text = "| step |";
  for (const char* way : ways) text += std::string(" ") + way + " |";
  text += "\n| :-- |";
  for (size_t i = 0; i < std::size(ways); ++i) text += " --: |";
  for (const char* step : steps) {
    text += std::string("\n| ") + step + " |";
    for (const char* way : ways) {
      const auto at = held.find({step, way});
      text += at == held.end() ? "  |" : " " + std::to_string(at->second) + " |";
      if (at != held.end()) held.erase(at);
    }
  }
  EXPECT_TRUE(held.empty()) << "a step or way that the table lacks: " << held.begin()->first.first;
  return text + "\n";
}

TEST(ExplainedClasses, ReadmeHoldsTheTable) {
  std::ifstream file(ASSAY_SOURCE_DIR "/harness/explain/README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(readme.find(table()), std::string::npos) << table();
}

}  // namespace
}  // namespace assay
