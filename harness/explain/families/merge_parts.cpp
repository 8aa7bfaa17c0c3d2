// SPDX-License-Identifier: Apache-2.0
// Hypotheses about partial results that meet the wrong partners, or are kept too coarsely. Where no splits
// are declared nothing else looks for the latter.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "harness/explain/families/merges.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

void exchanged_parts(const Clues& clues, Merges& add) {
  for (int32_t step : {1, -1})
    add.parts("merge.pairing", fmt::format("O of every split with the LSE of the split {:+}, round", step),
              0.15, [step](const Scene&, std::vector<SplitPart>& parts) {
                std::vector<double> lse;
                for (const SplitPart& p : parts) lse.push_back(p.lse);
                const int32_t n = count(parts);
                for (int32_t i = 0; i < n; ++i) parts[i].lse = lse[((i + step) % n + n) % n];
              });
  for (int32_t step : {1, -1})
    add.parts("merge.pairing",
              fmt::format("O of every split with the LSE of the split {:+}, the {} one with its own", step,
                          step > 0 ? "last" : "first"),
              0.15, [step](const Scene&, std::vector<SplitPart>& parts) {
                std::vector<double> lse;
                for (const SplitPart& p : parts) lse.push_back(p.lse);
                const int32_t n = count(parts);
                for (int32_t i = 0; i < n; ++i) parts[i].lse = lse[std::clamp(i + step, 0, n - 1)];
              });
  for (bool front : {true, false})
    for (bool of_o : {true, false})
      add.parts(
          "merge.pairing",
          fmt::format("{} of the {} two splits exchanged", of_o ? "O" : "LSE", front ? "first" : "last"), 0.2,
          [front, of_o](const Scene&, std::vector<SplitPart>& parts) {
            const int32_t n = count(parts);
            if (n < 2) return;
            SplitPart &a = parts[front ? 0 : n - 2], &b = parts[front ? 1 : n - 1];
            if (of_o)
              std::swap(a.o, b.o);
            else
              std::swap(a.lse, b.lse);
          });
  add.parts("merge.pairing", "O of every split with the LSE of the split as far from the end", 0.2,
            [](const Scene&, std::vector<SplitPart>& parts) {
              std::vector<double> lse;
              for (const SplitPart& p : parts) lse.push_back(p.lse);
              const int32_t n = count(parts);
              for (int32_t i = 0; i < n; ++i) parts[i].lse = lse[n - 1 - i];
            });
  for (double factor : {std::numbers::log2e, std::numbers::ln2})
    add.parts("merge.base", fmt::format("LSEs of the splits times {:.5g}, merged as natural ones", factor),
              0.1, [factor](const Scene&, std::vector<SplitPart>& parts) {
                if (filled(parts).size() < 1 || count(parts) < 2) return;
                for (SplitPart& p : parts) p.lse *= factor;
              });
  for (int32_t of : {2, 1}) {
    Hypothesis h = add.start("merge.split_dropped",
                             of == 2 ? "last split left out where their number is odd"
                                     : "last split left out where their number is even",
                             0.2);
    h.rules.edit_parts = [of](const Scene&, std::vector<SplitPart>& parts) {
      const std::vector<int32_t> list = filled(parts);
      if (list.size() > 1 && list.size() % 2 == (of == 2 ? 1 : 0)) parts[list.back()].lse = -kInf;
    };
    add.push(std::move(h));
  }
  // A tree of merges that meets a part twice, or weighs one whose output it lost.
  for (const Pick& pick : picks())
    for (int32_t number : {0, 1, 2}) {  // of parts: any, odd, even
      const char* where[] = {"", " where their number is odd", " where their number is even"};
      const auto some = [&](std::string_view cause, std::string_view how, double cost, auto change) {
        add.parts(cause, fmt::format("{} split {}{}", pick.name, how, where[number]),
                  cost + 0.05 * (number > 0),
                  [of = pick.of, number, change](const Scene&, std::vector<SplitPart>& parts) {
                    const std::vector<int32_t> list = filled(parts);
                    if (list.empty() || (number > 0 && list.size() % 2 != (number == 1 ? 1 : 0))) return;
                    change(parts[list[of(static_cast<int32_t>(list.size()))]]);
                  });
      };
      some("keys.one_doubled", "counted twice", 0.3, [](SplitPart& part) { part.lse += std::numbers::ln2; });
      some("keys.lanes_v_dropped", "not in the output, though in the row sum", 0.3,
           [](SplitPart& part) { std::fill(part.o.begin(), part.o.end(), 0.0); });
    }
  // Weights and LSE of the running maxima, the row sums forgotten; and what of them the LSE may lack.
  for (bool right_lse : {false, true}) {
    Hypothesis h = add.start("merge.by_maximum",
                             fmt::format("weights e^maximum{}", right_lse ? ", LSE right" : ""), 0.15);
    h.rules.edit_parts = [right_lse](const Scene&, std::vector<SplitPart>& parts) {
      if (count(parts) < 2) return;
      double top = -kInf, all = 0, now = 0;
      for (const SplitPart& p : parts) top = std::max(top, p.lse);
      if (top == -kInf) return;
      for (SplitPart& p : parts) {
        all += std::exp(p.lse - top);
        p.lse = p.maximum;
        now += std::exp(p.lse - top);
      }
      // Weights keep their ratio when all LSEs move together.
      if (right_lse)
        for (SplitPart& p : parts) p.lse += std::log(all / now);
    };
    add.push(std::move(h));
  }
  const auto without = [&](std::string text, double cost,
                           std::function<double(const std::vector<SplitPart>&)> of) {
    Hypothesis h = add.start("lse.ignores_max", std::move(text), cost);
    h.rules.edit_parts = [](const Scene&, std::vector<SplitPart>&) {
    };  // a single part counts as one of several
    h.rules.merge_lse = [of = std::move(of)](const Scene&, const std::vector<SplitPart>& parts, double lse) {
      const double maximum = of(parts);
      return maximum == -kInf ? lse : lse - maximum;
    };
    add.push(std::move(h));
  };
  for (const Pick& pick : picks())
    without(fmt::format("the maximum of the {} split taken off", pick.name), 0.3,
            [of = pick.of](const std::vector<SplitPart>& parts) { return parts[of(count(parts))].maximum; });
  without("the largest LSE of the splits taken off", 0.15, [](const std::vector<SplitPart>& parts) {
    double top = -kInf;
    for (const SplitPart& p : parts) top = std::max(top, p.lse);
    return top;
  });
  without("the largest maximum of the splits taken off", 0.2, [](const std::vector<SplitPart>& parts) {
    double top = -kInf;
    for (const SplitPart& p : parts) top = std::max(top, p.maximum);
    return top;
  });
  for (int32_t parity : {0, 1})
    add.parts("merge.split_dropped", fmt::format("splits of {} number left out", parity ? "odd" : "even"),
              0.3, [parity](const Scene&, std::vector<SplitPart>& parts) {
                for (int32_t s = 0; s < count(parts); ++s)
                  if (s % 2 == parity) parts[s].lse = -kInf;
              });
  // Partial results of another head: its places were taken for this one's.
  const Problem& p = clues.problem();
  const int32_t g = p.group(), heads = p.heads_q;
  if (heads < 2) return;
  std::vector<std::pair<std::string, std::function<int32_t(int32_t)>>> maps = {
      {"the next head", [heads](int32_t h) { return (h + 1) % heads; }},
      {"the head before", [heads](int32_t h) { return (h + heads - 1) % heads; }},
  };
  if (g > 1) {
    maps.emplace_back("the group's first head", [g](int32_t h) { return h / g * g; });
    maps.emplace_back("the group's last head", [g](int32_t h) { return h / g * g + g - 1; });
    if (g > 2 || heads > g)
      maps.emplace_back("the next head of the group", [g](int32_t h) { return h / g * g + (h + 1) % g; });
  }
  enum Of { kAll, kLse, kOutput };
  for (const auto& [name, map] : maps)
    for (Of of : {kAll, kLse, kOutput})
      for (int32_t which : {-1, 0, 1}) {
        if (of != kAll && which > 0) continue;
        Hypothesis h = add.start("merge.partial_of_other",
                                 fmt::format("{}{} of {}",
                                             of == kLse      ? "LSE of "
                                             : of == kOutput ? "O of "
                                                             : "",
                                             which < 0    ? "every split"
                                             : which == 0 ? "the first split"
                                                          : "the second split",
                                             name),
                                 0.3 + 0.1 * (which >= 0));
        const Rules base = h.rules;
        Predictor* predictor = &clues.predictor;
        h.rules.edit_parts = [=, map = map](const Scene& s, std::vector<SplitPart>& parts) {
          Cell c = s.cell;
          c.head = map(c.head);
          if (c == s.cell || count(parts) < 2) return;
          const std::vector<SplitPart> other = parts_of(*predictor, base, c);
          for (size_t i = 0; i < parts.size() && i < other.size(); ++i) {
            if (which >= 0 && static_cast<int32_t>(i) != which) continue;
            if (of != kOutput) parts[i].lse = other[i].lse;
            if (of != kLse) parts[i].o = other[i].o;
          }
        };
        add.push(std::move(h));
      }
}

// Slots of requests that begin too early: what one request keeps there is what another one left.
void shared_slots(const Clues& clues, Merges& add) {
  const auto requests = static_cast<int32_t>(clues.problem().requests.size());
  Predictor* predictor = &clues.predictor;
  for (const int32_t step : {1, -1})
    for (const bool last : {true, false})
      for (const bool of_first : {true, false}) {
        Hypothesis h = add.start("merge.pairing",
                                 fmt::format("the {} split overwritten by the {} one of request {:+}",
                                             last ? "last" : "first", of_first ? "first" : "last", step),
                                 0.3);
        Rules base = h.rules;
        base.one_part_too = true;
        h.rules.edit_parts = [=](const Scene& s, std::vector<SplitPart>& parts) {
          Cell c = s.cell;
          c.request += step;
          if (c.request < 0 || c.request >= requests || parts.size() < 2) return;
          if (s.problem.requests[c.request].q_len <= c.row) return;
          const std::vector<SplitPart> other = parts_of(*predictor, base, c);
          const std::vector<int32_t> own = filled(parts), theirs = filled(other);
          if (own.size() < 2 || theirs.empty()) return;
          parts[last ? own.back() : own.front()] = other[of_first ? theirs.front() : theirs.back()];
        };
        add.push(std::move(h));
      }
}

// A slot that another part has overwritten.
void overwritten_parts(Merges& add) {
  enum Of { kAll, kOutput, kLse };
  const char* names[] = {"", "O of ", "LSE of "};
  const std::pair<int32_t, int32_t> slots[] = {{0, -1}, {-1, 0}, {0, 1}, {1, 0}, {-1, -2}, {-2, -1}};
  const auto name = [](int32_t n) {
    return n == 0 ? "first" : n == 1 ? "second" : n == -1 ? "last" : "one before the last";
  };
  for (const auto& [to, from] : slots)
    for (Of of : {kAll, kOutput, kLse})
      for (bool with_empty : {false, true})
        add.parts("merge.pairing",
                  fmt::format("{}the {} split{} overwritten by the {} one's", names[of], name(to),
                              with_empty ? "" : " that holds keys", name(from)),
                  0.3 + 0.05 * with_empty,
                  [=, to = to, from = from](const Scene&, std::vector<SplitPart>& parts) {
                    std::vector<int32_t> list = filled(parts);
                    if (with_empty) {
                      list.resize(parts.size());
                      std::iota(list.begin(), list.end(), 0);
                    }
                    const auto n = static_cast<int32_t>(list.size());
                    const int32_t a = to < 0 ? n + to : to, b = from < 0 ? n + from : from;
                    if (std::min(a, b) < 0 || std::max(a, b) >= n || a == b) return;
                    if (of != kLse) parts[list[a]].o = parts[list[b]].o;
                    if (of != kOutput) parts[list[a]].lse = parts[list[b]].lse;
                  });
}

// Sums of parts that nobody divides, and LSEs that are one part's maximum.
void undivided_parts(Merges& add) {
  Hypothesis h =
      add.start("softmax.not_normalised", "merged output not divided by the sum of the weights", 0.1);
  h.rules.merge_divides = false;
  add.push(h);
  // The same where one part is all there is.
  h.text = "output not divided where one split is all there is";
  h.text += add.words();
  h.rules.merge_divides = true;
  h.rules.one_part_too = true;
  h.rules.edit_parts = [](const Scene&, std::vector<SplitPart>& parts) {
    if (parts.size() != 1 || parts[0].lse == -kInf) return;
    for (double& x : parts[0].o) x *= std::exp(parts[0].lse - parts[0].maximum);
  };
  add.push(std::move(h));
  for (const Pick& pick : picks())
    add.lse("lse.ignores_sum", fmt::format("the maximum of the {} split alone", pick.name), 0.25,
            [of = pick.of](const Scene&, const std::vector<SplitPart>& parts, double) {
              return parts[of(count(parts))].maximum;
            });
  for (const auto& [factor, base] : {std::pair{std::numbers::log2e, 2}, {1 / std::numbers::ln10, 10}})
    add.lse("lse.base2", fmt::format("logarithm of the sum of the weights of splits in base {}", base), 0.15,
            [f = factor](const Scene&, const std::vector<SplitPart>& parts, double lse) {
              double top = -kInf;
              for (const SplitPart& p : parts) top = std::max(top, p.lse);
              return top == -kInf ? lse : top + f * (lse - top);
            });
  add.lse("lse.ignores_sum", "the largest maximum of the splits alone", 0.2,
          [](const Scene&, const std::vector<SplitPart>& parts, double) {
            double top = -kInf;
            for (const SplitPart& p : parts) top = std::max(top, p.maximum);
            return top;
          });
}

void coarse_parts(const Clues& clues, Merges& add) {
  const assay_arithmetic& declared = clues.predictor.declared();
  // What a lone part is stored in is the kernel's choice; so is whether it is divided by its row sum before.
  const auto stored = [&](std::string_view cause, std::string text, double cost, bool alone, auto change) {
    Hypothesis h =
        add.start(cause, std::move(text) + (alone ? ", of a lone one too" : ""), cost + 0.02 * alone);
    h.rules.one_part_too = alone;
    h.rules.edit_parts = [change, alone](const Scene&, std::vector<SplitPart>& parts) {
      if (parts.size() < 2 && !alone) return;
      for (SplitPart& part : parts)
        if (part.lse != -kInf) change(part);
    };
    add.push(std::move(h));
  };
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2}) {
    const std::string name(name_of(format_names(), format));
    for (bool alone : {false, true}) {
      if (declared.partial_format != format) {
        stored("precision.partials", "partial outputs in " + name, 0.1, alone, [format](SplitPart& part) {
          for (double& x : part.o) x = round_to(format, x);
        });
        stored("precision.partials", "partial outputs in " + name + " before they are divided", 0.15, alone,
               [format](SplitPart& part) {
                 const double sum = std::exp(part.lse - part.maximum);
                 for (double& x : part.o) x = round_to(format, x * sum) / sum;
               });
      }
      if (declared.partial_lse_format != format) {
        stored("precision.partial_lse", "partial LSEs in " + name, 0.1, alone,
               [format](SplitPart& part) { part.lse = round_to(format, part.lse); });
        stored("precision.partial_lse", "partial LSEs in base 2 in " + name, 0.12, alone,
               [format](SplitPart& part) {
                 part.lse = round_to(format, part.lse * std::numbers::log2e) * std::numbers::ln2;
               });
      }
    }
  }
}

}  // namespace assay
