// SPDX-License-Identifier: Apache-2.0
// Which parts of a request are hit, times what becomes of a part's output and LSE before the merge; and what
// the number of parts has got into.
#include <algorithm>
#include <cmath>
#include <set>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/fit.hpp"
#include "harness/explain/families/joins.hpp"
#include "harness/explain/families/merges.hpp"
#include "harness/explain/families/read_orders.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr size_t kLayouts = 12;
constexpr size_t kJoined = 2;  // ... whose parts are joined one after the other
using Parts = std::vector<SplitPart>;

struct Which {
  std::string words;
  std::function<bool(int32_t at, int32_t of)> holds;  // of the parts that hold keys
  double cost;
};

std::vector<Which> whichs() {
  std::vector<Which> list = {
      {"every part but the first", [](int32_t at, int32_t) { return at > 0; }, 0.25},
      {"every part but the last", [](int32_t at, int32_t of) { return at < of - 1; }, 0.25},
      {"the first part", [](int32_t at, int32_t) { return at == 0; }, 0.3},
      {"the last part", [](int32_t at, int32_t of) { return at == of - 1; }, 0.3},
      {"the second part", [](int32_t at, int32_t) { return at == 1; }, 0.35},
      {"the part before the last", [](int32_t at, int32_t of) { return at == of - 2; }, 0.35},
      {"parts of even number that another follows",
       [](int32_t at, int32_t of) { return at % 2 == 0 && at + 1 < of; }, 0.3},
      {"the last part where their number is even",
       [](int32_t at, int32_t of) { return at == of - 1 && of % 2 == 0; }, 0.35},
      {"the last part where their number is odd",
       [](int32_t at, int32_t of) { return at == of - 1 && of % 2 == 1; }, 0.35},
      {"every part", [](int32_t, int32_t) { return true; }, 0.2},
  };
  for (int32_t of : {2, 3, 4})
    for (int32_t which = 0; which < of; ++which)
      list.push_back({fmt::format("parts of number {} modulo {}", which, of),
                      [=](int32_t at, int32_t) { return at % of == which; }, 0.3 + 0.05 * (of > 2)});
  for (int32_t from : {2, 3, 4, 8}) {
    list.push_back({fmt::format("parts from number {} on", from),
                    [=](int32_t at, int32_t) { return at >= from; }, 0.35});
    list.push_back({fmt::format("all parts where there are more than {}", from),
                    [=](int32_t, int32_t of) { return of > from; }, 0.35});
  }
  return list;
}

// Parts as they were, the one that is hit, and those that hold keys, in order.
struct Hit {
  const Parts& before;
  Parts& parts;
  const std::vector<int32_t>& list;
  int32_t at;  // of the list
  SplitPart& part() const { return parts[list[at]]; }
  const SplitPart* other(int32_t step, bool round) const {
    const auto n = static_cast<int32_t>(list.size());
    const int32_t to = round ? ((at + step) % n + n) % n : at + step;
    return to < 0 || to >= n ? nullptr : &before[list[to]];
  }
};

struct What {
  std::string_view cause;
  const char* words;
  double cost;
  void (*change)(const Hit&);
};

void drop(const Hit& h) { h.part().lse = -kInf; }

const What kWhats[] = {
    {"merge.split_dropped", "left out", 0, drop},
    {"keys.lanes_v_dropped", "not in the output, though in the row sum", 0.05,
     [](const Hit& h) { std::fill(h.part().o.begin(), h.part().o.end(), 0.0); }},
    {"keys.one_doubled", "counted twice", 0.05, [](const Hit& h) { h.part().lse += std::log(2.0); }},
    {"merge.pairing", "overwritten by the next one", 0.05,
     [](const Hit& h) {
       if (const SplitPart* o = h.other(1, false)) h.part().o = o->o, h.part().lse = o->lse;
     }},
    {"merge.pairing", "overwritten by the one before", 0.05,
     [](const Hit& h) {
       if (const SplitPart* o = h.other(-1, false)) h.part().o = o->o, h.part().lse = o->lse;
     }},
    {"merge.pairing", "with the output of the next one, round", 0.05,
     [](const Hit& h) { h.part().o = h.other(1, true)->o; }},
    {"merge.pairing", "with the output of the one before, round", 0.05,
     [](const Hit& h) { h.part().o = h.other(-1, true)->o; }},
    {"merge.pairing", "with the LSE of the next one, round", 0.05,
     [](const Hit& h) { h.part().lse = h.other(1, true)->lse; }},
    {"merge.pairing", "with the LSE of the one before, round", 0.05,
     [](const Hit& h) { h.part().lse = h.other(-1, true)->lse; }},
    {"merge.pairing", "with the output of the first one", 0.05,
     [](const Hit& h) { h.part().o = h.before[h.list.front()].o; }},
    {"merge.pairing", "with the LSE of the first one", 0.05,
     [](const Hit& h) { h.part().lse = h.before[h.list.front()].lse; }},
    {"merge.pairing", "with the output of the last one", 0.05,
     [](const Hit& h) { h.part().o = h.before[h.list.back()].o; }},
    {"merge.pairing", "with the LSE of the last one", 0.05,
     [](const Hit& h) { h.part().lse = h.before[h.list.back()].lse; }},
    {"merge.without_maxima", "without its maximum", 0.05,
     [](const Hit& h) { h.part().lse -= h.part().maximum; }},
    {"merge.by_maximum", "by its maximum alone", 0.05, [](const Hit& h) { h.part().lse = h.part().maximum; }},
    {"merge.base", "with its LSE in base 2", 0.05, [](const Hit& h) { h.part().lse /= std::log(2.0); }},
    {"merge.base", "with its LSE times ln(2)", 0.1, [](const Hit& h) { h.part().lse *= std::log(2.0); }},
    {"softmax.not_normalised", "not divided by its row sum", 0.05,
     [](const Hit& h) {
       const double sum = std::exp(h.part().lse - h.part().maximum);
       for (double& x : h.part().o) x *= sum;
     }},
    {"softmax.row_sum_scaled", "divided by its row sum twice", 0.1,
     [](const Hit& h) {
       const double sum = std::exp(h.part().lse - h.part().maximum);
       for (double& x : h.part().o) x /= sum;
     }},
};

void products(Merges& add, const Clues& clues) {
  for (const Which& which : whichs())
    for (const What& what : kWhats) {
      if (!clues.wants(what.cause)) continue;
      // A part that is not there is not looked at: what merely has weight zero keeps it.
      add.parts(what.cause, fmt::format("{} {}", which.words, what.words), which.cost + what.cost,
                [holds = which.holds, &what](const Scene&, Parts& parts) {
                  const std::vector<int32_t> list = filled(parts);
                  const auto n = static_cast<int32_t>(list.size());
                  if (n < 2) return;
                  const Parts before = parts;
                  for (int32_t i = 0; i < n; ++i)
                    if (holds(i, n)) what.change({before, parts, list, i});
                });
    }
}

// Parts that begin where something else does: keys before their own are counted twice, or left out.
void starts(Merges& add, const Clues& clues) {
  const Problem& p = clues.problem();
  std::set<int32_t> grains = {2, 4, 8, 16, 32, 64};
  if (op_of(p).has_cache && p.page_size > 1) grains.insert(p.page_size);
  for (const int32_t grain : grains)
    for (bool up : {false, true}) {
      const std::string_view cause = up ? "keys.one_dropped" : "keys.one_doubled";
      if (!clues.wants(cause)) continue;
      Hypothesis h = add.start(cause,
                               fmt::format("every part but the first begins at its start rounded {} to {}",
                                           up ? "up" : "down", grain),
                               0.35);
      const Rules cut = h.rules;
      h.rules.edit_terms = [=](Scene& s, std::vector<Term>& terms) {
        for (const int32_t start : PartsOf(cut, s).starts()) {
          const int32_t low = start / grain * grain, high = (start + grain - 1) / grain * grain;
          for (Term& t : terms)
            if (up ? t.position >= start && t.position < high : t.position >= low && t.position < start)
              t.weight += up ? -1 : 1;
        }
      };
      add.push(std::move(h));
    }
}

// A sink whose weight multiplies a value in every part.
void sink_values(Merges& add, const Clues& clues) {
  if (!clues.problem().sinks || !clues.wants("sinks.with_value")) return;
  const Predictor* predictor = &clues.predictor;
  for (bool last : {false, true}) {
    Hypothesis h = add.start(
        "sinks.with_value",
        fmt::format("its weight also multiplies V of the {} key of every part", last ? "last" : "first"),
        0.25);
    const Rules cut = h.rules;
    h.rules.one_part_too = true;
    h.rules.edit_parts = [=](const Scene& s, Parts& parts) {
      std::vector<int32_t> begins = PartsOf(cut, s).starts();
      begins.insert(begins.begin(), 0);
      begins.push_back(s.kv_len);
      const double sink = predictor->reader().sink(s.cell.head);
      for (size_t i = 0; i < parts.size() && i + 1 < begins.size(); ++i) {
        if (parts[i].lse == -kInf) continue;
        const double w = std::exp(sink - parts[i].lse);
        const double* v = s.keys.v(last ? begins[i + 1] - 1 : begins[i]);
        for (size_t d = 0; d < parts[i].o.size(); ++d) parts[i].o[d] += w * v[d];
      }
    };
    add.push(std::move(h));
  }
}

// The same of the last tile, where keys are met from the last to the first.
void sink_value_of_last_tile(const Clues& clues, Hypotheses& out) {
  if (!clues.problem().sinks || !clues.wants("sinks.with_value")) return;
  const Predictor* predictor = &clues.predictor;
  for (const int32_t tile : clues.tile_sizes) {
    Hypothesis h = propose(
        clues, "sinks.with_value",
        fmt::format("its weight also multiplies V of the first key of the last tile of {}", tile), 0.3);
    h.rules.finish = [=](const Scene& s, std::vector<double>& o, double& lse) {
      const int32_t at = (s.kv_len - 1) / tile * tile;
      if (s.kv_len == 0) return;
      const double w = std::exp(predictor->reader().sink(s.cell.head) - lse);
      const double* v = s.keys.v(at);
      for (size_t d = 0; d < o.size(); ++d) o[d] += w * v[d];
    };
    out.push_back(std::move(h));
  }
}

// Outputs divided by the row sum of another cell of the block, part by part.
void row_sums_of_others(Merges& add, const Clues& clues) {
  if (!clues.wants("softmax.l_of_other")) return;
  const Problem& p = clues.problem();
  const int32_t g = p.group();
  using Map = std::function<Cell(Cell)>;
  std::vector<std::pair<std::string, Map>> maps;
  for (int32_t step : {-1, 1}) {
    maps.emplace_back(fmt::format("row {:+} of the request", step), [&p, step](Cell c) {
      c.row = std::clamp(c.row + step, 0, p.requests[c.request].q_len - 1);
      return c;
    });
    if (g < 2) continue;
    maps.emplace_back(fmt::format("head {:+} of the group", step), [g, step](Cell c) {
      c.head = c.head / g * g + std::clamp(c.head % g + step, 0, g - 1);
      return c;
    });
    maps.emplace_back(fmt::format("pair {:+} of the request's rows and heads of the group", step),
                      [&p, g, step](Cell c) {
                        const int32_t pairs = p.requests[c.request].q_len * g;
                        const int32_t at = std::clamp(c.row * g + c.head % g + step, 0, pairs - 1);
                        c.row = at / g, c.head = c.head / g * g + at % g;
                        return c;
                      });
  }
  maps.emplace_back("the request's first row", [](Cell c) {
    c.row = 0;
    return c;
  });
  if (g > 1)
    maps.emplace_back("the group's first head", [g](Cell c) {
      c.head = c.head / g * g;
      return c;
    });
  Predictor* predictor = &clues.predictor;
  for (const auto& [name, map] : maps)
    for (bool in_lse : {true, false}) {
      Hypothesis h = add.start("softmax.l_of_other",
                               fmt::format("row sum of {}{}", name, in_lse ? "" : ", not in the LSE"), 0.25);
      Rules base = h.rules;
      base.one_part_too = true;
      h.rules.one_part_too = true;
      h.rules.edit_parts = [=, map = map](const Scene& s, Parts& parts) {
        const Cell c = map(s.cell);
        if (c == s.cell) return;
        const Parts other = parts_of(*predictor, base, c);
        for (size_t i = 0; i < parts.size() && i < other.size(); ++i) {
          if (parts[i].lse == -kInf || other[i].lse == -kInf) continue;
          const double own = parts[i].lse - parts[i].maximum, theirs = other[i].lse - other[i].maximum;
          for (double& x : parts[i].o) x *= std::exp(own - theirs);
          if (in_lse) parts[i].lse = parts[i].maximum + theirs;
        }
      };
      add.push(std::move(h));
    }
}

// The number of parts, where it is a factor: 0 all there may be, 1 those that hold keys.
void counts(Merges& add, const Clues& clues) {
  for (bool held : {false, true})
    for (double power : {-1.0, 1.0}) {
      const std::string number = held ? "the number of parts that hold keys" : "the number of parts";
      const auto edit = [=](const auto& change) {
        return [=](const Scene&, Parts& parts) {
          const double n =
              held ? static_cast<double>(filled(parts).size()) : static_cast<double>(parts.size());
          if (parts.size() > 1 && n > 0) change(parts, std::pow(n, power));
        };
      };
      const char* by = power < 0 ? "over" : "times";
      if (clues.wants("output.scaled"))
        add.parts("output.scaled", fmt::format("O {} {}", by, number), 0.2, edit([](Parts& parts, double f) {
                    for (SplitPart& p : parts)
                      for (double& x : p.o) x *= f;
                  }));
      if (clues.wants("softmax.row_sum_scaled"))
        add.parts("softmax.row_sum_scaled", fmt::format("row sum {} {}", by, number), 0.25,
                  edit([](Parts& parts, double f) {
                    for (SplitPart& p : parts) {
                      p.lse += std::log(f);
                      for (double& x : p.o) x /= f;
                    }
                  }));
      if (clues.wants("lse.from_scaled"))
        add.parts("lse.from_scaled", fmt::format("row sum of the LSE {} {}", by, number), 0.25,
                  edit([](Parts& parts, double f) {
                    for (SplitPart& p : parts) p.lse += std::log(f);
                  }));
    }
}

}  // namespace

void composed_part_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  const assay_arithmetic& declared = clues.predictor.declared();
  if (!clues.one_layout) sink_value_of_last_tile(clues, out);
  if (!clues.one_layout && declared.splits <= 1 && declared.split_keys == 0) {  // rows in one part each
    const Layout one{declared.tile_keys, 1, 0, {}, "", 0};
    Merges add(clues, out, one);
    row_sums_of_others(add, clues);
  }
  size_t tried = 0;
  for (const Layout& layout : clues.layouts) {
    if (tried++ >= kLayouts && !clues.one_layout) break;
    Merges add(clues, out, layout);
    products(add, clues);
    starts(add, clues);
    row_sums_of_others(add, clues);
    sink_values(add, clues);
    counts(add, clues);
    transposed_slots(clues, add);
    if (tried <= kJoined) joins_in_turn(add, clues, layout);
  }
}

}  // namespace assay
