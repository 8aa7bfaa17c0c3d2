// SPDX-License-Identifier: Apache-2.0
// The plain mistakes of every step of a kernel, as fabricated kernels make them (mistakes.hpp).
#pragma once

#include <cmath>
#include <numbers>
#include <ostream>

#include "harness/explain/testing/mistakes.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

struct FaultClass {
  const char *step, *way;
  const char* name;
  const char* line;
  const char *cause, *how;
  Mistakes make;
  Declares declare = {};
};

inline void PrintTo(const FaultClass& c, std::ostream* to) { *to << c.name; }

inline bool given(const Scene& s, int32_t j) { return visible(s.problem, s.cell.request, s.cell.row, j); }

// Another row's Q.
inline void query_is(Rules& r, std::function<Cell(const Scene&)> of) { r.query_of = std::move(of); }

// The plain mistakes of every step, on one line each.
inline constexpr const char* kOneLine = "paged h=4/2 d=32 batch=1q1s90_1q5s60 seed=7";
inline constexpr const char* kWindowLine = "paged h=4/2 d=32 window=20 batch=1q1s90_1q5s60 seed=7";

inline void two_parts(Rules& r) { r.arithmetic.splits = 2, r.arithmetic.tile_keys = 32; }
inline void declares_two_parts(assay_arithmetic& a) {
  a.order_declared = 1, a.splits = 2, a.tile_keys = 32, a.p_format = ASSAY_FP32;
}

inline Mistakes with_terms(std::function<void(const Scene&, Term&)> of) {
  return [of](const Problem&, Rules& r) {
    r.edit_terms = [of](Scene& s, std::vector<Term>& terms) {
      for (Term& t : terms) of(s, t);
    };
  };
}
inline Mistakes with_parts(std::function<void(std::vector<SplitPart>&)> of) {
  return [of](const Problem&, Rules& r) {
    two_parts(r);
    r.edit_parts = [of](const Scene&, std::vector<SplitPart>& parts) { of(parts); };
  };
}
inline Mistakes with_lse(std::function<double(const LseParts&)> of) {
  return [of](const Problem&, Rules& r) { r.lse = [of](const Scene&, const LseParts& l) { return of(l); }; };
}
inline Mistakes with_o(std::function<void(std::vector<double>&)> of) {
  return [of](const Problem&, Rules& r) {
    r.finish = [of](const Scene&, std::vector<double>& o, double&) { of(o); };
  };
}

inline const FaultClass kSteps[] = {
    {"Q", "another's", "QOfTheNextRow", kOneLine, "rows.query_of_other_row", "",
     [](const Problem& p, Rules& r) {
       query_is(r, [&p](const Scene& s) {
         Cell c = s.cell;
         c.row = std::min(c.row + 1, p.requests[c.request].q_len - 1);
         return c;
       });
     }},
    {"Q", "left out", "QLastDimensions", kOneLine, "dims.qk_dropped", "",
     [](const Problem&, Rules& r) {
       r.edit_q = [](const Scene&, double* q) { std::fill(q + 24, q + 32, 0.0); };
     }},
    {"Q", "order", "QDimensionsInPairs", kOneLine, "dims.qk_order", "",
     [](const Problem&, Rules& r) {
       r.edit_q = [](const Scene&, double* q) {
         for (int d = 0; d < 32; d += 2) std::swap(q[d], q[d + 1]);
       };
     }},
    {"K and V", "another's", "NextKvHead", kOneLine, "heads.kv_mapping", "",
     [](const Problem&, Rules& r) { r.kv_head_of = [](const Cell& c) { return 1 - c.head / 2; }; }},
    {"K and V", "off by one", "NextKey", kOneLine, "keys.shifted", "",
     with_terms([](const Scene& s, Term& t) { t.k_row = t.v_row = std::min(t.position + 1, s.kv_len - 1); })},
    {"K and V", "stale", "VOfTheTileBefore", kOneLine, "keys.lanes_stale", "",
     with_terms([](const Scene&, Term& t) {
       if (t.position % 32 >= 24 && t.position >= 32) t.v_row = t.position - 32;
     })},
    {"K and V", "left out", "LastOfEveryEight", kOneLine, "keys.one_dropped", "",
     with_terms([](const Scene&, Term& t) { t.weight = t.position % 8 != 7; })},
    {"K and V", "twice", "OwnKeyTwice", kOneLine, "keys.one_doubled", "",
     with_terms([](const Scene& s, Term& t) { t.weight = t.position == s.position ? 2 : 1; })},
    {"K and V", "order", "KInPlaceOfV", kOneLine, "keys.k_for_v", "",
     with_terms([](const Scene&, Term& t) { t.k_for_v = true; })},
    {"pages", "stale", "PageBefore", kOneLine, "page.wrong", "", with_terms([](const Scene&, Term& t) {
       if (t.position / 16 % 2 == 1) t.k_row = t.v_row = t.position - 16;
     })},
    {"scores", "unit", "ScoresInBaseTwo", kOneLine, "softmax.log2e", "",
     [](const Problem&, Rules& r) { r.exponent_factor = std::numbers::ln2; }},
    {"scores", "precision", "ScoresInFp16", kOneLine, "precision.scores", "",
     [](const Problem&, Rules& r) { r.score_format = ASSAY_BF16; }},
    {"scores", "twice", "ScaleSquared", kOneLine, "scale.softmax", "",
     [](const Problem&, Rules& r) {
       r.score = [](const Scene&, const Term&, ScoreParts s) {
         s.scale *= s.scale;
         return standard_score(s);
       };
     }},
    {"P V", "unit", "WeightsCutInPlaceOfRounded", "paged h=4/2 d=64 batch=2q1s300_1q4s90 seed=46",
     "precision.p_truncated", "", [](const Problem&, Rules& r) { r.arithmetic.p_truncated = 1; },
     [](assay_arithmetic& a) {
       a.order_declared = 1, a.tile_keys = 32, a.splits = 1, a.p_format = ASSAY_BF16;
     }},
    {"exponential", "unit", "Log2eInThreeDigits", kOneLine, "softmax.log2e", "1.44",
     [](const Problem&, Rules& r) { r.exponent_factor = 1.44 * std::numbers::ln2; }},
    {"maximum and row sum", "stale", "OutputNotRescaled", kOneLine, "softmax.o_not_rescaled", "",
     [](const Problem&, Rules& r) {
       r.arithmetic.tile_keys = 16;
       r.o_kept = [](const MaximumMove&) { return true; };
     },
     [](assay_arithmetic& a) {
       a.order_declared = 1, a.tile_keys = 16, a.splits = 1, a.p_format = ASSAY_FP32;
     }},
    {"maximum and row sum", "left out", "SumWithoutAKey", kOneLine, "softmax.l_missing_key", "",
     with_terms([](const Scene& s, Term& t) { t.in_sum = t.position != s.position; })},
    {"maximum and row sum", "precision", "RowSumInBf16", kOneLine, "precision.row_sum", "",
     [](const Problem&, Rules& r) {
       r.sum_format = ASSAY_BF16;
       r.sum_per_key = true;
     }},
    {"maximum and row sum", "another's", "SumOfTheHeadBefore", kOneLine, "softmax.l_of_other", "",
     [](const Problem&, Rules& r) {
       r.finish = [](const Scene& s, std::vector<double>& o, double& lse) {
         if (s.cell.head == 0) return;
         const Cell before{s.cell.request, s.cell.row, s.cell.head - 1};
         const double other = s.predictor->predict(s.predictor->right(), before).lse;
         for (double& x : o) x *= std::exp(lse - other);
       };
     }},
    {"parts and merge", "unit", "WeightsOfPartsInBaseTwo", kOneLine, "merge.base", "",
     [](const Problem&, Rules& r) {
       two_parts(r);
       r.merge_weight = [](double lse, double top) { return std::exp2(lse - top); };
       r.merge_lse = [](const Scene&, const std::vector<SplitPart>& list, double) {
         double sum = 0;
         for (const SplitPart& p : list) sum += std::exp2(p.lse);
         return std::log2(sum);
       };
     },
     declares_two_parts},
    {"parts and merge", "left out", "LastPartLeftOut", kOneLine, "merge.split_dropped", "",
     with_parts(
         [](std::vector<SplitPart>& parts) { parts.back().lse = -std::numeric_limits<double>::infinity(); }),
     declares_two_parts},
    {"parts and merge", "another's", "LsesExchanged", kOneLine, "merge.pairing", "",
     with_parts([](std::vector<SplitPart>& parts) { std::swap(parts.front().lse, parts.back().lse); }),
     declares_two_parts},
    {"parts and merge", "precision", "PartsInBf16", kOneLine, "precision.partials", "",
     with_parts([](std::vector<SplitPart>& parts) {
       for (SplitPart& p : parts)
         for (double& x : p.o) x = round_to(ASSAY_BF16, x);
     }),
     declares_two_parts},
    {"store of O", "another's", "StoredARowOn", kOneLine, "rows.written_to_other_row", "",
     [](const Problem&, Rules& r) {
       r.result_of = [](const Cell& c) { return Cell{c.request, std::max(0, c.row - 1), c.head}; };
     }},
    {"store of O", "left out", "LastDimensionsZero", kOneLine, "dims.v_dropped", "",
     with_o([](std::vector<double>& o) { std::fill(o.end() - 8, o.end(), 0.0); })},
    {"store of O", "order", "DimensionsExchanged", kOneLine, "dims.v_shifted", "",
     with_o([](std::vector<double>& o) {
       for (size_t d = 0; d < o.size(); d += 2) std::swap(o[d], o[d + 1]);
     })},
    {"store of O", "unit", "OHalved", kOneLine, "output.scaled", "", with_o([](std::vector<double>& o) {
       for (double& x : o) x *= 0.37;
     })},
    {"LSE", "unit", "LseInBaseTwo", kOneLine, "lse.base2", "",
     with_lse([](const LseParts& l) { return l.lse * std::numbers::log2e; })},
    {"LSE", "left out", "LseWithoutTheMaximum", kOneLine, "lse.ignores_max", "",
     with_lse([](const LseParts& l) { return std::log(l.sum); })},
    {"LSE", "precision", "LseInBf16", kOneLine, "precision.lse", "",
     with_lse([](const LseParts& l) { return round_to(ASSAY_BF16, l.lse); })},
    {"LSE", "another's", "LseOfTheHeadBefore", kOneLine, "lse.other_head", "",
     [](const Problem&, Rules& r) {
       r.lse_of = [](const Cell& c) { return Cell{c.request, c.row, (c.head + 3) % 4}; };
     }},
    {"mask", "off by one", "WindowOneShort", kWindowLine, "mask.window_short", "",
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) { return given(s, j) && j > s.position - 20; };
     }},
    {"mask", "left out", "NoWindow", kWindowLine, "mask.window_ignored", "",
     [](const Problem&, Rules& r) { r.sees = [](const Scene& s, int32_t j) { return j <= s.position; }; }},
};

}  // namespace assay
