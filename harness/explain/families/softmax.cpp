// SPDX-License-Identifier: Apache-2.0
// Hypotheses about the online softmax and its two outputs: the row sum, the exponential's base,
// saturation, sentinels for masked scores, and everything that concerns the LSE alone.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/explain/families/other_sums.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLeastSentinel = -100;  // below which real scores hardly lie far

void row_sums(const Clues& clues, Hypotheses& out) {
  for (const Pick& pick : picks()) {
    Hypothesis h = propose(clues, "softmax.l_missing_key", fmt::format("{} visible key", pick.name), 0.4);
    h.rules.edit_terms = [of = pick.of](Scene&, std::vector<Term>& t) {
      if (!t.empty()) t[of(static_cast<int32_t>(t.size()))].in_sum = 0;
    };
    out.push_back(std::move(h));
  }
  propose_per_cell(
      clues, "softmax.l_missing_key", "one key per row", 1.5,
      [&](const Cell& cell) {
        std::vector<Candidate> list;
        for (int32_t position : clues.predictor.weights(cell).positions)
          list.push_back({fmt::format("key {}", position), [position](Scene&, std::vector<Term>& t) {
                            for (Term& term : t)
                              if (term.position == position) term.in_sum = 0;
                          }});
        return list;
      },
      out);
  Hypothesis h = propose(clues, "softmax.not_normalised", "weights relative to the maximum, not divided", 0);
  h.rules.divide = false;
  out.push_back(std::move(h));
  // A constant factor shows as a constant in the LSE.
  std::vector<double> ratios;
  for (const Sample& s : clues.bad) {
    if (s.call == Call::kLow) continue;
    const double change =
        clues.evidence.got(s.call, s.cell, -1) - clues.predictor.predict(clues.predictor.right(), s.cell).lse;
    if (std::isfinite(change)) ratios.push_back(change);
  }
  if (ratios.empty()) return;
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<ptrdiff_t>(ratios.size() / 2), ratios.end());
  const double constant = ratios[ratios.size() / 2];
  for (double factor : {std::exp(constant), 2.0, 0.5}) {
    h = propose(clues, "softmax.row_sum_scaled", fmt::format("row sum times {:.6g}", factor), 0.5);
    h.rules.sum_factor = factor;
    out.push_back(std::move(h));
  }
  if (std::fabs(constant) > 1e-6) {
    h = propose(clues, "lse.from_scaled", fmt::format("LSE {:+.6g}", constant), 0.5);
    h.rules.lse = [constant](const Scene&, const LseParts& l) { return l.lse + constant; };
    out.push_back(std::move(h));
  }
}

void exponentials(const Clues& clues, Hypotheses& out) {
  const std::vector<std::pair<double, std::string>> factors = {
      {std::numbers::ln2, "exp2 of natural scores"},
      {std::numbers::log2e, "change of base applied twice"},
      {1.44 * std::numbers::ln2, "log2(e) taken as 1.44"},
      {1.4427 * std::numbers::ln2, "log2(e) taken as 1.4427"},
      {1.4426950216293335 * std::numbers::ln2, "log2(e) one step off in fp32"},
      {1.4375 * std::numbers::ln2, "log2(e) in bf16 below"},
      {1.4453125 * std::numbers::ln2, "log2(e) in bf16"},
      {1.442 * std::numbers::ln2, "log2(e) taken as 1.442"},
      {1.443 * std::numbers::ln2, "log2(e) taken as 1.443"},
      {1.4 * std::numbers::ln2, "log2(e) taken as 1.4"},
      {1.5 * std::numbers::ln2, "log2(e) taken as 1.5"},
  };
  for (const auto& [factor, text] : factors) {
    Hypothesis h = propose(clues, "softmax.log2e", text, 0.2);
    h.rules.exponent_factor = factor;
    out.push_back(h);
    // Row maxima kept in base 2 turn back with the right constant; those kept with the wrong one do not.
    h.text += ", maximum in the LSE too";
    h.cost = 0.25;
    h.rules.lse = [factor = factor](const Scene&, const LseParts& l) {
      return l.lse - l.maximum + l.maximum * factor;
    };
    out.push_back(h);
    h.text = text + ", in the LSE only through the maximum's return";
    h.rules.lse = [factor = factor](const Scene&, const LseParts& l) { return l.lse / factor; };
    out.push_back(std::move(h));
  }
}

void ranges(const Clues& clues, Hypotheses& out) {
  const assay_arithmetic& a = clues.predictor.declared();
  if (format_is_fp8(a.p_format) || a.p_format == ASSAY_FP16) {
    const double most = format_info(a.p_format).max_finite;
    for (double offset : {a.p_offset_log2, a.p_offset_log2 + 1, a.p_offset_log2 + 2, a.p_offset_log2 + 4, 9.0,
                          10.0, 12.0, 16.0})
      for (bool both : {false, true}) {
        Hypothesis h = propose(clues, "softmax.p_saturated",
                               fmt::format("P times 2^{:g} clamped at {:g}{}", offset, most,
                                           both ? ", row sum of the clamped" : ""),
                               0.3);
        h.rules.arithmetic.p_offset_log2 = offset;
        h.rules.arithmetic.row_sum_from_rounded_p = both;
        h.rules.round_clamp = most;
        out.push_back(std::move(h));
      }
  }
  for (double largest : {0.5, 0.875, 0.9375, 0.25})
    for (bool both : {false, true}) {
      Hypothesis h =
          propose(clues, "softmax.p_saturated",
                  fmt::format("P clamped at {:g}{}", largest, both ? ", row sum of the clamped" : ""), 0.5);
      h.rules.arithmetic.row_sum_from_rounded_p = both;
      h.rules.round_clamp = largest * std::exp2(a.p_offset_log2);
      out.push_back(std::move(h));
    }
  if (a.tile_keys > 1 && a.p_format == ASSAY_INT8)
    for (int32_t lanes : {a.tile_keys / 2, a.tile_keys / 4}) {
      Hypothesis h =
          propose(clues, "softmax.p_saturated",
                  fmt::format("maximum of the first {} keys of a tile, int8 weights clamped", lanes), 0.3);
      h.rules.maximum_lanes = lanes;
      h.rules.round_clamp = 1;
      out.push_back(std::move(h));
    }
  // Sentinels: rows whose scores are below it, or that see nothing at all.
  std::vector<double> values = {0,    -1,   -10,  -20,    -30,  -50,  -88,  -100, -1e3,
                                -1e4, -3e4, -5e4, -65504, -1e5, -1e6, -1e9, -1e30};
  for (const Sample& s : clues.bad) {
    const double lse = clues.evidence.got(s.call, s.cell, -1);
    if (clues.predictor.weights(s.cell).positions.empty() && std::isfinite(lse)) {
      for (int32_t lanes : clues.tile_sizes) values.push_back(lse - std::log(double(lanes)));
      const int32_t keys = clues.problem().requests[s.cell.request].kv_len;
      if (keys > 0) values.push_back(lse - std::log(double(keys)));
      break;
    }
  }
  // Scores of which nothing is left beside a maximum of 0 say what the zeros come from.
  const auto far_below = [&](const Sample& s) {
    const std::vector<double> scores = clues.predictor.weights(s.cell).scores;
    return std::all_of(scores.begin(), scores.end(), [](double x) { return x < kLeastSentinel; });
  };
  const bool underflow = !clues.bad.empty() && std::all_of(clues.bad.begin(), clues.bad.end(), far_below);
  std::vector<int32_t> grains = clues.tile_sizes;
  grains.push_back(0);
  const std::vector<RowBlock> blocks =
      clues.problem().max_q_len() > 1 ? row_blocks(clues.problem()) : std::vector<RowBlock>{};
  for (double sentinel : values) {
    Hypothesis h =
        propose(clues, "softmax.finite_sentinel", fmt::format("running maximum starts at {:g}", sentinel),
                underflow && sentinel == 0 ? 0 : 0.3);
    h.rules.first_maximum = sentinel;
    out.push_back(h);
    if (sentinel >= kLeastSentinel) {  // all weights may underflow, and nothing is divided by nothing
      h.text += ", NaN where all weights underflow";
      h.rules.finish = [](const Scene& s, std::vector<double>& o, double& lse) {
        const KeyRange seen = visible_range(s.problem, s.cell.request, s.cell.row);
        if (lse == -kInf && seen.begin < seen.end)
          std::fill(o.begin(), o.end(), std::numeric_limits<double>::quiet_NaN());
      };
      out.push_back(std::move(h));
    }
    for (const RowBlock& block : blocks) {
      h = propose(clues, "softmax.finite_sentinel",
                  fmt::format("masked scores among the keys that {} see are {:g}", block.words(), sentinel),
                  0.35);
      h.rules.edit_terms = [block, sentinel](Scene& s, std::vector<Term>& terms) {
        const KeyRange range = block.keys(s.problem, s.cell);
        std::vector<Term> all;
        size_t at = 0;
        for (int32_t j = static_cast<int32_t>(range.begin); j < range.end && j < s.kv_len; ++j) {
          while (at < terms.size() && terms[at].position < j) ++at;
          all.push_back(at < terms.size() && terms[at].position == j ? terms[at] : Term{j, j, j});
          if (at >= terms.size() || terms[at].position != j) all.back().forced = sentinel;
        }
        terms.swap(all);
      };
      out.push_back(h);
    }
    for (int32_t grain : grains)
      for (bool lanes : {false, true}) {
        if (grain == 0 && lanes) continue;
        h = propose(clues, "softmax.finite_sentinel",
                    grain == 0 ? fmt::format("masked scores of the request are {:g}", sentinel)
                               : fmt::format("masked scores of visited tiles of {} are {:g}{}", grain,
                                             sentinel, lanes ? ", lanes without a key too" : ""),
                    0.3 + (lanes ? 0.05 : 0) + (sentinel == 0 && lanes ? 0.2 : 0));
        if (sentinel == 0 && lanes) h.also_called = {"keys.tail_unmasked"};  // zero keys behind the last
        h.rules.edit_terms = [grain, lanes, sentinel](Scene& s, std::vector<Term>& terms) {
          std::vector<char> seen(std::max(s.kv_len, 1), 0);
          for (const Term& t : terms)
            if (t.position < s.kv_len) seen[t.position] = 1;
          int32_t begin = 0, end = s.kv_len;
          if (grain > 0 && !terms.empty()) {
            begin = terms.front().position / grain * grain;
            end = (terms.back().position / grain + 1) * grain;
          } else if (grain > 0) {
            end = (end + grain - 1) / grain * grain;
          }
          if (!lanes) end = std::min(end, s.kv_len);
          for (int32_t j = begin; j < end; ++j) {
            if (j < s.kv_len && seen[j]) continue;
            Term t{j, std::min(j, s.kv_len - 1), std::min(j, s.kv_len - 1)};
            t.zero = j >= s.kv_len;
            t.forced = sentinel;
            terms.push_back(t);
          }
          std::stable_sort(terms.begin(), terms.end(),
                           [](const Term& x, const Term& y) { return x.position < y.position; });
        };
        out.push_back(std::move(h));
      }
  }
}

}  // namespace

void softmax_family(const Clues& clues, Hypotheses& out) {
  row_sums(clues, out);
  other_sums(clues, out);
  exponentials(clues, out);
  ranges(clues, out);
}

void lse_family(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  using Lse = std::function<double(const Scene&, const LseParts&)>;
  const auto add = [&](std::string_view cause, std::string text, double cost, Lse lse) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.lse = std::move(lse);
    out.push_back(std::move(h));
  };
  const double scale = p.softmax_scale, offset = clues.predictor.declared().p_offset_log2;
  add("lse.base2", "LSE times log2(e)", 0,
      [](const Scene&, const LseParts& l) { return l.lse * std::numbers::log2e; });
  add("lse.base2", "LSE times ln(2)", 0.2,
      [](const Scene&, const LseParts& l) { return l.lse * std::numbers::ln2; });
  add("lse.base2", "logarithm in base 2, maximum natural", 0.2,
      [](const Scene&, const LseParts& l) { return l.maximum + (l.lse - l.maximum) * std::numbers::log2e; });
  add("lse.base2", "maximum in base 2, logarithm natural", 0.2,
      [](const Scene&, const LseParts& l) { return l.maximum * std::numbers::log2e + (l.lse - l.maximum); });
  add("lse.base2", "logarithm in base 10, maximum natural", 0.2,
      [](const Scene&, const LseParts& l) { return l.maximum + (l.lse - l.maximum) / std::numbers::ln10; });
  add("lse.base2", "LSE over ln(10)", 0.2,
      [](const Scene&, const LseParts& l) { return l.lse / std::numbers::ln10; });
  add("lse.ignores_max", "logarithm of the row sum alone", 0,
      [](const Scene&, const LseParts& l) { return std::log(l.sum); });
  // Of several parts it is the largest LSE of them, which has a name of its own.
  const Rules right = clues.predictor.right();
  const bool parts = clues.evidence.declared.splits > 1 || right.arithmetic.splits > 1 ||
                     right.arithmetic.split_keys > 0 || right.cut.states_merge;
  add("lse.ignores_sum", "the maximum alone", 0.2 + 0.4 * parts,
      [](const Scene&, const LseParts& l) { return l.maximum; });
  if (works_in_parts(clues.evidence)) out.back().also_called = {"merge.lse_wrong"};
  if (p.sinks)
    add("lse.ignores_sink", "LSE of the keys", 0,
        [](const Scene&, const LseParts& l) { return l.without_sink; });
  if (p.sinks)
    add("lse.ignores_sink", "LSE of rows that see nothing is minus infinity", 0.05,
        [](const Scene&, const LseParts& l) { return l.without_sink == -kInf ? -kInf : l.lse; });
  add("lse.from_scaled", "LSE times the softmax scale", 0.1,
      [scale](const Scene&, const LseParts& l) { return l.lse * scale; });
  add("lse.from_scaled", "LSE over the softmax scale", 0.1,
      [scale](const Scene&, const LseParts& l) { return l.lse / scale; });
  add("lse.from_scaled", "maximum not scaled", 0.2,
      [scale](const Scene&, const LseParts& l) { return l.lse - l.maximum + l.maximum / scale; });
  add("lse.from_scaled", "maximum scaled twice", 0.2,
      [scale](const Scene&, const LseParts& l) { return l.lse - l.maximum + l.maximum * scale; });
  if (offset != 0) {
    add("lse.from_scaled", "offset of P left in the row sum", 0.1,
        [offset](const Scene&, const LseParts& l) { return l.lse + offset * std::numbers::ln2; });
    add("lse.from_scaled", "offset of P taken off twice", 0.2,
        [offset](const Scene&, const LseParts& l) { return l.lse - offset * std::numbers::ln2; });
  }
  // Rows that see nothing.
  for (double value : {0.0, -1e30, -1e38, -3.4028234663852886e38, -1e4, -1e9, kInf, std::nan("")})
    add("lse.empty_row", fmt::format("LSE of rows that see nothing is {:g}", value), 0.1,
        [value](const Scene&, const LseParts& l) { return l.lse == -kInf ? value : l.lse; });
  for (const Sample& s : clues.bad)
    if (clues.predictor.weights(s.cell).positions.empty() && s.call != Call::kLow) {
      const double value = clues.evidence.got(s.call, s.cell, -1);
      add("lse.empty_row", fmt::format("LSE of rows that see nothing is {:g}", value), 0.3,
          [value](const Scene&, const LseParts& l) { return l.lse == -kInf ? value : l.lse; });
      break;
    }
  // Another cell's LSE.
  Predictor* predictor = &clues.predictor;
  using Map = std::function<Cell(Cell)>;
  const auto other = [&](std::string_view cause, std::string text, double cost, Map map) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.finish = [predictor, map](const Scene& s, std::vector<double>&, double& lse) {
      lse = predictor->predict(predictor->right(), map(s.cell)).lse;
    };
    out.push_back(std::move(h));
  };
  const int32_t heads = p.heads_q;
  for (int32_t step : {1, -1, 2}) {
    if (heads > 1)
      other("lse.other_head", fmt::format("LSE of head {:+}", step), 0.1, [step, heads](Cell c) {
        c.head = ((c.head + step) % heads + heads) % heads;
        return c;
      });
    other("lse.other_row", fmt::format("LSE of row {:+} of the request", step), 0.1, [step, &p](Cell c) {
      const int32_t n = p.requests[c.request].q_len;
      c.row = ((c.row + step) % n + n) % n;
      return c;
    });
    other("lse.other_row", fmt::format("LSE of row {:+} of the request, clamped", step), 0.15,
          [step, &p](Cell c) {
            c.row = std::clamp(c.row + step, 0, p.requests[c.request].q_len - 1);
            return c;
          });
    other("lse.other_row", fmt::format("LSE of packed row {:+}", step), 0.15,
          [step, &first = clues.evidence.first_rows](Cell c) {
            const int32_t total = first.back();
            const int32_t packed = ((first[c.request] + c.row + step) % total + total) % total;
            return cell_of_row(first, packed, c.head);
          });
  }
  // The upper heads' LSEs end in the lower heads' places, and nothing in their own.
  for (int32_t step : {p.heads_q / 2, p.heads_kv, p.group(), 16})
    if (step > 0 && step < heads) {
      Hypothesis h = propose(clues, "lse.other_head",
                             fmt::format("LSE of head +{}, unwritten where there is none", step), 0.2);
      h.rules.finish = [predictor, step, heads](const Scene& s, std::vector<double>&, double& lse) {
        Cell c = s.cell;
        c.head += step;
        lse = c.head < heads ? predictor->predict(predictor->right(), c).lse : s.predictor->unwritten_lse();
      };
      out.push_back(std::move(h));
    }
  other("lse.other_head", "LSE of head 0", 0.15, [](Cell c) {
    c.head = 0;
    return c;
  });
  for (bool last : {false, true})
    if (p.group() > 1)
      other("lse.other_head", fmt::format("LSE of the group's {} head", last ? "last" : "first"), 0.15,
            [last, group = p.group()](Cell c) {
              c.head = c.head / group * group + (last ? group - 1 : 0);
              return c;
            });
  other("lse.other_head", "LSE of the neighbouring head, pairwise", 0.15, [heads](Cell c) {
    c.head = (c.head ^ 1) < heads ? c.head ^ 1 : c.head;
    return c;
  });
  other("lse.other_row", "LSE of the request's first row", 0.15, [](Cell c) {
    c.row = 0;
    return c;
  });
  other("lse.other_row", "LSE of the request's last row", 0.15, [&p](Cell c) {
    c.row = p.requests[c.request].q_len - 1;
    return c;
  });
  // [heads, rows] in place of [rows, heads].
  const int32_t rows = clues.evidence.first_rows.back();
  other("lse.other_row", "LSE stored with rows and heads exchanged", 0.15,
        [rows, heads, &first = clues.evidence.first_rows](Cell c) {
          const int32_t flat = (first[c.request] + c.row) * heads + c.head;
          return cell_of_row(first, flat % rows, flat / rows);
        });
}

}  // namespace assay
