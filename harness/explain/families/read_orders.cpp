// SPDX-License-Identifier: Apache-2.0
// See read_orders.hpp.
#include "harness/explain/families/read_orders.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/fit.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/samples.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr size_t kCells = 10;       // whose dimensions are compared
constexpr size_t kFewestCells = 3;  // ... at least: one value is near another one by chance
constexpr double kSameValue = 6;    // in units of noise
constexpr size_t kListed = 16;      // dimensions that are named one by one

// For every dimension of O the one whose right value stands there in all cells; empty: some have none.
std::vector<int32_t> order_seen(const Clues& clues) {
  const Evidence& e = clues.evidence;
  const int32_t n = clues.problem().head_dim_v;
  const Rules right = clues.predictor.right();
  std::vector<std::vector<char>> may(n, std::vector<char>(n, 1));
  size_t cells = 0;
  for (const Sample& s : clues.bad) {
    if (s.call == Call::kLow || depends_on_memory(e, s.cell) || cells == kCells) continue;
    const Target target = target_of(e, s);
    const std::vector<double> o = clues.predictor.predict(right, s.cell).o;
    for (int32_t d = 0; d < n; ++d)
      for (int32_t from = 0; from < n; ++from) {
        const double noise = target.o_noise[d] + target.o_noise[from] + 1e-7 * std::fabs(o[from]);
        const double step =
            std::fabs(o[from]) * std::ldexp(1.0, -8);  // of the format it is stored in, at most
        if (!(std::fabs(target.o[d] - o[from]) <= kSameValue * noise + step)) may[d][from] = 0;
      }
    ++cells;
  }
  if (cells < kFewestCells) return {};
  std::vector<int32_t> order(n);
  for (int32_t d = 0; d < n; ++d) {
    const auto any = std::find(may[d].begin(), may[d].end(), 1);
    if (any == may[d].end()) return {};
    order[d] = may[d][d] ? d : static_cast<int32_t>(any - may[d].begin());
  }
  return order;
}

// The shortest run of dimensions after which the order repeats itself; n: none.
int32_t period_of(const std::vector<int32_t>& order) {
  const auto n = static_cast<int32_t>(order.size());
  for (int32_t period = 2; period < n; ++period) {
    if (n % period != 0) continue;
    bool repeats = true;
    for (int32_t d = 0; d < n && repeats; ++d)
      repeats = order[d] / period == d / period && order[d] % period == order[d % period];
    if (repeats) return period;
  }
  return n;
}

// The sums of one part of a row, whose tiles are rescaled by the factors of another row.
struct PartSums {
  double maximum = -kInf, other_maximum = -kInf, sum = 0;
  std::vector<double> o;
};

// What a row becomes whose output, or output and row sum, is rescaled as that of another cell.
void rescale_as(Predictor& predictor, const Rules& cut, const Scene& s, const Cell& other, bool sum_too,
                std::vector<double>& o, double& lse) {
  // Beside a rule by which it reads others' keys: weights and tiles are those of its own.
  if (s.keys.request() != s.cell.request || s.keys.kv_head() != s.cell.head / s.problem.group()) return;
  const Predictor::Weights own = predictor.weights(s.cell), theirs = predictor.weights(other);
  if (own.positions.empty()) return;
  const PartsOf dealt(cut, s);
  const auto place = [&](int32_t position) { return std::pair(dealt.of(position), dealt.tile(position)); };
  std::map<std::pair<int32_t, int32_t>, double> largest;  // of the other row, by part and tile
  for (size_t i = 0; i < theirs.positions.size(); ++i) {
    const auto [at, fresh] = largest.try_emplace(place(theirs.positions[i]), theirs.scores[i]);
    if (!fresh) at->second = std::max(at->second, theirs.scores[i]);
  }
  std::map<std::pair<int32_t, int32_t>, std::vector<size_t>> tiles;
  for (size_t i = 0; i < own.positions.size(); ++i) tiles[place(own.positions[i])].push_back(i);
  std::map<int32_t, PartSums> parts;
  for (const auto& [at, keys] : tiles) {
    PartSums& part = parts[at.first];
    part.o.resize(o.size(), 0.0);
    double top = part.maximum, other_top = part.other_maximum;
    for (const size_t i : keys) top = std::max(top, own.scores[i]);
    if (const auto seen = largest.find(at); seen != largest.end())
      other_top = std::max(other_top, seen->second);
    const double right = part.maximum == -kInf ? 0 : std::exp(part.maximum - top);
    const double read =
        part.other_maximum == -kInf ? (other_top == -kInf ? 1 : 0) : std::exp(part.other_maximum - other_top);
    part.maximum = top, part.other_maximum = other_top;
    part.sum *= sum_too ? read : right;
    for (double& x : part.o) x *= read;
    for (const size_t i : keys) {
      const double w = std::exp(own.scores[i] - top), *v = s.keys.v(own.positions[i]);
      part.sum += w;
      for (size_t d = 0; d < o.size(); ++d) part.o[d] += w * v[d];
    }
  }
  double top = s.problem.sinks ? predictor.reader().sink(s.cell.head) : -kInf, sum = 0;
  const double sink = top;
  for (const auto& [unused, part] : parts) top = std::max(top, part.maximum);
  std::fill(o.begin(), o.end(), 0.0);
  for (const auto& [unused, part] : parts) {
    const double w = std::exp(part.maximum - top);
    sum += w * part.sum;
    for (size_t d = 0; d < o.size(); ++d) o[d] += w * part.o[d];
  }
  if (sink != -kInf) sum += std::exp(sink - top);
  for (double& x : o) x /= sum;
  lse = top + std::log(sum);
}

}  // namespace

void read_dims(const Clues& clues, Hypotheses& out) {
  if (!clues.wants("dims.v_shifted") || clues.problem().head_dim_v < 2) return;
  const std::vector<int32_t> order = order_seen(clues);
  if (order.empty()) return;
  const int32_t n = clues.problem().head_dim_v, period = period_of(order);
  std::string list;
  size_t moved = 0;
  for (int32_t d = 0; d < period; ++d)
    if (order[d] != d) list += fmt::format("{}{} in {}", moved++ == 0 ? "" : ", ", order[d], d);
  if (moved < 2) return;
  std::string text = period < n ? fmt::format("of every {} dimensions: ", period) : "dimensions: ";
  text += moved <= kListed ? list : "another order (found: " + list + ")";
  Hypothesis h = propose(clues, "dims.v_shifted", std::move(text), period < n ? 0.32 : 0.38);
  h.rules.finish = [order](const Scene&, std::vector<double>& o, double&) {
    const std::vector<double> from = o;
    for (size_t d = 0; d < o.size(); ++d) o[d] = from[order[d]];
  };
  out.push_back(std::move(h));
}

void temperatures(const Clues& clues, Hypotheses& out) {
  if (!clues.wants("scale.softmax")) return;
  const Problem& p = clues.problem();
  using Factor = std::function<double(double)>;
  struct Count {
    const char* name;
    std::function<double(const Scene&)> of;
  };
  const Count counts[] = {
      {"the row's position", [](const Scene& s) { return double(s.position); }},
      {"the keys up to the row's", [](const Scene& s) { return double(s.position + 1); }},
      {"the request's keys", [](const Scene& s) { return double(s.kv_len); }},
  };
  const auto set = [](Rules& r, const std::function<double(const Scene&)>& of, const Factor& factor) {
    r.score = [of, factor](const Scene& scene, const Term&, ScoreParts s) {
      s.scale *= factor(of(scene));
      return standard_score(s);
    };
  };
  const auto add = [&](const Count& count, const std::string& words, double cost, const Factor& factor) {
    Hypothesis h =
        propose(clues, "scale.softmax", fmt::format("scores times {} of {}", words, count.name), cost);
    set(h.rules, count.of, factor);
    out.push_back(std::move(h));
  };
  const Fit fit(clues);
  for (const Count& count : counts) {
    for (int32_t base = 8; base <= 8192 && base <= p.max_kv_len(); base *= 2) {
      for (const double slope : {0.1, 1.0})
        add(count, fmt::format("1 + {:g} log(floor(n / {}) + 1)", slope, base), 0.35,
            [=](double n) { return 1 + slope * std::log(std::floor(n / base) + 1); });
      for (const bool least : {false, true})
        add(count, fmt::format("log(n) / log({}){}", base, least ? ", at least 1" : ""), 0.35, [=](double n) {
          const double f = std::log(std::max(n, 1.0)) / std::log(double(base));
          return least ? std::max(1.0, f) : f;
        });
    }
    add(count, "log(n)", 0.35, [](double n) { return std::log(std::max(n, 1.0)); });
    add(count, "log2(n)", 0.35, [](double n) { return std::log2(std::max(n, 1.0)); });
    add(count, "1 / sqrt(n)", 0.35, [](double n) { return 1 / std::sqrt(std::max(n, 1.0)); });
    const auto power = [](double by) { return [by](double n) { return std::pow(std::max(n, 1.0), by); }; };
    if (const auto by = fit.along(grid_of(-0.6, 0.6, 49), false,
                                  [&](Rules& r, double x) { set(r, count.of, power(x)); })) {
      add(count, fmt::format("n to the power of {:.4g}", *by), kSolvedCost, power(*by));
      out.back().free = 1;
    }
  }
}

std::vector<UnitsOfBlock> blocks_of_units(const Problem& p) {
  std::vector<UnitsOfBlock> list;
  for (const int32_t size : {4, 8, 16, 32, 64, 128})
    for (const bool packed : {false, true}) {
      if (packed && p.group() == 1) continue;
      if (size / 2 < p.max_q_len() * (packed ? p.group() : 1)) list.push_back({size, packed});
    }
  return list;
}

void query_blocks(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  for (const UnitsOfBlock& block : blocks_of_units(p))
    for (const bool last : {true, false}) {
      Hypothesis h =
          propose(clues, "rows.query_of_other_row",
                  fmt::format("{} of {} has the queries of the one before",
                              last ? "a last, incomplete block" : "every block but the first", block.words()),
                  0.25);
      h.rules.query_of = [&p, block, last](const Scene& s) {
        const int32_t number = block.number(p, s.cell), count = block.count(p, s.cell);
        const bool hit = !last || number >= count / block.size * block.size;
        return hit && number >= block.size ? block.at(p, s.cell, number - block.size) : s.cell;
      };
      out.push_back(std::move(h));
    }
}

void rescales_of_others(const Clues& clues, const Layout& tiling, Hypotheses& out) {
  if (!clues.wants("softmax.stale_maximum")) return;
  const Problem& p = clues.problem();
  using Map = std::function<Cell(const Cell&)>;
  std::vector<std::pair<std::string, Map>> maps;
  for (const UnitsOfBlock& block : blocks_of_units(p))
    for (const bool last : {false, true})
      maps.emplace_back(fmt::format("the {} of {}", last ? "last" : "first", block.words()),
                        [&p, block, last](const Cell& c) {
                          const int32_t first = block.number(p, c) / block.size * block.size;
                          const int32_t end = std::min(block.count(p, c), first + block.size);
                          return block.at(p, c, last ? end - 1 : first);
                        });
  // A thread of a matrix instruction holds rows of either half of a block.
  for (const UnitsOfBlock& block : blocks_of_units(p))
    for (const bool second : {true, false})
      maps.emplace_back(
          fmt::format("the {} half of {} as the other one", second ? "second" : "first", block.words()),
          [&p, block, second](const Cell& c) {
            const int32_t own = block.number(p, c), half = block.size / 2;
            if ((own % block.size >= half) != second) return c;
            const int32_t to = second ? own - half : own + half;
            return to < block.count(p, c) ? block.at(p, c, to) : c;
          });
  for (const int32_t step : {-1, 1})
    for (const bool packed : {false, true}) {
      if (packed && p.group() == 1) continue;
      maps.emplace_back(fmt::format("the {} {:+}", packed ? "pair of row and head" : "row", step),
                        [&p, packed, step](const Cell& c) {
                          const UnitsOfBlock unit{1, packed};
                          const int32_t n = std::clamp(unit.number(p, c) + step, 0, unit.count(p, c) - 1);
                          return unit.at(p, c, n);
                        });
    }
  for (const auto& [name, map] : maps)
    for (const bool sum_too : {false, true}) {
      Hypothesis h = propose(
          clues, "softmax.stale_maximum",
          fmt::format("{} rescaled as {}{}", sum_too ? "output and row sum" : "output", name, tiling.words),
          0.25 + 0.05 * sum_too + tiling.cost);
      tiling.apply(h.rules);
      Predictor* predictor = &clues.predictor;
      h.rules.finish = [=, map = map, cut = h.rules](const Scene& s, std::vector<double>& o, double& lse) {
        const Cell other = map(s.cell);
        if (!(other == s.cell)) rescale_as(*predictor, cut, s, other, sum_too, o, lse);
      };
      out.push_back(std::move(h));
    }
}

void transposed_slots(const Clues& clues, Merges& add) {
  if (!clues.wants("merge.without_maxima") && !clues.wants("merge.partial_of_other")) return;
  const Problem& p = clues.problem();
  enum Of { kMaximum, kLse, kOutput, kAll };
  const char* names[] = {"maxima", "LSEs", "outputs", "results"};
  // All rows and heads of the batch in one table for each part.
  const std::vector<int32_t>* first = &clues.evidence.first_rows;
  for (const bool heads_first : {false, true})
    for (const Of of : {kOutput, kLse, kAll}) {
      const auto rows = static_cast<int32_t>(p.total_q());
      if (rows < 2 || p.heads_q < 2) break;
      Hypothesis h = add.start(
          "merge.partial_of_other",
          fmt::format("{} of every part in a table of all rows and heads, written by {} and read by {}",
                      names[of], heads_first ? "heads" : "rows", heads_first ? "rows" : "heads"),
          0.3);
      const Rules base = h.rules;
      Predictor* predictor = &clues.predictor;
      h.rules.edit_parts = [=](const Scene& s, std::vector<SplitPart>& parts) {
        if (count(parts) < 2) return;
        const int32_t row = (*first)[s.cell.request] + s.cell.row, heads = s.problem.heads_q;
        const int32_t flat = heads_first ? row * heads + s.cell.head : s.cell.head * rows + row;
        const Cell other = heads_first ? cell_of_row(*first, flat % rows, flat / rows)
                                       : cell_of_row(*first, flat / heads, flat % heads);
        if (other == s.cell) return;
        const std::vector<SplitPart> theirs = parts_of(*predictor, base, other);
        for (int32_t i = 0; i < count(parts) && i < count(theirs); ++i) {
          if (of != kLse) parts[i].o = theirs[i].o;
          if (of != kOutput) parts[i].lse = theirs[i].lse;
        }
      };
      add.push(std::move(h));
    }
  std::vector<UnitsOfBlock> blocks = blocks_of_units(p);
  if (p.group() > 1) blocks.push_back({p.group(), true});
  for (const UnitsOfBlock& block : blocks)
    for (const bool rows_first : {false, true})
      for (const Of of : {kMaximum, kLse, kOutput, kAll}) {
        Hypothesis h = add.start(
            of == kMaximum ? "merge.without_maxima" : "merge.partial_of_other",
            fmt::format("{} of parts and {}, written by {} and read by {}", names[of], block.words(),
                        rows_first ? "rows" : "parts", rows_first ? "parts" : "rows"),
            0.3 + 0.02 * rows_first);
        const Rules base = h.rules;
        Predictor* predictor = &clues.predictor;
        h.rules.edit_parts = [=, &p](const Scene& s, std::vector<SplitPart>& parts) {
          const int32_t n = count(parts), own = block.number(p, s.cell),
                        first = own / block.size * block.size;
          if (n < 2) return;
          const std::vector<SplitPart> before = parts;
          for (int32_t i = 0; i < n; ++i) {
            const int32_t flat = rows_first ? i * block.size + own - first : (own - first) * n + i;
            const int32_t unit = first + (rows_first ? flat / n : flat % block.size),
                          part = rows_first ? flat % n : flat / block.size % n;
            // What no row has written is taken for empty.
            SplitPart other{std::vector<double>(p.head_dim_v, 0.0), -kInf, 0};
            if (unit == own) {
              other = before[part];
            } else if (unit < block.count(p, s.cell)) {
              const std::vector<SplitPart> theirs = parts_of(*predictor, base, block.at(p, s.cell, unit));
              if (part < count(theirs)) other = theirs[part];
            }
            if (of == kMaximum)
              parts[i].lse =
                  other.maximum == -kInf ? -kInf : other.maximum + before[i].lse - before[i].maximum;
            if (of == kLse || of == kAll) parts[i].lse = other.lse;
            if (of == kOutput || of == kAll) parts[i].o = other.o;
          }
        };
        add.push(std::move(h));
      }
}

}  // namespace assay
