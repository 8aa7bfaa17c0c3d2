// SPDX-License-Identifier: Apache-2.0
// Hypotheses about what happens to a score after the dot product, but for ALiBi (alibi.cpp): the soft cap,
// and the sink, which is a score without a key.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/alibi.hpp"
#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Score = std::function<double(ScoreParts)>;

void add_score(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
               Score score) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  h.rules.score = [score = std::move(score)](const Scene&, const Term&, const ScoreParts& s) {
    return score(s);
  };
  out.push_back(std::move(h));
}

double capped(double cap, double x) { return cap * std::tanh(x / cap); }

double biased(ScoreParts s, double x) {
  s.scale = 1;
  s.dot = x;
  s.softcap = 0;
  return standard_score(s);
}

void softcaps(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (!(p.softcap > 0)) return;
  add_score(clues, out, "softcap.ignored", "scores not capped", 0, [](ScoreParts s) {
    s.softcap = 0;
    return standard_score(s);
  });
  add_score(clues, out, "softcap.before_scale", "cap on the dot product, scaled afterwards", 0.1,
            [](ScoreParts s) { return biased(s, s.scale * capped(s.softcap, s.dot)); });
  add_score(clues, out, "softcap.after_bias", "cap on the scaled score with its bias", 0.3, [](ScoreParts s) {
    const double cap = s.softcap;
    s.softcap = 0;
    return capped(cap, standard_score(s));
  });
  add_score(clues, out, "softcap.ratio", "tanh without the cap in front", 0.1,
            [](ScoreParts s) { return biased(s, std::tanh(s.scale * s.dot / s.softcap)); });
  add_score(clues, out, "softcap.ratio", "tanh of the score itself", 0.15,
            [](ScoreParts s) { return biased(s, s.softcap * std::tanh(s.scale * s.dot)); });
  add_score(clues, out, "softcap.ratio", "tanh(x / 2) in place of tanh(x)", 0.15,
            [](ScoreParts s) { return biased(s, capped(s.softcap, s.scale * s.dot / 2)); });
  add_score(clues, out, "softcap.ratio", "tanh(2 x) in place of tanh(x)", 0.15,
            [](ScoreParts s) { return biased(s, capped(s.softcap, 2 * s.scale * s.dot)); });
  // Rational and cubic stand-ins for tanh.
  const std::vector<std::pair<std::string, double (*)(double)>> stand_ins = {
      {"x (27 + x^2) / (27 + 9 x^2), to 3",
       [](double x) {
         x = std::clamp(x, -3.0, 3.0);
         return x * (27 + x * x) / (27 + 9 * x * x);
       }},
      {"x (27 + x^2) / (27 + 9 x^2)", [](double x) { return x * (27 + x * x) / (27 + 9 * x * x); }},
      {"x (15 + x^2) / (15 + 6 x^2)", [](double x) { return x * (15 + x * x) / (15 + 6 * x * x); }},
      {"x - x^3 / 3", [](double x) { return x - x * x * x / 3; }},
      {"x cut at 1", [](double x) { return std::clamp(x, -1.0, 1.0); }},
      {"x / (1 + |x|)", [](double x) { return x / (1 + std::fabs(x)); }},
      {"x / sqrt(1 + x^2)", [](double x) { return x / std::sqrt(1 + x * x); }},
      {"the sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
  };
  for (const auto& [name, of] : stand_ins)
    add_score(clues, out, "softcap.ratio", name + " in place of tanh", 0.2,
              [of = of](ScoreParts s) { return biased(s, s.softcap * of(s.scale * s.dot / s.softcap)); });
  for (int32_t ahead : {1, 2, 4, 8, 16, 32, 64, 128}) {
    Hypothesis h = propose(clues, "softcap.after_mask",
                           fmt::format("keys up to {} after the row count with score -cap", ahead), 0.3);
    h.rules.edit_terms = [ahead, cap = double(p.softcap)](Scene& s, std::vector<Term>& terms) {
      for (int32_t j = std::max(0, s.position + 1); j <= s.position + ahead && j < s.kv_len; ++j) {
        Term t{j, j, j};
        t.forced = -cap;
        terms.push_back(t);
      }
    };
    out.push_back(std::move(h));
  }
  // (e^2x - 1) / (e^2x + 1) in fp32: infinity over infinity for large arguments.
  for (double limit : {44.0, 88.0})
    add_score(clues, out, "softcap.ratio",
              fmt::format("tanh as a ratio of exponentials that overflow at {:g}", limit), 0.1,
              [limit](ScoreParts s) {
                const double x = s.scale * s.dot / s.softcap;
                return biased(s, std::fabs(x) > limit ? std::nan("") : capped(s.softcap, s.scale * s.dot));
              });
  // Masked keys come back as -cap: all of the request, or those of the tiles that are visited.
  const double cap = p.softcap;
  std::vector<int32_t> grains = clues.tile_sizes;
  grains.push_back(0);
  for (int32_t grain : grains)
    for (bool memory : {true, false})
      for (bool before : {true, false}) {
        Hypothesis h =
            propose(clues, "softcap.after_mask",
                    grain == 0 ? fmt::format("masked keys of the request count with score -cap{}",
                                             before ? "" : ", those after the row only")
                               : fmt::format("masked keys of visited tiles of {} count with score -cap{}{}",
                                             grain, memory ? "" : ", lanes without a key as zeros",
                                             before ? "" : ", after the first visible only"),
                    0.2 + (memory ? 0 : 0.1) + (before ? 0 : 0.05));
        if (grain == 0 && !memory) continue;
        h.rules.edit_terms = [grain, memory, before, cap](Scene& s, std::vector<Term>& terms) {
          if (terms.empty() && grain > 0) return;
          std::vector<char> seen(std::max(s.kv_len, 1), 0);
          for (const Term& t : terms)
            if (t.position < s.kv_len) seen[t.position] = 1;
          int32_t begin = before || terms.empty() ? 0 : terms.front().position;
          int32_t end = s.kv_len;
          if (grain > 0) {
            begin = before ? terms.front().position / grain * grain : terms.front().position;
            end = (terms.back().position / grain + 1) * grain;
          }
          for (int32_t j = begin; j < end; ++j) {
            if (j < s.kv_len && seen[j]) continue;
            if (j >= s.kv_len && memory) break;
            Term t{j, std::min(j, s.kv_len - 1), std::min(j, s.kv_len - 1)};
            t.zero = j >= s.kv_len;
            t.forced = -cap;
            terms.push_back(t);
          }
          std::stable_sort(terms.begin(), terms.end(),
                           [](const Term& a, const Term& b) { return a.position < b.position; });
        };
        out.push_back(std::move(h));
      }
}

// ... those of the tiles that the rows of a block visit together, as far as there are keys.
void capped_masks_of_blocks(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (!(p.softcap > 0) || p.max_q_len() < 2) return;
  for (const RowBlock& block : row_blocks(p))
    for (const int32_t grain : clues.tile_sizes) {
      Hypothesis h = propose(clues, "softcap.after_mask",
                             fmt::format("masked keys of the tiles of {} that {} see count with score -cap",
                                         grain, block.words()),
                             0.25);
      h.rules.edit_terms = [block, grain, cap = double(p.softcap)](Scene& s, std::vector<Term>& terms) {
        const KeyRange range = block.keys(s.problem, s.cell);
        if (range.begin >= range.end) return;
        std::vector<char> seen(std::max(s.kv_len, 1), 0);
        for (const Term& t : terms)
          if (t.position >= 0 && t.position < s.kv_len) seen[t.position] = 1;
        const int32_t end = std::min<int32_t>(s.kv_len, (range.end + grain - 1) / grain * grain);
        for (int32_t j = static_cast<int32_t>(range.begin) / grain * grain; j < end; ++j) {
          if (seen[j]) continue;
          terms.push_back({j, j, j});
          terms.back().forced = -cap;
        }
        std::stable_sort(terms.begin(), terms.end(),
                         [](const Term& a, const Term& b) { return a.position < b.position; });
      };
      out.push_back(std::move(h));
    }
}

void sinks(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const auto add = [&](std::string_view cause, std::string text, double cost,
                       std::function<double(const Scene&, double)> sink) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.sink = std::move(sink);
    out.push_back(std::move(h));
  };
  if (!p.sinks) {
    add("sinks.invented", "1 added to the row sum, as by a sink of 0", 0.3,
        [](const Scene&, double) { return 0.0; });
    return;
  }
  const Predictor* predictor = &clues.predictor;
  const auto of_head = [&](std::string text, double cost, std::function<int32_t(int32_t)> head) {
    add("sinks.other_head", std::move(text), cost, [predictor, head, n = p.heads_q](const Scene& s, double) {
      return predictor->reader().sink(((head(s.cell.head) % n) + n) % n);
    });
  };
  add("sinks.ignored", "no sink", 0, [](const Scene&, double) { return -kInf; });
  Hypothesis lse_only =
      propose(clues, "sinks.not_in_output", "output of the keys alone, LSE with the sink", 0.05);
  lse_only.rules.sink = [](const Scene&, double) { return -kInf; };
  lse_only.rules.lse = [predictor](const Scene& s, const LseParts& parts) {
    const double sink = predictor->reader().sink(s.cell.head), top = std::max(parts.lse, sink);
    return top == -kInf ? top : top + std::log(std::exp(parts.lse - top) + std::exp(sink - top));
  };
  out.push_back(std::move(lse_only));
  add("sinks.first_row_only", "only in the first row of a request", 0.1,
      [](const Scene& s, double sink) { return s.cell.row == 0 ? sink : -kInf; });
  add("sinks.first_row_only", "only in the first request", 0.2,
      [](const Scene& s, double sink) { return s.cell.request == 0 ? sink : -kInf; });
  add("sinks.first_row_only", "only in the very first row", 0.2,
      [](const Scene& s, double sink) { return s.cell.request == 0 && s.cell.row == 0 ? sink : -kInf; });
  add("sinks.first_row_only", "only where the row sees key 0", 0.4, [](const Scene& s, double sink) {
    return s.kv_len > 0 && visible(s.problem, s.cell.request, s.cell.row, 0) ? sink : -kInf;
  });
  of_head("sink of head +2", 0.1, [](int32_t h) { return h + 2; });
  for (const HeadMap& map : query_head_maps(p)) of_head("sinks: " + map.name, 0.1 + map.cost, map.of);
  const auto scaled = [&](std::string_view cause, std::string text, double factor, double cost) {
    add(cause, std::move(text), cost, [factor](const Scene&, double sink) { return sink * factor; });
  };
  scaled("sinks.unscaled", "natural logit taken for one in base 2", std::numbers::ln2, 0.1);
  scaled("sinks.unscaled", "multiplied by log2(e)", std::numbers::log2e, 0.1);
  scaled("sinks.unscaled", "multiplied by the softmax scale", p.softmax_scale, 0.1);
  scaled("sinks.unscaled", "divided by the softmax scale", 1 / double(p.softmax_scale), 0.1);
  if (p.softcap > 0)
    add("sinks.capped", "capped like a score", 0.2,
        [cap = double(p.softcap)](const Scene&, double sink) { return capped(cap, sink); });
  Hypothesis raw = propose(clues, "sinks.unshifted", "its exponential without the maximum taken off", 0.1);
  raw.rules.sink_unshifted = true;
  out.push_back(std::move(raw));
  for (const bool larger : {false, true}) {
    raw = propose(clues, "sinks.unshifted",
                  fmt::format("its exponential joins weights that are relative to the {}",
                              larger ? "larger of LSE and sink" : "LSE"),
                  0.1);
    raw.rules.sink = [](const Scene&, double) { return -kInf; };
    raw.rules.finish = [predictor, larger](const Scene& s, std::vector<double>& o, double& lse) {
      const double sink = predictor->reader().sink(s.cell.head), top = larger ? std::max(lse, sink) : lse;
      if (top == -kInf) return;
      const double keys = std::exp(lse - top), sum = keys + std::exp(sink);
      for (double& x : o) x *= keys / sum;
      lse = top + std::log(sum);
    };
    out.push_back(std::move(raw));
  }
  raw = propose(clues, "sinks.unshifted",
                "its exponential joins weights that are relative to the larger of maximum and sink", 0.1);
  raw.rules.sink = [](const Scene& s, double sink) {
    double top = sink;
    for (const double x : s.predictor->weights(s.cell).scores) top = std::max(top, x);
    return sink + top;
  };
  out.push_back(std::move(raw));
  raw = propose(clues, "sinks.unshifted",
                "weight 1 from its maximum on, not rescaled where the maximum rises", 0.1);
  raw.rules.arithmetic.sink_first = 0;
  raw.rules.sink_exponent = 0;
  out.push_back(std::move(raw));
  // A key with a value: the first one's or the last one's.
  for (bool last : {false, true}) {
    Hypothesis h =
        propose(clues, "sinks.with_value",
                fmt::format("its weight also multiplies V of the {} key", last ? "last" : "first"), 0.2);
    h.rules.finish = [predictor, last](const Scene& s, std::vector<double>& o, double& lse) {
      if (s.kv_len == 0) return;
      const double w = std::exp(predictor->reader().sink(s.cell.head) - lse);
      const double* v = s.keys.v(last ? s.kv_len - 1 : 0);
      for (size_t d = 0; d < o.size(); ++d) o[d] += w * v[d];
    };
    out.push_back(std::move(h));
  }
  const bool splits_declared = clues.evidence.declared.splits > 1 || clues.evidence.declared.split_keys > 0;
  for (const Layout& layout : clues.layouts) {
    if (!splits_declared && layout.split_keys == 0) continue;
    Rules cut;
    layout.apply(cut);
    add("sinks.per_split", "counted in each split" + layout.words, 0.2 + layout.cost / 3,
        [cut](const Scene& s, double sink) { return sink + std::log(double(PartsOf(cut, s).count())); });
  }
  // Counted several times without splits being declared: only splits that hold keys.
  for (int32_t times : {2, 3, 4, 8})
    add("sinks.per_split", fmt::format("counted {} times", times), splits_declared || times == 3 ? 0.5 : 0.2,
        [times](const Scene&, double sink) { return sink + std::log(double(times)); });
  const auto logit = [predictor](const Scene& s) { return predictor->reader().sink(s.cell.head); };
  for (const Layout& layout : clues.layouts) {
    if (!splits_declared) break;
    Hypothesis h = propose(clues, "sinks.per_split", "counted in each split that holds keys" + layout.words,
                           0.25 + layout.cost / 3);
    layout.apply(h.rules);
    h.rules.sink = [](const Scene&, double) { return -kInf; };
    h.rules.edit_parts = [logit](const Scene& s, std::vector<SplitPart>& parts) {
      const double sink = logit(s);
      for (SplitPart& part : parts) {
        if (part.lse == -kInf) continue;
        const double top = std::max(part.lse, sink);
        const double joined = top + std::log(std::exp(part.lse - top) + std::exp(sink - top));
        for (double& x : part.o) x *= std::exp(part.lse - joined);
        part.lse = joined;
      }
    };
    out.push_back(std::move(h));
  }
}

}  // namespace

void score_family(const Clues& clues, Hypotheses& out) {
  softcaps(clues, out);
  capped_masks_of_blocks(clues, out);
  alibis(clues, out);
  sinks(clues, out);
}

}  // namespace assay
