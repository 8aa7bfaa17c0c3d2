// SPDX-License-Identifier: Apache-2.0
// Hypotheses about ALiBi: whose slope, of which distance, and what becomes of both. A distance is that
// between a place of the row and a place of the key, each of which a kernel may count from elsewhere.
#include "harness/explain/families/alibi.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/families/row_places.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

void add_score(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
               std::function<double(ScoreParts)> score) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  h.rules.score = [score = std::move(score)](const Scene&, const Term&, const ScoreParts& s) {
    return score(s);
  };
  out.push_back(std::move(h));
}

struct KeyPlaceOf {
  std::string words;
  std::function<int64_t(const Scene&, const Term&)> at;
};

// Where a key may be taken to stand; the first is where it does.
std::vector<KeyPlaceOf> key_places(const Problem& p) {
  std::vector<KeyPlaceOf> list = {
      {"", [](const Scene& s, const Term& t) -> int64_t { return place_of_key(s, t.position); }},
      {" to the key's number among the new tokens", [](const Scene& s, const Term& t) -> int64_t {
         return t.position - s.problem.requests[s.cell.request].context_len();
       }}};
  if (p.mask == ASSAY_MASK_TREE && !p.positions.empty())
    list.push_back({" to the key's number in the request",
                    [](const Scene&, const Term& t) -> int64_t { return t.position; }});
  if (!p.first_key.empty())
    list.push_back({" to the key's position counted from 0", [](const Scene& s, const Term& t) -> int64_t {
                      return place_of_key(s, t.position) + s.problem.first_key[s.cell.request];
                    }});
  if (p.chunk > 0)
    list.push_back({" to the key's number in its chunk", [](const Scene& s, const Term& t) -> int64_t {
                      const int64_t first =
                          s.problem.first_key.empty() ? 0 : s.problem.first_key[s.cell.request];
                      return (place_of_key(s, t.position) + first) % s.problem.chunk;
                    }});
  return list;
}

// What becomes of a distance below zero.
struct BelowZero {
  const char* words;
  double (*of)(double);
  double cost;
};
constexpr BelowZero kBelowZero[] = {
    {"", [](double d) { return std::max(d, 0.0); }, 0},
    {", its sign kept", [](double d) { return d; }, 0.02},
    {", without its sign", [](double d) { return std::fabs(d); }, 0.05},
};

void places(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  std::vector<RowPlace> rows = row_places(p);
  rows.push_back({"the row itself", [](const Scene& s) { return s.position; }, "", true});
  rows.push_back({"the row's number in the request", [](const Scene& s) { return s.cell.row; }, "", true});
  rows.push_back({"position 0", [](const Scene&) { return 0; }, "", true});
  if (p.requests.size() > 1)
    rows.push_back(
        {"the row's number in the batch",
         [&first = clues.evidence.first_rows](const Scene& s) { return first[s.cell.request] + s.cell.row; },
         "", true});
  const std::vector<KeyPlaceOf> keys = key_places(p);
  // Keys behind the row, which have no bias, are behind the mask too where nothing else says where rows
  // stand.
  const bool ahead = p.mask != ASSAY_MASK_CAUSAL || !p.positions.empty();
  for (const RowPlace& row : rows)
    for (const KeyPlaceOf& key : keys)
      for (const BelowZero& below : kBelowZero)
        for (bool of_all : {true, false}) {
          if ((&key != &keys[0] || of_all != ahead || below.cost > 0) && !row.plain) continue;
          if (of_all && !ahead) continue;
          // The rule of the case, and what is one with its neighbour.
          if (row.name == "the row itself" && &key == &keys[0]) continue;
          Hypothesis h =
              propose(clues, "alibi.shifted",
                      fmt::format("distance from {}{}{}{}", row.name, key.words, below.words,
                                  of_all || !ahead ? "" : ", keys behind the row unbiased"),
                      (row.plain ? 0.2 : 0.25) + 0.05 * (&key != &keys[0]) + below.cost + 0.02 * !of_all);
          h.rules.score = [at = row.at, key_at = key.at, of = below.of, of_all](const Scene& scene,
                                                                                const Term& t, ScoreParts s) {
            if (s.distance < 0 && !of_all) return standard_score(s);
            const double d = of(static_cast<double>(at(scene) - key_at(scene, t)));
            const double bias = s.alibi == ASSAY_ALIBI_SQRT ? std::copysign(std::sqrt(std::fabs(d)), d) : d;
            const double slope = s.slope;
            s.alibi = ASSAY_ALIBI_NONE;
            return standard_score(s) - slope * bias;
          };
          out.push_back(std::move(h));
        }
}

}  // namespace

void alibis(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (p.alibi == ASSAY_ALIBI_NONE) return;
  const auto slope = [&](std::string text, double cost, std::function<int32_t(int32_t)> head) {
    Hypothesis h = propose(clues, "alibi.other_head", std::move(text), cost);
    const Predictor* predictor = &clues.predictor;
    h.rules.slope = [predictor, head, n = p.heads_q](const Scene& s, double) {
      return predictor->reader().alibi_slope(((head(s.cell.head) % n) + n) % n);
    };
    out.push_back(std::move(h));
  };
  add_score(clues, out, "alibi.ignored", "no bias", 0, [](ScoreParts s) {
    s.alibi = ASSAY_ALIBI_NONE;
    return standard_score(s);
  });
  Hypothesis sign = propose(clues, "alibi.sign", "bias added instead of subtracted", 0);
  sign.rules.slope = [](const Scene&, double slope) { return -slope; };
  out.push_back(std::move(sign));
  for (int32_t step : {2, -2})
    slope(fmt::format("slope of head {:+}", step), 0.1, [step](int32_t h) { return h + step; });
  for (const HeadMap& map : query_head_maps(p)) slope("slopes: " + map.name, 0.1 + map.cost, map.of);
  places(clues, out);
  // Distances from rounded positions, and rounded distances.
  const auto distance = [&](std::string text, double cost,
                            std::function<double(const Scene&, const Term&, double)> of) {
    Hypothesis h = propose(clues, "alibi.shifted", std::move(text), cost);
    h.rules.distance = std::move(of);
    out.push_back(std::move(h));
  };
  for (int32_t shift : {1, -1, 2, -2, 4, -4})
    distance(fmt::format("distance {:+}", shift), shift * shift == 1 ? 0.1 : 0.3,
             [shift](const Scene&, const Term&, double d) { return d + shift; });
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16}) {
    const char* name = format == ASSAY_BF16 ? "bf16" : "fp16";
    distance(fmt::format("positions in {}", name), 0.2, [format](const Scene& s, const Term& t, double) {
      return round_to(format, s.position) - round_to(format, t.position);
    });
    distance(fmt::format("distance in {}", name), 0.2,
             [format](const Scene&, const Term&, double d) { return round_to(format, d); });
  }
  for (int32_t grain : {2, 4, 8, 16, 32, 64, 128}) {
    distance(fmt::format("distance in whole runs of {} keys", grain), 0.4,
             [grain](const Scene&, const Term&, double d) { return std::floor(d / grain) * grain; });
    distance(
        fmt::format("key's position modulo {}", grain), 0.4,
        [grain](const Scene& s, const Term& t, double) { return double(s.position - t.position % grain); });
    for (bool absolute : {false, true})
      distance(fmt::format("both positions modulo {}{}", grain, absolute ? ", without a sign" : ""), 0.4,
               [grain, absolute](const Scene& s, const Term& t, double) {
                 const double d = s.position % grain - t.position % grain;
                 return absolute ? std::fabs(d) : d;
               });
    distance(fmt::format("distance modulo {}", grain), 0.4,
             [grain](const Scene&, const Term&, double d) { return std::fmod(d, grain); });
    distance(fmt::format("distance no larger than {}", grain), 0.4,
             [grain](const Scene&, const Term&, double d) { return std::min(d, double(grain)); });
  }
  // Keys counted from where their part begins, or rows too.
  for (const Layout& layout : clues.layouts) {
    if (!layout.parts() || layout.cut.interleaved) continue;
    for (const bool round : {false, true}) {
      Hypothesis h = propose(clues, "alibi.shifted",
                             fmt::format("key's place counted from the first one of its part{}{}",
                                         round ? ", a distance of one part" : "", layout.words),
                             0.25 + 0.05 * round + layout.cost);
      layout.apply(h.rules);
      const Rules cut = h.rules;
      h.rules.distance = [cut, round](const Scene& s, const Term& t, double d) {
        const PartsOf parts(cut, s);
        return d + parts.start_of(t.position) - (round ? parts.start_of(s.position) : 0);
      };
      out.push_back(std::move(h));
    }
  }
  for (double n : {1.0, 0.0})
    distance(fmt::format("distance {:g} for all keys", n), 0.25,
             [n](const Scene&, const Term&, double) { return n; });
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP16}) {
    Hypothesis h =
        propose(clues, "alibi.scaled", fmt::format("slopes in {}", name_of(format_names(), format)), 0.15);
    h.rules.slope = [format](const Scene&, double slope) { return round_to(format, slope); };
    out.push_back(std::move(h));
  }
  // The root of slope times distance, and the like.
  const auto of_slope = [&](const char* text, double (*of)(double)) {
    Hypothesis h = propose(clues, "alibi.scaled", text, 0.15);
    h.rules.slope = [of](const Scene&, double slope) { return std::copysign(of(std::fabs(slope)), slope); };
    out.push_back(std::move(h));
  };
  of_slope("square roots of the slopes in place of them", [](double x) { return std::sqrt(x); });
  of_slope("squares of the slopes in place of them", [](double x) { return x * x; });
  of_slope("reciprocals of the slopes in place of them", [](double x) { return x == 0 ? 0 : 1 / x; });
  of_slope("2 to the power of the slopes in place of them", [](double x) { return std::exp2(x); });
  of_slope("2 to the power of the negative slopes in place of them", [](double x) { return std::exp2(-x); });
  // Slopes by the usual formula in place of the given ones.
  for (int32_t heads : {p.heads_q, p.heads_kv})
    for (int32_t first : {1, 0}) {
      Hypothesis h =
          propose(clues, "alibi.scaled",
                  fmt::format("slopes 2^(-8 (h + {}) / {}) in place of the given ones", first, heads), 0.2);
      h.rules.slope = [=](const Scene& s, double) { return std::exp2(-8.0 * (s.cell.head + first) / heads); };
      out.push_back(std::move(h));
    }
  for (double factor : {double(p.softmax_scale), std::numbers::log2e, std::numbers::ln2, 0.5, 2.0})
    for (bool both : {false, true})
      add_score(clues, out, "alibi.scaled",
                both ? fmt::format("scaled score and bias off by a factor {:.4g}", factor)
                     : fmt::format("slope over {:.4g}", factor),
                0.45, [factor, both](ScoreParts s) {
                  if (both) return factor * standard_score(s);
                  s.slope /= factor;
                  return standard_score(s);
                });
  // Distance of keys after the row, which have none.
  add_score(clues, out, "alibi.shifted", "keys after the row biased too", 0.2, [](ScoreParts s) {
    if (s.distance >= 0) return standard_score(s);
    return standard_score(s) - s.slope * (s.alibi == ASSAY_ALIBI_SQRT ? -std::sqrt(-s.distance) : s.distance);
  });
  if (p.alibi == ASSAY_ALIBI_SQRT)
    add_score(clues, out, "alibi.sqrt_ignored", "linear distance", 0, [](ScoreParts s) {
      s.alibi = ASSAY_ALIBI_LINEAR;
      return standard_score(s);
    });
  for (double factor : {std::numbers::log2e, std::numbers::ln2, double(p.softmax_scale)})
    add_score(clues, out, "alibi.scaled", fmt::format("bias off by a factor {:.4g}", factor), 0.5,
              [factor](ScoreParts s) {
                s.slope *= factor;
                return standard_score(s);
              });
}

}  // namespace assay
