// SPDX-License-Identifier: Apache-2.0
// Explanations of kernels that do not exist (testing/mistakes.hpp): numbers that stand in no list, parts of
// an undeclared order, two mistakes at once.
#include "harness/explain/testing/mistakes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/explain/cut.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

Explanation explain_mistakes(const std::string& line, const Mistakes& make, const Declares& declare = {}) {
  return explain(fabricated(line, kFake, make, declare));
}

void twice(Rules& rules) {
  rules.score = [](const Scene&, const Term&, ScoreParts s) {
    s.scale *= s.scale;
    return standard_score(s);
  };
}

// Numbers and sizes that stand in no list and in no declaration; a mistake of one part of the case.
TEST(Explain, NumbersAreFoundAndConstantsCombined) {
  const std::string line = "paged h=4/2 d=64 window=63 batch=2q1s300_1q9s90 seed=3";
  const auto how = [](const Explanation& x) { return x.ranking.list.empty() ? "" : x.ranking.list[0].text; };
  Explanation x = explain_mistakes(line, [](const Problem&, Rules& rules) { twice(rules); });
  EXPECT_EQ(first_cause(x), "scale.softmax");
  EXPECT_TRUE(sure(x.ranking));
  EXPECT_THAT(how(x), HasSubstr("times the softmax scale"));
  x = explain_mistakes(line, [](const Problem& p, Rules& rules) {
    rules.sees = [&p](const Scene& s, int32_t j) {
      return visible(p, s.cell.request, s.cell.row, j) && j >= s.position - 41;
    };
  });
  EXPECT_EQ(first_cause(x), "mask.window_short");
  EXPECT_THAT(how(x), HasSubstr("41 keys to the left instead of 63"));
  x = explain_mistakes("paged h=4/2 d=64 batch=2q1s300_1q9s90 seed=3", [](const Problem&, Rules& rules) {
    rules.arithmetic.split_keys = 128;
    rules.arithmetic.splits = 3;
    rules.arithmetic.tile_keys = 128;
    rules.merge_weight = [](double, double) { return 1.0; };
    rules.merge_lse = [](const Scene&, const std::vector<SplitPart>&, double lse) { return lse; };
  });
  EXPECT_EQ(first_cause(x), "merge.uniform_weights");
  EXPECT_THAT(how(x), HasSubstr("splits of 128 keys"));
  x = explain_mistakes(line, [](const Problem& p, Rules& rules) {
    rules.edit_terms = [&p](Scene& s, std::vector<Term>& t) {
      if (s.cell.head == p.heads_q - 1) std::erase_if(t, [](const Term& k) { return k.position % 8 >= 6; });
    };
  });
  EXPECT_EQ(first_cause(x), "keys.one_dropped");
  EXPECT_THAT(how(x), HasSubstr("last 2 of every 8 keys left out, in the last head"));
}

// Parts that are declared without their order are a hint: how many of how many tiles is found.
TEST(Explain, PartsOfAnUndeclaredOrderAreFound) {
  const auto parts = [](assay_arithmetic& a) {
    a.order_declared = 0, a.splits_vary = 1, a.splits = 4, a.tile_keys = 32;
  };
  // Up to four parts of two tiles at least.
  const auto cut = [](Rules& r) {
    r.arithmetic.splits = 4, r.arithmetic.tile_keys = 32;
    r.cut.least = 2;
  };
  struct Mistake {
    const char *cause, *how;
    std::function<void(Rules&)> make;
  };
  const Mistake mistakes[] = {
      {"merge.base", "weights 2^LSE of natural LSEs",
       [](Rules& r) {
         r.merge_weight = [](double lse, double top) { return std::exp2(lse - top); };
         r.merge_lse = [](const Scene&, const std::vector<SplitPart>& list, double) {
           double sum = 0;
           for (const SplitPart& p : list) sum += std::exp2(p.lse);
           return std::log2(sum);
         };
       }},
      {"softmax.o_not_rescaled", "the last 32 dimensions not rescaled",
       [](Rules& r) {
         r.o_kept = [](const MaximumMove&) { return true; };
         r.kept_dims = [](int32_t d) { return d >= 32; };
       }},
      {"keys.one_doubled", "last tile of every part of an odd number of tiles counted twice",
       [](Rules& r) {
         const Rules own = r;
         r.edit_terms = [own](Scene& s, std::vector<Term>& terms) {
           const PartsOf parts(own, s);
           std::vector<int32_t> first(parts.count(), s.kv_len), end(parts.count(), 0);
           for (int32_t j = 0; j < s.kv_len; ++j) {
             first[parts.of(j)] = std::min(first[parts.of(j)], j / 32);
             end[parts.of(j)] = j / 32 + 1;
           }
           for (Term& t : terms) {
             const int32_t p = parts.of(t.position);
             if (t.position / 32 + 1 == end[p] && (end[p] - first[p]) % 2 == 1) t.weight = 2;
           }
         };
       }},
  };
  const std::string line = "paged h=4/2 d=64 batch=2q1s150_1q9s90_1q3s230 seed=3";
  for (const Mistake& m : mistakes) {
    const Explanation x = explain_mistakes(
        line, [&](const Problem&, Rules& rules) { cut(rules), m.make(rules); }, parts);
    const std::string text = explanation_text(x, make_problem(parse_scenario(line)), 5, false);
    EXPECT_EQ(first_cause(x), m.cause) << text;
    EXPECT_TRUE(sure(x.ranking)) << text;
    EXPECT_THAT(text, HasSubstr(m.how));
    EXPECT_THAT(text, HasSubstr("splits of at least 2 tiles"));
  }
}

// What a block of rows sees is cut, into no more parts than have two tiles each; nobody says so.
TEST(Explain, PartsOfWhatABlockOfRowsSeesAreFound) {
  const std::string line = "paged h=4/2 d=32 batch=1q1s118_1q20s90 seed=3";
  const Explanation x = explain_mistakes(
      line,
      [](const Problem&, Rules& r) {
        r.arithmetic.splits = 4, r.arithmetic.tile_keys = 16;
        r.cut = {.least = 2, .least_met = true, .block_rows = 8};
        r.edit_parts = [](const Scene&, std::vector<SplitPart>& parts) {
          for (SplitPart& p : parts)
            for (double& o : p.o)
              if (parts.size() > 1) o = round_to(ASSAY_BF16, o);
        };
      },
      [](assay_arithmetic& a) { a.order_declared = 0, a.splits_vary = 1, a.splits = 4, a.tile_keys = 16; });
  const std::string text = explanation_text(x, make_problem(parse_scenario(line)), 5, false);
  EXPECT_EQ(first_cause(x), "precision.partials") << text;
  EXPECT_TRUE(sure(x.ranking)) << text;
  EXPECT_THAT(text, HasSubstr("no fewer than 2 tiles of what "));
}

TEST(Explain, TwoMistakesAreSaidAsTwoCauses) {
  const std::string line = "paged h=4/2 d=64 window=63 batch=2q1s200_1q9s90 seed=3";
  const Explanation x = explain_mistakes(line, [](const Problem& p, Rules& rules) {
    twice(rules);
    rules.sees = [&p](const Scene& s, int32_t j) {
      return visible(p, s.cell.request, s.cell.row, j) && j > s.position - 63;
    };
  });
  ASSERT_TRUE(sure(x.ranking)) << explanation_text(x, make_problem(parse_scenario(line)), 5, false);
  EXPECT_EQ(first_cause(x), "scale.softmax");
  EXPECT_EQ(x.ranking.list[0].also, "mask.window_short");
  EXPECT_THAT(explanation_text(x, make_problem(parse_scenario(line)), 5, false), HasSubstr("(two causes)"));
}

}  // namespace
}  // namespace assay
