// SPDX-License-Identifier: Apache-2.0
// See exchanges.hpp. Results or queries of two units of work that are exchanged, or that stand in each
// other's place in any order: requests, rows, heads. Which two the wrong cells say; an order is read off the
// results, since what stands in a cell is what a right kernel makes of another one.
#include <algorithm>
#include <map>
#include <set>

#include "harness/explain/families/fit.hpp"
#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/samples.hpp"

namespace assay {
namespace {

constexpr size_t kMostWrong = 6;     // units among whose pairs one is looked for
constexpr int32_t kMostUnits = 64;   // among which a result is looked for
constexpr double kMostWork = 2e9;    // of that, in keys times dimensions
constexpr double kIsThat = 0.5;      // misfit of O, or of the LSE, of a result that was found
constexpr double kFoundCost = 0.35;  // of an order that was read off the results

enum class What { kQuery, kResult, kOutput, kLse };
constexpr What kWhats[] = {What::kResult, What::kOutput, What::kLse, What::kQuery};

struct Unit {
  const char* name;
  std::string_view result, output, lse, query;  // causes
  int32_t count;
  std::function<int32_t(const Cell&)> number;
  std::function<Cell(Cell, int32_t)> at;  // the same cell of another unit; itself where that has none

  std::string_view cause(What what) const {
    return what == What::kResult ? result : what == What::kOutput ? output : what == What::kLse ? lse : query;
  }
};

std::vector<Unit> units(const Clues& clues) {
  const Problem& p = clues.problem();
  const std::vector<int32_t>& first = clues.evidence.first_rows;
  const std::string_view stored = "rows.written_to_other_row", asked = "rows.query_of_other_row",
                         lse = "lse.other_row";
  const auto requests = static_cast<int32_t>(p.requests.size());
  return {
      {"request", stored, stored, lse, asked, requests, [](const Cell& c) { return c.request; },
       [&p, requests](Cell c, int32_t to) {
         if (to < requests && c.row < p.requests[to].q_len) c.request = to;
         return c;
       }},
      {"row of the request", stored, stored, lse, asked, p.max_q_len(), [](const Cell& c) { return c.row; },
       [&p](Cell c, int32_t to) {
         if (to < p.requests[c.request].q_len) c.row = to;
         return c;
       }},
      {"row of the batch", stored, stored, lse, asked, first.back(),
       [&first](const Cell& c) { return first[c.request] + c.row; },
       [&first](Cell c, int32_t to) { return to < first.back() ? cell_of_row(first, to, c.head) : c; }},
      {"head", "heads.q_swapped", "output.other_head", "lse.other_head", "heads.q_swapped", p.heads_q,
       [](const Cell& c) { return c.head; },
       [&p](Cell c, int32_t to) {
         if (to < p.heads_q) c.head = to;
         return c;
       }}};
}

const char* words_of(What what) {
  return what == What::kQuery    ? "queries"
         : what == What::kResult ? "results"
         : what == What::kOutput ? "O alone"
                                 : "LSE alone";
}

void add(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
         int32_t free, What what, const std::function<Cell(const Cell&)>& map) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  h.free = free;
  if (what == What::kQuery) h.rules.query_of = [map](const Scene& s) { return map(s.cell); };
  if (what == What::kResult) h.rules.result_of = map;
  if (what == What::kOutput) h.rules.o_of = map;
  if (what == What::kLse) h.rules.lse_of = map;
  out.push_back(std::move(h));
}

// Two of those that hold wrong cells.
void pairs(const Clues& clues, const Unit& unit, Hypotheses& out) {
  std::set<int32_t> wrong;
  for (const Sample& s : clues.bad) wrong.insert(unit.number(s.cell));
  if (wrong.size() < 2 || wrong.size() > kMostWrong) return;
  for (const int32_t a : wrong)
    for (const int32_t b : wrong)
      for (const What what : kWhats) {
        if (a >= b) continue;
        add(clues, out, unit.cause(what),
            fmt::format("{} of {}s {} and {} exchanged", words_of(what), unit.name, a, b),
            0.25 + 0.02 * (what != What::kResult), 0, what, [a, b, unit](const Cell& c) {
              const int32_t n = unit.number(c);
              return n == a ? unit.at(c, b) : n == b ? unit.at(c, a) : c;
            });
      }
}

// Whose result stands where, of every unit that holds wrong cells; nothing where one cell's is nowhere.
std::map<int32_t, int32_t> found(const Clues& clues, const Unit& unit, What what) {
  const Evidence& e = clues.evidence;
  const Rules right = clues.predictor.right();
  std::map<int32_t, int32_t> table;
  for (const Sample& s : clues.bad) {
    if (s.call == Call::kLow || (s.call == Call::kFirst && depends_on_memory(e, s.cell))) continue;
    const Target target = target_of(e, s);
    const auto misfit = [&](int32_t n) {
      const Misfit m = misfit_of(target, clues.predictor.predict(right, unit.at(s.cell, n)));
      return what == What::kOutput ? m.o : what == What::kLse ? m.lse : std::max(m.o, m.lse);
    };
    const int32_t own = unit.number(s.cell);
    if (const auto known = table.find(own); known != table.end()) {
      if (misfit(known->second) > kIsThat) return {};
      continue;
    }
    int32_t best = own;
    double least = kIsThat;
    for (int32_t n = 0; n < unit.count; ++n)
      if (const double m = n == own || unit.at(s.cell, n) == s.cell ? kIsThat : misfit(n); m < least)
        least = m, best = n;
    if (best == own) return {};
    table[own] = best;
  }
  return table;
}

void orders(const Clues& clues, const Unit& unit, Hypotheses& out) {
  const double work = work_of_a_cell(clues.problem()) * unit.count * static_cast<double>(clues.bad.size());
  if (unit.count > kMostUnits || work > kMostWork) return;
  for (const What what : {What::kResult, What::kOutput, What::kLse}) {
    if (!clues.wants(unit.cause(what))) continue;
    const std::map<int32_t, int32_t> table = found(clues, unit, what);
    if (table.empty()) continue;
    std::string list;
    for (const auto& [to, from] : table)
      list += fmt::format("{}{} in {}", list.empty() ? "" : ", ", from, to);
    add(clues, out, unit.cause(what),
        fmt::format("{} of another {} (found: {})", words_of(what), unit.name, list), kFoundCost,
        static_cast<int32_t>(table.size()), what, [table, unit](const Cell& c) {
          const auto at = table.find(unit.number(c));
          return at == table.end() ? c : unit.at(c, at->second);
        });
  }
}

}  // namespace

void exchanges(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  for (const Unit& unit : units(clues)) {
    if (unit.count < 2) continue;
    pairs(clues, unit, out);
    orders(clues, unit, out);
  }
  // The same row of another request by every rule that requests are mixed up by.
  const Unit requests = units(clues)[0];
  for (const IndexMap& map : request_maps(p))
    for (const What what : kWhats)
      add(clues, out, requests.cause(what), fmt::format("{} of the same row of {}", words_of(what), map.name),
          0.25 + map.cost, 0, what,
          [requests, of = map.of](const Cell& c) { return requests.at(c, of(c.request)); });
}

}  // namespace assay
