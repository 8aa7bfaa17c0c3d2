// SPDX-License-Identifier: Apache-2.0
// Mistakes put together: which keys are hit, times what becomes of a key that is. No product of them is
// written down anywhere; each is looked at on a wrong cell or two, and those that help are proposed.
#include <algorithm>
#include <set>

#include "harness/explain/families/fit.hpp"
#include "harness/explain/families/read_orders.hpp"
#include "harness/explain/families/term_mistakes.hpp"
#include "harness/explain/samples.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr double kHelpsFirst = 0.85, kHelpsBoth = 0.75;  // shares of the misfit that may be left
constexpr double kBudget = 1e9, kSmallBudget = 2e8;      // keys times dimensions that may be spent

struct Where {
  std::string words;
  std::function<bool(const Scene&, const Term&)> holds;
  double cost;
};

struct What {
  std::string_view cause;
  std::string words;
  std::function<void(Scene&, Term&)> change;
  double cost;
};

std::vector<int32_t> run_sizes(const Clues& clues) {
  std::set<int32_t> sizes = {4, 8, 16, 32, 64, 128};
  sizes.insert(clues.tile_sizes.begin(), clues.tile_sizes.end());
  const Problem& p = clues.problem();
  if (op_of(p).has_cache && p.page_size > 1) sizes.insert(p.page_size);
  std::vector<int32_t> list(sizes.begin(), sizes.end());
  std::erase_if(list, [&](int32_t s) { return s < 2 || s >= p.max_kv_len(); });
  return list;
}

std::vector<Where> wheres(const Clues& clues) {
  std::vector<Where> list;
  const int32_t longest = clues.problem().max_kv_len();
  for (int32_t size : run_sizes(clues)) {
    for (int32_t of : {2, 3, 4, 5, 6, 8})
      for (int32_t which = 0; which < of && (of - 1) * size < longest; ++which)
        list.push_back({fmt::format("keys of every run of {} of number {} modulo {}", size, which, of),
                        [=](const Scene&, const Term& t) { return t.position / size % of == which; },
                        0.4 + 0.02 * of});
    for (int32_t which = 1; which < 4 && which * size < longest; ++which)
      list.push_back({fmt::format("keys of the run of {} of number {}", size, which),
                      [=](const Scene&, const Term& t) { return t.position / size == which; }, 0.5});
    list.push_back({fmt::format("keys of every run of {} but the first", size),
                    [=](const Scene&, const Term& t) { return t.position >= size; }, 0.35});
    list.push_back({fmt::format("keys behind key {}", size),
                    [=](const Scene&, const Term& t) { return t.position > size; }, 0.4});
    list.push_back({fmt::format("keys of the last, not whole run of {}", size),
                    [=](const Scene& s, const Term& t) { return t.position >= s.kv_len / size * size; },
                    0.35});
    list.push_back({fmt::format("keys of every whole run of {}", size),
                    [=](const Scene& s, const Term& t) { return t.position < s.kv_len / size * size; },
                    0.35});
    for (int32_t quarter = 0; quarter < 4 && size >= 8; ++quarter)
      list.push_back({fmt::format("keys of quarter {} of every run of {}", quarter, size),
                      [=](const Scene&, const Term& t) { return t.position % size * 4 / size == quarter; },
                      0.45});
  }
  for (int32_t of : {2, 3, 4, 5, 8})
    for (int32_t which = 0; which < of; ++which) {
      list.push_back({fmt::format("keys of number {} modulo {}", which, of),
                      [=](const Scene&, const Term& t) { return t.position % of == which; }, 0.4});
      list.push_back(
          {fmt::format("keys {} modulo {} before the row", which, of),
           [=](const Scene& s, const Term& t) { return ((s.position - t.position) % of + of) % of == which; },
           0.5});
    }
  for (int32_t before = 0; before <= 4; ++before)
    list.push_back({fmt::format("the key {} before the row", before),
                    [=](const Scene& s, const Term& t) { return s.position - t.position == before; }, 0.4});
  for (int32_t count : {2, 4, 8, 16, 32}) {
    if (count >= longest) break;
    list.push_back({fmt::format("the {} keys up to the row", count),
                    [=](const Scene& s, const Term& t) {
                      return t.position <= s.position && t.position > s.position - count;
                    },
                    0.45});
    list.push_back({fmt::format("the last {} keys of the request", count),
                    [=](const Scene& s, const Term& t) { return t.position >= s.kv_len - count; }, 0.45});
    list.push_back({fmt::format("the first {} keys of the request", count),
                    [=](const Scene&, const Term& t) { return t.position < count; }, 0.45});
  }
  list.push_back({"new tokens",
                  [](const Scene& s, const Term& t) {
                    return t.position >= s.problem.requests[s.cell.request].context_len();
                  },
                  0.35});
  list.push_back({"context",
                  [](const Scene& s, const Term& t) {
                    return t.position < s.problem.requests[s.cell.request].context_len();
                  },
                  0.35});
  return list;
}

// One lane of every run, which is one thread's, or one register's, work.
std::vector<Where> lanes(const Clues& clues) {
  std::vector<Where> list;
  for (int32_t size : run_sizes(clues))
    for (int32_t lane = 0; lane < size && size > 8 && size <= 64; ++lane)
      list.push_back({fmt::format("key {} of every run of {}", lane, size),
                      [=](const Scene&, const Term& t) { return t.position % size == lane; }, 0.45});
  return list;
}

// What becomes of a key by itself.
std::vector<What> mistakes(const Clues& clues) {
  std::vector<What> list;
  for (const TermMistake& m : kTermMistakes)
    list.push_back({m.cause, m.words, [=](Scene&, Term& t) { t.*m.field = m.value; }, 0});
  const auto add = [&](std::string_view cause, const char* words, double cost, void (*change)(Term&)) {
    list.push_back({cause, words, [change](Scene&, Term& t) { change(t); }, cost});
  };
  add("softmax.l_extra_key", "twice in the output, once in the row sum", 0.1,
      [](Term& t) { t.in_output = 2; });
  add("keys.lanes_stale", "zeros in place of K", 0.05, [](Term& t) { t.k_factor = 0; });
  add("keys.lanes_stale", "zeros in place of K and V", 0.05, [](Term& t) { t.zero = true; });
  const Problem& p = clues.problem();
  if (p.head_dim_qk == p.head_dim_v) {
    add("keys.k_for_v", "K in place of V", 0.05, [](Term& t) { t.k_for_v = true; });
    add("keys.k_for_v", "V in place of K", 0.15, [](Term& t) { t.v_for_k = true; });
  }
  return list;
}

// A swizzle of rows of shared memory that one of two sides forgets: so many dimensions times some bits of the
// key's number.
std::vector<What> swizzles_by_key(const Clues& clues) {
  std::vector<What> list;
  const Problem& p = clues.problem();
  for (const int32_t wide : {2, 4, 8, 16, 32, 64})
    for (const int32_t shift : {1, 2, 4, 8})
      for (const int32_t count : {2, 4, 8})
        for (const bool values : {true, false}) {
          if (wide * count > (values ? p.head_dim_v : p.head_dim_qk)) continue;
          list.push_back({values ? "dims.v_shifted" : "dims.qk_order",
                          fmt::format("dimensions of {} exchanged by {} times (key over {} modulo {})",
                                      values ? "V" : "K", wide, shift, count),
                          [=](Scene& s, Term& t) {
                            int32_t& row = values ? t.v_row : t.k_row;
                            const int32_t mask = t.position / shift % count * wide;
                            if (mask != 0 && s.keys.has(row, row))
                              row = s.keys.with_dims_exchanged(row, mask);
                          },
                          0});
        }
  return list;
}

using From = std::function<int32_t(const Scene&, int32_t position)>;

// K, V or both of the key at another position of the request, where there is one.
void read_from(std::vector<What>& list, std::string_view cause, const std::string& words, double cost,
               const From& from) {
  const char* sides[] = {"K and V", "K", "V"};
  for (int side = 0; side < 3; ++side)
    list.push_back({cause, fmt::format("{} of the {}", sides[side], words),
                    [=](Scene& s, Term& t) {
                      const int32_t at = from(s, t.position);
                      if (at < 0 || at >= s.kv_len || t.position < 0 || t.position >= s.kv_len) return;
                      if (side != 2) t.k_row = at;
                      if (side != 1) t.v_row = at;
                    },
                    cost + 0.03 * (side != 0)});
}

std::vector<What> reads(const Clues& clues) {
  std::vector<What> list;
  std::set<int32_t> steps = {1, 2, 4, 8};
  for (int32_t size : run_sizes(clues)) steps.insert(size);
  for (int32_t step : steps)
    for (int sign : {-1, 1})
      read_from(list, "keys.lanes_stale", fmt::format("key {:+} further on", sign * step), 0.1,
                [=](const Scene&, int32_t j) { return j + sign * step; });
  read_from(list, "keys.lanes_stale", "request's first key", 0.15, [](const Scene&, int32_t) { return 0; });
  return list;
}

// Of every run one lane, K, V or both, from another lane of it.
std::vector<std::pair<Where, What>> lanes_of_runs(const Clues& clues) {
  std::vector<std::pair<Where, What>> list;
  struct Lane {
    const char* words;
    int32_t (*of)(int32_t held);
  };
  const Lane lanes[] = {{"first", [](int32_t) { return 0; }},
                        {"second", [](int32_t n) { return std::min(1, n - 1); }},
                        {"one before the last", [](int32_t n) { return std::max(0, n - 2); }},
                        {"last", [](int32_t n) { return n - 1; }}};
  const auto held = [](const Scene& s, int32_t j, int32_t size) {
    return std::min(size, s.kv_len - j / size * size);
  };
  for (int32_t size : run_sizes(clues))
    for (const Lane& to : lanes)
      for (const Lane& from : lanes) {
        if (&to == &from) continue;
        std::vector<What> whats;
        read_from(
            whats, "keys.lanes_stale", fmt::format("{} key", from.words), 0.1,
            [=, of = from.of](const Scene& s, int32_t j) { return j / size * size + of(held(s, j, size)); });
        for (What& what : whats)
          list.push_back({{fmt::format("the {} key of every run of {}, partly filled or not", to.words, size),
                           [=, of = to.of](const Scene& s, const Term& t) {
                             return t.position < s.kv_len &&
                                    t.position % size == of(held(s, t.position, size));
                           },
                           0.4},
                          std::move(what)});
      }
  return list;
}

// A place of an order: `tile` keys at a time, in runs of `size`, of which the last may be cut short.
struct Order {
  std::string words;
  std::function<int32_t(int32_t at, int32_t size)> place;
};
std::vector<Order> orders_within(int32_t size) {
  std::vector<Order> list = {
      {"in reverse order", [](int32_t at, int32_t n) { return n - 1 - at; }},
      {"behind, round,", [](int32_t at, int32_t n) { return (at + 1) % n; }},
      {"before, round,", [](int32_t at, int32_t n) { return (at + n - 1) % n; }},
      {"of half the place", [](int32_t at, int32_t) { return at / 2; }},
      {"that comes first", [](int32_t, int32_t) { return 0; }},
      {"that comes last", [](int32_t, int32_t n) { return n - 1; }},
      {"of the other half", [](int32_t at, int32_t n) { return (at + n / 2) % n; }},
  };
  for (int32_t low = 1; 2 * low < size && size > 4 && (size & (size - 1)) == 0; low *= 2)
    list.push_back({fmt::format("with bits {} and {} of its number exchanged,", low, size / 2),
                    [low, size](int32_t at, int32_t) { return with_bits_exchanged(at, low, size / 2); }});
  for (int32_t rows : {2, 4, 8, 16, 32})
    if (rows < size && size % rows == 0)
      list.push_back({fmt::format("by columns of {}", rows),
                      [rows](int32_t at, int32_t n) { return at % rows * (n / rows) + at / rows; }});
  return list;
}

// All keys in another order within runs: everywhere, in whole runs alone, with zeros where a row does not see
// the key that is read, and in runs that are counted from the start of a tile.
std::vector<What> orders(const Clues& clues) {
  std::vector<What> list;
  const std::vector<int32_t> runs = run_sizes(clues);
  std::set<int32_t> sizes = {2, 4, 8, 16, 32, 64};
  sizes.insert(runs.begin(), runs.end());
  for (int32_t size : sizes)
    for (const Order& order : orders_within(size)) {
      const auto from = [size, place = order.place](int32_t j) {
        const int32_t start = j / size * size;
        return start + place(j - start, size);
      };
      // Where some keys keep their places it is no shift of all.
      int32_t kept = 0;
      for (int32_t at = 0; at < size; ++at) kept += order.place(at, size) == at;
      const std::string_view cause = kept > 1 ? "keys.lanes_stale" : "keys.shifted";
      read_from(list, cause, fmt::format("key {} of every run of {}", order.words, size), 0.3,
                [from](const Scene& s, int32_t j) {
                  const int32_t at = from(j);
                  return at < s.kv_len ? at : j;
                });
      read_from(list, cause, fmt::format("key {} of every whole run of {}", order.words, size), 0.33,
                [from, size](const Scene& s, int32_t j) { return j / size < s.kv_len / size ? from(j) : j; });
      list.push_back({cause,
                      fmt::format("V of the key {} of every run of {}, zeros where the row does not see it",
                                  order.words, size),
                      [from](Scene& s, Term& t) {
                        const int32_t at = from(t.position);
                        if (t.position >= s.kv_len || at == t.position) return;
                        if (at >= s.kv_len) return;
                        t.v_row = at;
                        if (!visible(s.problem, s.cell.request, s.cell.row, at)) t.in_output = 0;
                      },
                      0.35});
      list.push_back(
          {cause,
           fmt::format("V of the key {} of every run of {}, zeros behind the last key", order.words, size),
           [from](Scene& s, Term& t) {
             const int32_t at = from(t.position);
             if (t.position >= s.kv_len || at == t.position) return;
             if (at < s.kv_len)
               t.v_row = at;
             else
               t.in_output = 0;
           },
           0.34});
      for (int32_t tile : runs) {
        if (tile % size == 0 || size >= tile) continue;
        read_from(list, cause,
                  fmt::format("key {} of every run of {} in tiles of {}", order.words, size, tile), 0.35,
                  [from, tile](const Scene& s, int32_t j) {
                    const int32_t start = j / tile * tile, to = from(j - start);
                    return to < std::min(tile, s.kv_len - start) ? start + to : j;
                  });
      }
    }
  return list;
}

class Composer {
 public:
  Composer(const Clues& clues, Hypotheses& out) : clues_(clues), out_(out) {
    const bool large = too_large(clues, kLargeCell);
    budget_ = large ? kSmallBudget : kBudget;
    for (const Sample& s : clues.bad) {
      if (s.call == Call::kLow || depends_on_memory(clues.evidence, s.cell)) continue;
      if (cells_.size() == 1 && s.cell.request == cells_[0].cell.request && s.cell.row == cells_[0].cell.row)
        continue;  // another row tells more
      cells_.push_back(s);
      if (cells_.size() == 2) break;
    }
    for (const Sample& s : cells_) nothing_.push_back(misfit_at(clues, s, clues.predictor.right()));
  }
  void add(const Where& where, const What& what) {
    if (!clues_.wants(what.cause) || cells_.empty() || budget_ < 0) return;
    Rules rules = clues_.predictor.right();
    rules.edit_terms = [holds = where.holds, change = what.change](Scene& s, std::vector<Term>& terms) {
      for (Term& t : terms)
        if (holds(s, t)) change(s, t);
    };
    double left = 0, before = 0;
    for (size_t i = 0; i < cells_.size(); ++i) {
      budget_ -= work_of_a_cell(clues_.problem());
      left += misfit_at(clues_, cells_[i], rules), before += nothing_[i];
      if (left > (i == 0 ? kHelpsFirst : kHelpsBoth) * before) return;
    }
    Hypothesis h =
        propose(clues_, what.cause, fmt::format("{}: {}", where.words, what.words), where.cost + what.cost);
    h.rules.edit_terms = std::move(rules.edit_terms);
    out_.push_back(std::move(h));
  }

 private:
  const Clues& clues_;
  Hypotheses& out_;
  double budget_ = 0;
  std::vector<Sample> cells_;
  std::vector<double> nothing_;
};

}  // namespace

void composed_key_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  Composer composer(clues, out);
  const Where all{"keys", [](const Scene&, const Term&) { return true; }, 0.1};
  for (const What& what : orders(clues)) composer.add(all, what);
  for (const What& what : swizzles_by_key(clues)) composer.add({"keys", all.holds, 0.35}, what);
  for (const auto& [where, what] : lanes_of_runs(clues)) composer.add(where, what);
  const std::vector<Where> some = wheres(clues);
  const std::vector<What> by_itself = mistakes(clues), from_elsewhere = reads(clues);
  for (const Where& where : some)
    for (const What& what : by_itself) composer.add(where, what);
  for (const Where& where : lanes(clues))
    for (const What& what : by_itself) composer.add(where, what);
  for (const Where& where : some)
    for (const What& what : from_elsewhere) composer.add(where, what);
}

}  // namespace assay
