// SPDX-License-Identifier: Apache-2.0
// Hypotheses about splits and their merge. Where their order is not declared the usual ones are tried.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <numeric>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/merges.hpp"
#include "harness/explain/families/read_orders.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void weights(Merges& add) {
  Hypothesis h = add.start("merge.base", "weights 2^LSE of natural LSEs", 0);
  h.rules.merge_weight = [](double lse, double top) { return std::exp2(lse - top); };
  add.push(h);
  h.text += ", LSE in base 2 too";
  h.cost += 0.1;
  h.rules.merge_lse = [](const Scene&, const std::vector<SplitPart>& parts, double) {
    double top = -kInf, sum = 0;
    for (const SplitPart& p : parts) top = std::max(top, p.lse);
    if (top == -kInf) return top;
    for (const SplitPart& p : parts) sum += std::exp2(p.lse - top);
    return top + std::log2(sum);
  };
  add.push(h);
  h.text = "weights 2^LSE of natural LSEs, LSE right";
  h.rules.merge_lse = [](const Scene&, const std::vector<SplitPart>& parts, double) {
    double top = -kInf, sum = 0;
    for (const SplitPart& p : parts) top = std::max(top, p.lse);
    if (top == -kInf) return top;
    for (const SplitPart& p : parts) sum += std::exp(p.lse - top);
    return top + std::log(sum);
  };
  add.push(h);
  h = add.start("merge.base", "weights of LSEs times log2(e)", 0.2);
  h.rules.merge_weight = [](double lse, double top) { return std::exp((lse - top) * std::numbers::log2e); };
  add.push(std::move(h));
  for (bool right_lse : {true, false})
    for (bool with_empty : {false, true})
      add.parts("merge.uniform_weights",
                fmt::format("equal weights{}{}", with_empty ? " of all splits" : "",
                            right_lse ? ", LSE right" : ""),
                0.1, [right_lse, with_empty](const Scene&, std::vector<SplitPart>& parts) {
                  const std::vector<int32_t> list = filled(parts);
                  if (list.empty()) return;
                  double top = -kInf, sum = 0;
                  for (const SplitPart& p : parts) top = std::max(top, p.lse);
                  for (const SplitPart& p : parts) sum += std::exp(p.lse - top);
                  const double n = with_empty ? count(parts) : static_cast<double>(list.size());
                  // Equal LSEs that add up to the right one, or to the largest.
                  const double each = (right_lse ? top + std::log(sum) : top) - std::log(right_lse ? n : 1.0);
                  for (SplitPart& p : parts)
                    if (with_empty || p.lse != -kInf) p.lse = each;
                });
}

void drops(Merges& add) {
  for (const Pick& pick : picks())
    for (bool with_empty : {false, true})
      for (bool right_lse : {false, true}) {
        Hypothesis h =
            add.start("merge.split_dropped",
                      fmt::format("{} split{} left out{}", pick.name, with_empty ? "" : " that holds keys",
                                  right_lse ? ", LSE right" : ""),
                      0.3 + (with_empty ? 0.05 : 0) + (right_lse ? 0.05 : 0));
        const auto chosen = [of = pick.of, with_empty](const std::vector<SplitPart>& parts) {
          if (count(parts) < 2) return -1;
          if (with_empty) return of(count(parts));
          const std::vector<int32_t> list = filled(parts);
          return list.empty() ? -1 : list[of(static_cast<int32_t>(list.size()))];
        };
        h.rules.edit_parts = [chosen](const Scene&, std::vector<SplitPart>& parts) {
          if (const int32_t s = chosen(parts); s >= 0) parts[s].lse = -kInf;
        };
        if (right_lse) {
          // The LSE is summed elsewhere: take it before the split goes.
          h.rules.edit_parts = nullptr;
          h.rules.edit_parts = [chosen](const Scene&, std::vector<SplitPart>& parts) {
            const int32_t s = chosen(parts);
            if (s < 0) return;
            double top = -kInf, all = 0, rest = 0;
            for (const SplitPart& p : parts) top = std::max(top, p.lse);
            for (int32_t i = 0; i < count(parts); ++i) {
              const double w = std::exp(parts[i].lse - top);
              all += w;
              if (i != s) rest += w;
            }
            if (!(rest > 0)) return;
            // The rest carries the whole weight.
            parts[s].lse = -kInf;
            for (SplitPart& p : parts) p.lse += std::log(all / rest);
          };
        }
        add.push(std::move(h));
      }
  // One of them by what it weighs.
  for (bool largest : {true, false})
    for (bool right_lse : {false, true})
      for (bool kept : {true, false})
        add.parts("merge.split_dropped",
                  fmt::format("{} the split with the {} LSE{}{}", kept ? "only" : "",
                              largest ? "largest" : "smallest", kept ? " kept" : " left out",
                              right_lse ? ", LSE right" : ""),
                  0.2 + 0.1 * !largest + 0.05 * !kept + 0.05 * right_lse,
                  [=](const Scene&, std::vector<SplitPart>& parts) {
                    const std::vector<int32_t> list = filled(parts);
                    if (list.size() < 2) return;
                    const auto less = [&](int32_t a, int32_t b) { return parts[a].lse < parts[b].lse; };
                    const int32_t one = largest ? *std::max_element(list.begin(), list.end(), less)
                                                : *std::min_element(list.begin(), list.end(), less);
                    double all = 0, rest = 0;
                    for (int32_t s : list) {
                      const double w = std::exp(parts[s].lse - parts[list.front()].lse);
                      all += w, rest += (s == one) == kept ? w : 0;
                    }
                    for (int32_t s : list)
                      if ((s == one) != kept)
                        parts[s].lse = -kInf;
                      else if (right_lse)
                        parts[s].lse += std::log(all / rest);
                  });
  for (int32_t s = 1; s < 8; ++s)
    add.parts("merge.split_dropped", fmt::format("split {} left out", s), 0.5,
              [s](const Scene&, std::vector<SplitPart>& parts) {
                if (s < count(parts)) parts[s].lse = -kInf;
              });
  add.parts("merge.split_dropped", "only the first split kept", 0.3,
            [](const Scene&, std::vector<SplitPart>& parts) {
              for (int32_t s = 1; s < count(parts); ++s) parts[s].lse = -kInf;
            });
  add.parts("merge.split_dropped", "only the first split that holds keys kept", 0.15,
            [](const Scene&, std::vector<SplitPart>& parts) {
              const std::vector<int32_t> list = filled(parts);
              for (size_t i = 1; i < list.size(); ++i) parts[list[i]].lse = -kInf;
            });
  add.parts("merge.split_dropped", "only the last split kept", 0.3,
            [](const Scene&, std::vector<SplitPart>& parts) {
              for (int32_t s = 0; s + 1 < count(parts); ++s) parts[s].lse = -kInf;
            });
  for (int32_t keys : {1, 2, 4, 8, 16}) {
    // Splits that begin too early count the keys before them twice.
    Hypothesis h = add.start("keys.one_doubled",
                             fmt::format("each split repeats the last {} of the one before",
                                         keys > 1 ? fmt::format("{} keys", keys) : "key"),
                             0.4);
    const Rules cut = h.rules;
    h.rules.edit_terms = [cut, keys](Scene& s, std::vector<Term>& t) {
      for (int32_t start : PartsOf(cut, s).starts())
        for (Term& term : t)
          if (term.position < start && term.position >= start - keys) term.weight += 1;
    };
    add.push(std::move(h));
  }
}

void wrong_lses(Merges& add) {
  for (const Pick& pick : picks())
    for (int32_t step : {1, -1})
      for (bool with_empty : {false, true})
        add.parts("merge.lse_wrong",
                  fmt::format("LSE of the {} split{} is the {} one's", pick.name,
                              with_empty ? "" : " that holds keys", step > 0 ? "next" : "previous"),
                  0.4, [of = pick.of, step, with_empty](const Scene&, std::vector<SplitPart>& parts) {
                    const std::vector<int32_t> list = filled(parts);
                    if (list.empty()) return;
                    const int32_t n = count(parts);
                    const int32_t s = with_empty ? of(n) : list[of(static_cast<int32_t>(list.size()))];
                    parts[s].lse = parts[((s + step) % n + n) % n].lse;
                  });
  for (int32_t kept : {2, 3, 4})
    for (bool front : {true, false})
      add.lse("merge.lse_wrong",
              fmt::format("merged LSE of the {} {} splits", front ? "first" : "last", kept), 0.3,
              [kept, front](const Scene&, const std::vector<SplitPart>& parts, double lse) {
                const int32_t n = count(parts), used = std::min(kept, n), from = front ? 0 : n - used;
                if (used == n) return lse;  // of all of them, and of the sink
                double top = -kInf, sum = 0;
                for (int32_t s = from; s < from + used; ++s) top = std::max(top, parts[s].lse);
                if (top == -kInf) return top;
                for (int32_t s = from; s < from + used; ++s) sum += std::exp(parts[s].lse - top);
                return top + std::log(sum);
              });
  add.lse("merge.lse_wrong", "merged LSE is the largest of the splits", 0.2,
          [](const Scene&, const std::vector<SplitPart>& parts, double) {
            double top = -kInf;
            for (const SplitPart& p : parts) top = std::max(top, p.lse);
            return top;
          });
  add.also_called("lse.ignores_sum");
  add.lse("merge.lse_wrong", "merged LSE is the first split's", 0.2,
          [](const Scene&, const std::vector<SplitPart>& parts, double) { return parts.front().lse; });
  add.lse("merge.lse_wrong", "merged LSE is the last split's", 0.2,
          [](const Scene&, const std::vector<SplitPart>& parts, double) { return parts.back().lse; });
  add.lse("merge.lse_wrong", "merged LSE is the last split's before the first gap", 0.25,
          [](const Scene&, const std::vector<SplitPart>& parts, double lse) {
            const std::vector<int32_t> list = filled(parts);
            if (list.empty()) return lse;
            int32_t s = list.front();
            while (s + 1 < count(parts) && parts[s + 1].lse != -kInf) ++s;
            return parts[s].lse;
          });
  add.lse("merge.lse_wrong", "merged LSE is the last split's that holds keys", 0.25,
          [](const Scene&, const std::vector<SplitPart>& parts, double lse) {
            const std::vector<int32_t> list = filled(parts);
            return list.empty() ? lse : parts[list.back()].lse;
          });
}

void empties(const Clues& clues, Merges& add) {
  const double nan = std::nan("");
  const auto on_empty = [&](std::string_view cause, std::string text, double cost, double lse, double value) {
    add.parts(cause, std::move(text), cost, [lse, value](const Scene& s, std::vector<SplitPart>& parts) {
      for (SplitPart& p : parts) {
        if (p.lse != -kInf) continue;
        p.lse = lse;
        p.o.assign(s.problem.head_dim_v, value);
      }
    });
  };
  on_empty("merge.empty_split_counted", "a split without keys has LSE 0", 0.1, 0, 0);
  on_empty("merge.empty_split_counted", "a split without keys has LSE 1", 0.4, 1, 0);
  on_empty("output.nan", "a split without keys gives NaN", 0.2, nan, nan);
  // The weight of -inf against -inf.
  add.parts("output.nan", "two splits without keys one after the other give NaN", 0.2,
            [nan](const Scene& s, std::vector<SplitPart>& parts) {
              for (int32_t i = 0; i + 1 < count(parts); ++i)
                if (parts[i].lse == -kInf && parts[i + 1].lse == -kInf) {
                  parts[i].lse = nan;
                  parts[i].o.assign(s.problem.head_dim_v, nan);
                }
            });
  add.parts("output.nan", "a first split without keys gives NaN", 0.2,
            [nan](const Scene& s, std::vector<SplitPart>& parts) {
              if (parts[0].lse != -kInf) return;
              parts[0].lse = nan;
              parts[0].o.assign(s.problem.head_dim_v, nan);
            });
  add.parts("output.nan", "the first two splits without keys give NaN", 0.2,
            [nan](const Scene& s, std::vector<SplitPart>& parts) {
              if (count(parts) < 2 || parts[0].lse != -kInf || parts[1].lse != -kInf) return;
              parts[0].lse = nan;
              parts[0].o.assign(s.problem.head_dim_v, nan);
            });
  const auto short_last = [&](std::string text, std::function<int32_t(const Scene&)> least) {
    add.parts("output.nan", std::move(text), 0.3,
              [least, nan](const Scene& s, std::vector<SplitPart>& parts) {
                const std::vector<int32_t> list = filled(parts);
                if (list.empty() || parts[list.back()].keys >= least(s)) return;
                parts[list.back()].lse = nan;
                parts[list.back()].o.assign(s.problem.head_dim_v, nan);
              });
  };
  for (int32_t least : {2, 4, 8, 16})
    short_last(fmt::format("a last split with fewer than {} keys gives NaN", least),
               [least](const Scene&) { return least; });
  short_last("a last split with fewer keys than the request has new tokens gives NaN",
             [](const Scene& s) { return s.problem.requests[s.cell.request].q_len; });
  // What the row or head computed before left in the place of an empty split.
  Predictor* predictor = &clues.predictor;
  const Problem& p = clues.problem();
  using Before = std::function<bool(Cell&)>;
  std::vector<std::pair<std::string, Before>> orders = {
      {"the KV head or request before",
       [&p](Cell& c) {
         const int32_t group = p.group();
         if (c.head >= group) return c.head -= group, true;
         c.head += p.heads_q - group;
         while (--c.request >= 0)
           if (c.row < p.requests[c.request].q_len && p.requests[c.request].kv_len > 0) return true;
         return false;
       }},
      {"the head before", [&p](Cell& c) { return --c.head >= 0 && p.heads_q > 0; }},
      {"the row before", [](Cell& c) { return --c.row >= 0; }},
      {"the row or request before",
       [&p](Cell& c) {
         if (--c.row >= 0) return true;
         while (--c.request >= 0)
           if (p.requests[c.request].q_len > 0) {
             c.row = p.requests[c.request].q_len - 1;
             return true;
           }
         return false;
       }},
      {"the head, row or request before",
       [&p](Cell& c) {
         if (--c.head >= 0) return true;
         c.head = p.heads_q - 1;
         if (--c.row >= 0) return true;
         while (--c.request >= 0)
           if (p.requests[c.request].q_len > 0) {
             c.row = p.requests[c.request].q_len - 1;
             return true;
           }
         return false;
       }},
  };
  // Requests of another order of work.
  for (const bool longest : {true, false}) {
    auto turn = std::make_shared<std::vector<int32_t>>(p.requests.size());
    std::iota(turn->begin(), turn->end(), 0);
    std::stable_sort(turn->begin(), turn->end(), [&](int32_t a, int32_t b) {
      return longest ? p.requests[a].kv_len > p.requests[b].kv_len
                     : p.requests[a].kv_len < p.requests[b].kv_len;
    });
    if (std::is_sorted(turn->begin(), turn->end())) continue;
    orders.emplace_back(
        fmt::format("the KV head or request before, the {} first", longest ? "longest" : "shortest"),
        [&p, turn](Cell& c) {
          const int32_t group = p.group();
          if (c.head >= group) return c.head -= group, true;
          c.head += p.heads_q - group;
          auto at = std::find(turn->begin(), turn->end(), c.request);
          while (at != turn->begin()) {
            c.request = *--at;
            if (c.row < p.requests[c.request].q_len && p.requests[c.request].kv_len > 0) return true;
          }
          return false;
        });
  }
  // Blocks of rows one after the other, each row in its place of the block; the KV heads and requests before.
  struct Walk {
    std::string words;
    Before before;
    std::function<std::vector<Cell>(const Cell&)> shared = {};
  };
  std::vector<Walk> walks;
  for (const auto& [name, before] : orders) walks.push_back({name, before});
  for (const UnitsOfBlock& block : blocks_of_units(p)) {
    const auto shared = [&p, block](const Cell& c) {
      std::vector<Cell> cells;
      const int32_t first = block.number(p, c) / block.size * block.size;
      for (int32_t n = first; n < std::min(first + block.size, block.count(p, c)); ++n)
        cells.push_back(block.at(p, c, n));
      return cells;
    };
    walks.push_back({"the block of " + block.words() + " before",
                     [&p, block](Cell& c) {
                       const int32_t own = block.number(p, c), place = own % block.size;
                       if (own >= block.size) return c = block.at(p, c, own - block.size), true;
                       const int32_t step = block.packed ? p.group() : 1;
                       for (;;) {
                         c.head -= step;
                         if (c.head < 0) {
                           if (--c.request < 0) return false;
                           c.head += p.heads_q;
                         }
                         const int32_t rows = block.count(p, c);
                         if (rows <= place || p.requests[c.request].kv_len == 0) continue;
                         return c = block.at(p, c, (rows - 1 - place) / block.size * block.size + place),
                                true;
                       }
                     },
                     shared});
  }
  // Slots that nobody has written yet hold zeros, or are taken for empty.
  for (const auto& [name, before, shared] : walks)
    for (const bool zeros : {true, false}) {
      Hypothesis h = add.start(
          "merge.partial_stale",
          "a split without keys counts with what was left by " + name + (zeros ? "" : ", if anything was"),
          0.3 + 0.02 * !zeros);
      const Rules base = h.rules;
      const auto most = static_cast<size_t>(PartsOf(base, KeyRange{0, p.max_kv_len()}).count());
      h.rules.edit_parts = [predictor, before = before, shared_with = shared, base, most, zeros](
                               const Scene& s, std::vector<SplitPart>& parts) {
        // Where short requests have fewer parts the merge takes as many as the longest has.
        while (zeros && parts.size() < most)
          parts.push_back({std::vector<double>(s.problem.head_dim_v, 0.0), -kInf, 0});
        std::vector<char> missing(parts.size(), 0);
        for (size_t i = 0; i < parts.size(); ++i) missing[i] = parts[i].lse == -kInf;
        // A part that another row of the block has keys of is written for all of them.
        for (const Cell& other : shared_with ? shared_with(s.cell) : std::vector<Cell>{}) {
          if (other == s.cell) continue;
          const std::vector<SplitPart> theirs = parts_of(*predictor, base, other);
          for (size_t i = 0; i < missing.size() && i < theirs.size(); ++i)
            missing[i] = missing[i] && theirs[i].lse == -kInf;
        }
        auto left = static_cast<size_t>(std::count(missing.begin(), missing.end(), 1));
        Cell c = s.cell;
        for (int steps = 0; left > 0 && steps < 64 && before(c); ++steps) {
          const std::vector<SplitPart> old = parts_of(*predictor, base, c);
          for (size_t i = 0; i < parts.size() && i < old.size(); ++i)
            if (missing[i] && old[i].lse != -kInf) {
              parts[i] = old[i];
              missing[i] = 0;
              --left;
            }
        }
        for (size_t i = 0; i < parts.size(); ++i)
          if (missing[i] && zeros) {
            parts[i].lse = 0;
            parts[i].o.assign(s.problem.head_dim_v, 0.0);
          }
      };
      add.push(std::move(h));
    }
}

}  // namespace

void merge_family(const Clues& clues, Hypotheses& out) {
  const auto everything = [&](Merges& add) {
    weights(add);
    drops(add);
    wrong_lses(add);
    overwritten_parts(add);
    shared_slots(clues, add);
    undivided_parts(add);
    exchanged_parts(clues, add);
    coarse_parts(clues, add);
    empties(clues, add);
  };
  for (const Layout& layout : clues.layouts) {
    Merges add(clues, out, layout);
    everything(add);
  }
}

}  // namespace assay
