// SPDX-License-Identifier: Apache-2.0
// Numbers that no list holds: what a kernel that follows given rules would write is evidence, and the number
// is found from it.
#include "harness/explain/families/fit.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "harness/explain/explanation.hpp"
#include "harness/explain/samples.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

// Evidence of a kernel of which every call is written anew under `rules`.
class Written {
 public:
  Written(const std::string& line, const std::function<void(Rules&)>& set)
      : evidence_(taken(line)),
        predictor_(evidence_.problem, evidence_.operands(false), evidence_.declared),
        clues_{evidence_, predictor_, {}, {}, tile_sizes_of(evidence_), layouts_of(evidence_), {}} {
    clues_.tilings = tilings_of(evidence_, clues_.layouts);
    Rules rules = predictor_.right();
    set(rules);
    const Problem& p = evidence_.problem;
    for (CallResultCopy& call : evidence_.calls) {
      if (!call.made) continue;
      for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r)
        for (int32_t row = 0; row < p.requests[r].q_len; ++row)
          for (int32_t h = 0; h < p.heads_q; ++h) {
            const Cell cell{r, row, h};
            const Prediction out = predictor_.predict(rules, cell);
            const int64_t at = evidence_.packed_row(cell) * p.heads_q + h;
            std::copy(out.o.begin(), out.o.end(), call.o.begin() + at * p.head_dim_v);
            call.lse[at] = out.lse;
          }
    }
    choose_samples(evidence_, Call::kFirst, clues_);
  }
  const Clues& clues() const { return clues_; }

 private:
  static Evidence taken(const std::string& line) {
    omp_set_num_threads(1);
    CaptureOptions options;
    options.threads = 1;
    return capture(line, make_problem(parse_scenario(line)), ASSAY_BINARY_DIR "/faulty/libassay_faulty.so",
                   "paged_lse_base_2", options);
  }
  Evidence evidence_;
  Predictor predictor_;
  Clues clues_;
};

const std::string kLine = "paged h=4/2 d=32 cap=2 scale=0.4 batch=2q1s70_1q9s45 seed=5";

TEST(Fit, FindsAFactorBetweenPointsOfItsGrid) {
  const auto set = [](Rules& r, double x) {
    r.score = [x](const Scene&, const Term&, ScoreParts s) {
      s.softcap *= x;
      return standard_score(s);
    };
  };
  const Written written(kLine, [&](Rules& r) { set(r, 1.3173); });
  const auto found = Fit(written.clues()).along(grid_of_logs(0.2, 5, 25), false, set);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(*found, 1.3173, 1e-3);
}

TEST(Fit, FindsAThresholdBetweenTheWeightsItSeparates) {
  const auto set = [](Rules& r, double x) {
    r.p_of = [x](double p) { return p < x ? 0 : p; };
    r.p_of_in_sum = true;
  };
  const Written written(kLine, [&](Rules& r) { set(r, 0.043); });
  const auto found = Fit(written.clues()).along(grid_of_logs(1e-4, 0.7, 20), true, set);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(*found, 0.043, 0.006);
}

TEST(Fit, FindsAWholeNumberAndSeveralCoefficients) {
  const auto drop = [](Rules& r, int32_t n) {
    r.edit_terms = [n](Scene&, std::vector<Term>& t) {
      std::erase_if(t, [n](const Term& term) { return term.position % n == n - 1; });
    };
  };
  const Written dropped(kLine, [&](Rules& r) { drop(r, 11); });
  EXPECT_EQ(Fit(dropped.clues()).whole(2, 64, drop), 11);

  const auto curve = [](Rules& r, const std::vector<double>& c) {
    r.exp_of = [c](double x) { return std::exp(x * (1 + c[0] + c[1] * x)); };
  };
  const Written curved(kLine, [&](Rules& r) { curve(r, {0.02, -0.013}); });
  const auto found = Fit(curved.clues()).many({0, 0}, 1e-6, curve);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR((*found)[0], 0.02, 1e-3);
  EXPECT_NEAR((*found)[1], -0.013, 1e-3);
}

TEST(Fit, FindsNothingWhereTheMistakeIsAnother) {
  const Written written(kLine, [](Rules& r) {
    r.edit_terms = [](Scene&, std::vector<Term>& t) {
      if (t.size() > 3) t.erase(t.begin() + 2);
    };
  });
  const Fit fit(written.clues());
  EXPECT_FALSE(fit.whole(2, 40,
                         [](Rules& r, int32_t n) {
                           r.finish = [n](const Scene&, std::vector<double>& o, double&) {
                             std::rotate(o.begin(), o.begin() + n % static_cast<int>(o.size()), o.end());
                           };
                         })
                   .has_value());
}

}  // namespace
}  // namespace assay
