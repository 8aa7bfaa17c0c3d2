// SPDX-License-Identifier: Apache-2.0
// Merges that weigh parts by something else than their own maxima and sums, and parts that begin with what
// another part left in the accumulator, the row sum or the maximum.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/explain/families/fit.hpp"
#include "harness/explain/families/merges.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNoPower = 1e-3;  // from 1, of a power of weights that is none
constexpr size_t kLayouts = 16, kLayoutsOfLarge = 2;
using Parts = std::vector<SplitPart>;

double sum_of(const SplitPart& p) { return p.lse == -kInf ? 0 : std::exp(p.lse - p.maximum); }
double top_of(const Parts& parts) {
  double top = -kInf;
  for (const SplitPart& p : parts)
    if (p.lse != -kInf) top = std::max(top, p.maximum);
  return top;
}

// A weight of part i, for its accumulated output and its row sum, both relative to its own maximum; `top` is
// the largest one.
struct Weight {
  std::string_view cause;
  const char* words;
  double cost;
  double (*of)(const Parts&, size_t i, double top);
};
constexpr std::string_view kMaxima = "merge.without_maxima";
// That is a running maximum over the parts, whose sums are not rescaled where it rises.
constexpr std::string_view kNotRescaled[] = {"softmax.o_not_rescaled", "softmax.l_not_rescaled"};
constexpr std::string_view kStale = "softmax.stale_maximum";
constexpr const char* kSoFar = "maxima relative to the largest so far";
const Weight kWeights[] = {
    {kMaxima, "no weight", 0.1, [](const Parts&, size_t, double) { return 1.0; }},
    {kMaxima, "the first part's maximum for all", 0.15,
     [](const Parts& p, size_t, double top) { return std::exp(p.front().maximum - top); }},
    {kMaxima, "the last part's maximum for all", 0.15,
     [](const Parts& p, size_t, double top) { return std::exp(p.back().maximum - top); }},
    {kMaxima, "the maximum of the part before", 0.2,
     [](const Parts& p, size_t i, double top) { return std::exp(p[i > 0 ? i - 1 : i].maximum - top); }},
    {kMaxima, "the maximum of the next part", 0.2,
     [](const Parts& p, size_t i, double top) {
       return std::exp(p[i + 1 < p.size() ? i + 1 : i].maximum - top);
     }},
    {kMaxima, kSoFar, 0.2,
     [](const Parts& p, size_t i, double) {
       double so_far = -kInf;
       for (size_t k = 0; k <= i; ++k) so_far = std::max(so_far, p[k].maximum);
       return std::exp(p[i].maximum - so_far);
     }},
    {kMaxima, "the maximum with the wrong sign", 0.3,
     [](const Parts& p, size_t i, double top) { return std::exp(top - p[i].maximum); }},
    {kMaxima, "maxima relative to the first part's", 0.25,
     [](const Parts& p, size_t i, double) { return std::exp(p[i].maximum - p.front().maximum); }},
    {kMaxima, "maxima relative to the last part's", 0.25,
     [](const Parts& p, size_t i, double) { return std::exp(p[i].maximum - p.back().maximum); }},
    {"merge.base", "2^maximum", 0.2,
     [](const Parts& p, size_t i, double top) { return std::exp2(p[i].maximum - top); }},
    {"merge.base", "e^(maximum log2(e))", 0.25,
     [](const Parts& p, size_t i, double top) {
       return std::exp((p[i].maximum - top) * std::numbers::log2e);
     }},
    {"merge.uniform_weights", "as much as any other part", 0.15,
     [](const Parts& p, size_t i, double) { return 1 / sum_of(p[i]); }},
    {"merge.uniform_weights", "its number of keys", 0.2,
     [](const Parts& p, size_t i, double) { return p[i].keys / sum_of(p[i]); }},
    {"merge.by_maximum", "its maximum alone", 0.2,
     [](const Parts& p, size_t i, double top) { return std::exp(p[i].maximum - top) / sum_of(p[i]); }},
    {"merge.by_maximum", "its row sum twice", 0.3,
     [](const Parts& p, size_t i, double top) { return std::exp(p[i].maximum - top) * sum_of(p[i]); }},
};

// Outputs by `f`, sums by `g` (null: the right ones). The LSE: 0 with the largest maximum, 1 the right one, 2
// with the first part's, 3 with the last part's, 4 of the sums alone, 5 with the largest LSE.
void weigh(Parts& parts, const Weight* f, const Weight* g, int lse) {
  const double top = top_of(parts);
  if (top == -kInf) return;
  double z = 0, right = 0;
  std::vector<double> o(parts.front().o.size(), 0.0);
  Parts held;
  for (const SplitPart& p : parts)
    if (p.lse != -kInf) held.push_back(p);
  for (size_t i = 0; i < held.size(); ++i) {
    const double own = std::exp(held[i].maximum - top), sum = sum_of(held[i]);
    const double of_o = f ? f->of(held, i, top) : own, of_l = g ? g->of(held, i, top) : own;
    for (size_t d = 0; d < o.size(); ++d) o[d] += of_o * sum * held[i].o[d];
    z += of_l * sum, right += own * sum;
  }
  for (double& x : o) x /= z;
  double largest = -kInf;
  for (const SplitPart& p : held) largest = std::max(largest, p.lse);
  const double by[] = {top, top, held.front().maximum, held.back().maximum, 0, largest};
  for (SplitPart& p : parts) p.lse = -kInf;
  parts.front().o = std::move(o);
  parts.front().lse = by[lse] + std::log(lse == 1 ? right : z);
}

void weights(Merges& add) {
  const char* of_lse[] = {"",
                          ", LSE right",
                          ", the LSE with the first part's maximum",
                          ", the LSE with the last part's maximum",
                          ", LSE without a maximum",
                          ", the LSE with the largest LSE"};
  for (const Weight& w : kWeights) {
    for (int lse : {0, 1, 2, 3, 4, 5}) {
      if (lse > 1 && w.cause != kMaxima && w.cause != "merge.uniform_weights") continue;
      add.parts(w.cause, fmt::format("every part counts by {}{}", w.words, of_lse[lse]),
                w.cost + 0.05 * (lse > 0),
                [&w, lse](const Scene&, Parts& parts) { weigh(parts, &w, &w, lse); });
      if (w.words == kSoFar && lse < 2) add.also_called(kNotRescaled[0]), add.also_called(kStale);
    }
    if (w.of == kWeights[std::size(kWeights) - 1].of)
      add.parts("softmax.not_normalised",
                "outputs of parts not divided by their row sums, merged as if they were", 0.15,
                [&w](const Scene&, Parts& parts) { weigh(parts, &w, nullptr, 0); });
    else
      add.parts(w.cause, fmt::format("every part's output counts by {}, its row sum rightly", w.words),
                w.cost + 0.1, [&w](const Scene&, Parts& parts) { weigh(parts, &w, nullptr, 0); });
    if (w.words == kSoFar) add.also_called(kNotRescaled[0]);
    add.parts(w.cause, fmt::format("every part's row sum counts by {}, its output rightly", w.words),
              w.cost + 0.1, [&w](const Scene&, Parts& parts) { weigh(parts, nullptr, &w, 0); });
    if (w.words == kSoFar) add.also_called(kNotRescaled[1]);
    add.parts(w.cause,
              fmt::format("every part's row sum counts by {}, its output rightly, LSE right", w.words),
              w.cost + 0.15, [&w](const Scene&, Parts& parts) { weigh(parts, nullptr, &w, 1); });
  }
}

// A power of the weights.
void numbers(const Fit& fit, Merges& add) {
  const auto power = [&](Rules& r, double x) {
    r = add.start("merge.base", "", 0).rules;
    r.edit_parts = [x](const Scene&, Parts& parts) {
      if (parts.size() > 1)
        for (SplitPart& p : parts) p.lse *= x;
    };
  };
  for (bool right_lse : {false, true}) {
    const auto set = [&](Rules& r, double x) {
      power(r, x);
      if (right_lse)
        r.merge_lse = [x](const Scene&, const Parts& parts, double) {
          double top = -kInf, sum = 0;
          for (const SplitPart& p : parts) top = std::max(top, p.lse / x);
          if (top == -kInf) return top;
          for (const SplitPart& p : parts) sum += std::exp(p.lse / x - top);
          return top + std::log(sum);
        };
    };
    const auto found = fit.along(grid_of(0.2, 2, 19), false, set);
    if (!found || std::fabs(*found - 1) < kNoPower) continue;
    Hypothesis h = add.start(
        "merge.base",
        fmt::format("LSEs of the parts times {:.5g}{}", *found, right_lse ? ", the merged one right" : ""),
        kSolvedCost);
    h.free = 1;
    set(h.rules, *found);
    add.push(std::move(h));
  }
}

// Maxima of the parts that are stored coarsely.
void coarse_maxima(Merges& add) {
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP16})
    for (const bool alone : {false, true}) {
      Hypothesis h = add.start("precision.partial_lse",
                               fmt::format("partial maxima in {}{}", name_of(format_names(), format),
                                           alone ? ", of a lone one too" : ""),
                               0.15 + 0.02 * alone);
      h.rules.one_part_too = alone;
      h.rules.edit_parts = [format, alone](const Scene&, Parts& parts) {
        if (parts.size() < 2 && !alone) return;
        for (SplitPart& p : parts)
          if (p.lse != -kInf) p.lse += round_to(format, p.maximum) - p.maximum;
      };
      add.push(std::move(h));
    }
}

// What a part begins with, relative to its maximum.
struct State {
  std::vector<double> o;
  double l = 0, m = -kInf;
};

// One part after another, with what `keep` says carried over: 1 the output, 2 the row sum, 4 the maximum.
void carry(Parts& parts, int keep, State& state) {
  for (SplitPart& p : parts) {
    if (p.lse == -kInf) continue;
    const double sum = sum_of(p);
    double m = p.maximum, own = 1, old = 0;
    if ((keep & 4) && state.m != -kInf) {
      m = std::max(m, state.m);
      own = std::exp(p.maximum - m), old = std::exp(state.m - m);
    } else {
      old = std::exp(p.first - p.maximum);  // rescaled where the maximum rises behind the first tile
    }
    double l = own * sum;
    if (keep & 2) l += old * state.l;
    std::vector<double> acc(p.o.size());
    for (size_t d = 0; d < acc.size(); ++d) {
      acc[d] = own * sum * p.o[d];
      if ((keep & 1) && !state.o.empty()) acc[d] += old * state.o[d];
    }
    for (size_t d = 0; d < acc.size(); ++d) p.o[d] = acc[d] / l;
    p.lse = m + std::log(l);
    p.maximum = m;
    state = {std::move(acc), l, m};
  }
}

void leftovers(const Clues& clues, Merges& add) {
  const char* kept[] = {"",
                        "the output",
                        "the row sum",
                        "output and row sum",
                        "the maximum",
                        "output and maximum",
                        "row sum and maximum",
                        "output, row sum and maximum"};
  Predictor* predictor = &clues.predictor;
  // What the first part goes on from: so many rows or heads before, if any.
  struct Before {
    std::string words;
    int32_t step = 0;
    bool rows = false, group = false;
  };
  std::vector<Before> befores = {{},
                                 {"the head before", 1},
                                 {"the head of the group before", 1, false, true},
                                 {"the row before", 1, true}};
  for (const int32_t rows : {2, 4, 8, 16, 32, 64})
    if (rows < clues.problem().max_q_len())
      befores.push_back({fmt::format("the row {} before", rows), rows, true});
  for (int keep : {1, 2, 3, 5, 6, 7})
    for (const Before& before : befores) {
      const bool goes_on = before.step > 0;
      Hypothesis h = add.start("softmax.not_cleared",
                               fmt::format("every part begins with {} of the part before{}{}", kept[keep],
                                           goes_on ? ", and the first part with that of " : "", before.words),
                               0.25 + 0.1 * goes_on);
      Rules base = h.rules;
      base.one_part_too = true;
      h.rules.one_part_too = goes_on;
      h.rules.edit_parts = [=](const Scene& s, Parts& parts) {
        State state;
        if (goes_on) {
          Cell c = s.cell;
          int32_t& at = before.rows ? c.row : c.head;
          const int32_t own = at, step = before.step,
                        first = before.group ? own / s.problem.group() * s.problem.group() : own % step;
          for (at = std::max(first, own - 8 * step); at < own; at += step) {
            Parts other = parts_of(*predictor, base, c);
            carry(other, keep, state);
          }
        } else if (parts.size() < 2) {
          return;
        }
        carry(parts, keep, state);
      };
      add.push(std::move(h));
    }
}

// What was never cleared since the kernel began: every piece of work goes on from the one before it, over
// rows, heads and requests.
using Step = std::function<bool(Cell&)>;
std::vector<std::pair<std::string, Step>> walks_of_work(const Problem& p) {
  // The request before that has a row in this place, from its last head on.
  const auto request_before = [&p](Cell& c, int32_t block) {
    const int32_t place = block > 0 ? c.row % block : c.row;
    while (--c.request >= 0) {
      const Request& r = p.requests[c.request];
      if (r.q_len <= place || r.kv_len == 0) continue;
      c.row = block > 0 ? (r.q_len - 1 - place) / block * block + place : place;
      return true;
    }
    return false;
  };
  const auto heads = [&p, request_before](int32_t step) {
    return [&p, request_before, step](Cell& c) {
      if (c.head >= step) return c.head -= step, true;
      c.head += p.heads_q - step;
      return request_before(c, 0);
    };
  };
  std::vector<std::pair<std::string, Step>> walks = {{"the head or request before", heads(1)}};
  if (p.group() > 1 && p.heads_kv > 1) walks.emplace_back("the KV head or request before", heads(p.group()));
  walks.emplace_back("the row, head or request before", [&p](Cell& c) {
    if (--c.row >= 0) return true;
    if (--c.head < 0) {
      c.head = p.heads_q - 1;
      do
        if (--c.request < 0) return false;
      while (p.requests[c.request].q_len == 0 || p.requests[c.request].kv_len == 0);
    }
    c.row = p.requests[c.request].q_len - 1;
    return true;
  });
  for (const int32_t size : {8, 16, 32, 64})
    if (size < p.max_q_len())
      walks.emplace_back(fmt::format("the block of {} rows, the head or request before", size),
                         [&p, request_before, size](Cell& c) {
                           if (c.row >= size) return c.row -= size, true;
                           const int32_t rows = p.requests[c.request].q_len;
                           c.row = (rows - 1 - c.row) / size * size + c.row;
                           if (--c.head >= 0) return true;
                           c.head = p.heads_q - 1;
                           return request_before(c, size);
                         });
  return walks;
}

void never_cleared(const Clues& clues, Merges& add) {
  constexpr size_t kWorkBefore = 24;  // pieces: what is older is scaled away, or is too much to repeat
  Predictor* predictor = &clues.predictor;
  const std::pair<int, const char*> kept[] = {
      {1, "the output"}, {2, "the row sum"}, {3, "output and row sum"}, {7, "output, row sum and maximum"}};
  for (const auto& [keep, what] : kept)
    for (const auto& [name, before] : walks_of_work(clues.problem())) {
      Hypothesis h = add.start("softmax.not_cleared",
                               fmt::format("every part begins with {} of the part before, and the first part "
                                           "with that of {}, from the first one on",
                                           what, name),
                               0.4);
      Rules base = h.rules;
      base.one_part_too = h.rules.one_part_too = true;
      h.rules.edit_parts = [=, keep = keep, before = before](const Scene& s, Parts& parts) {
        std::vector<Cell> work;
        for (Cell c = s.cell; work.size() < kWorkBefore && before(c);) work.push_back(c);
        State state;
        for (auto c = work.rbegin(); c != work.rend(); ++c) {
          Parts other = parts_of(*predictor, base, *c);
          carry(other, keep, state);
        }
        carry(parts, keep, state);
      };
      add.push(std::move(h));
    }
}

// The place of a part in a workspace that still holds another row's or head's.
void workspaces(const Clues& clues, Merges& add) {
  const Problem& p = clues.problem();
  Predictor* predictor = &clues.predictor;
  using Step = std::function<bool(Cell&)>;
  const auto row_before = [&p](Cell& c) {
    if (--c.row >= 0) return true;
    while (--c.request >= 0)
      if (p.requests[c.request].q_len > 0) {
        c.row = p.requests[c.request].q_len - 1;
        return true;
      }
    return false;
  };
  const std::pair<const char*, Step> befores[] = {
      {"the head, row or request before",
       [&p, row_before](Cell& c) {
         if (--c.head >= 0) return true;
         c.head = p.heads_q - 1;
         return row_before(c);
       }},
      {"the head before", [](Cell& c) { return --c.head >= 0; }},
      {"the row or request before", row_before},
      {"the row before", [](Cell& c) { return --c.row >= 0; }},
      {"the request before", [](Cell& c) { return --c.request >= 0; }},
  };
  const std::pair<const char*, int32_t (*)(int32_t)> whichs[] = {
      {"the last part", [](int32_t n) { return n - 1; }},
      {"the first part", [](int32_t) { return 0; }},
      {"the second part", [](int32_t) { return 1; }},
      {"the third part", [](int32_t) { return 2; }},
      {"the part before the last", [](int32_t n) { return n - 2; }}};
  for (const auto& [where, before] : befores)
    for (const auto& [name, which] : whichs)
      for (bool last_of_other : {false, true}) {
        if (last_of_other && std::string_view(name) != "the last part") continue;
        Hypothesis h = add.start(
            "merge.partial_of_other",
            fmt::format("{} is {} of {}", name, last_of_other ? "the last one" : "that", where), 0.3);
        const Rules base = h.rules;
        h.rules.edit_parts = [=, before = before, which = which](const Scene& s, Parts& parts) {
          const int32_t n = count(parts), at = which(n);
          if (n < 2 || at < 0 || at >= n) return;
          Cell c = s.cell;
          // The one before that has parts at all.
          for (int steps = 0; steps < 64 && before(c); ++steps) {
            if (c.request < 0 || c.row >= p.requests[c.request].q_len) continue;
            const Parts other = parts_of(*predictor, base, c);
            const int32_t from = last_of_other ? count(other) - 1 : at;
            if (count(other) < 2 || from >= count(other)) continue;
            parts[at] = other[from];
            return;
          }
        };
        add.push(std::move(h));
      }
}

}  // namespace

void solved_merge_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  const Fit fit(clues);
  const bool large = too_large(clues, kLargeCell);
  size_t tried = 0;
  for (const Layout& layout : clues.layouts) {
    if (tried++ >= (large ? kLayoutsOfLarge : kLayouts)) break;
    Merges add(clues, out, layout);
    weights(add);
    coarse_maxima(add);
    leftovers(clues, add);
    workspaces(clues, add);
    if (tried == 1) never_cleared(clues, add);
    if (!clues.one_layout) numbers(fit, add);
  }
  if (!clues.one_layout && !clues.layouts.empty() && clues.evidence.declared.splits <= 1) {
    // Rows one after the other in one part each.
    const Layout one{clues.tile_sizes.front(), 1, 0, {}, "", 0.05};
    Merges add(clues, out, one);
    leftovers(clues, add);
    for (const int32_t tile : clues.tile_sizes) {
      const Layout tiles{tile, 1, 0, {}, fmt::format(", tiles of {} keys", tile), 0.05};
      Merges more(clues, out, tiles);
      never_cleared(clues, more);
    }
  }
}

}  // namespace assay
