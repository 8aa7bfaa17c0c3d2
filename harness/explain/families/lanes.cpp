// SPDX-License-Identifier: Apache-2.0
// Hypotheses about some keys of every tile, page or split: left out, counted twice, in the row sum alone, or
// read from another place, on the side of K, of V or both. Sizes and counts are enumerated, not taken from
// what the kernel declares.
#include <algorithm>

#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

// Which keys of a request: a name and a rule of the position.
struct Subset {
  std::string name;
  std::function<bool(int32_t position, int32_t kv_len)> holds;
  double cost;
};

enum class Side { kBoth, kKeys, kValues };
constexpr Side kSides[] = {Side::kBoth, Side::kKeys, Side::kValues};

std::string_view of_side(Side side) {
  return side == Side::kBoth ? "K and V" : side == Side::kKeys ? "K" : "V";
}

std::vector<int32_t> periods(const Clues& clues) {
  std::vector<int32_t> list = {4, 8, 16, 32, 64, 128, 256, 512, 1024};
  const Problem& p = clues.problem();
  if (op_of(p).has_cache && p.page_size > 1) list.push_back(p.page_size);
  list.insert(list.end(), clues.tile_sizes.begin(), clues.tile_sizes.end());
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  std::erase_if(list, [&](int32_t n) { return n >= p.max_kv_len(); });
  return list;
}

std::vector<Subset> subsets(const Clues& clues) {
  std::vector<Subset> list;
  for (int32_t period : periods(clues))
    for (int32_t count : {1, 2, 4, 8, 16, 32}) {
      if (count >= period) break;
      const double cost = 0.45 + 0.05 * (count > 1);
      list.push_back({fmt::format("first {} of every {} keys", count, period),
                      [=](int32_t j, int32_t) { return j % period < count; }, cost});
      list.push_back({fmt::format("first {} of every {} keys but the first ones", count, period),
                      [=](int32_t j, int32_t) { return j >= period && j % period < count; }, cost});
      list.push_back({fmt::format("last {} of every {} keys", count, period),
                      [=](int32_t j, int32_t) { return j % period >= period - count; }, cost});
      list.push_back({fmt::format("last {} of every {} keys but the last ones", count, period),
                      [=](int32_t j, int32_t n) {
                        return j % period >= period - count && j / period < (n - 1) / period;
                      },
                      cost});
    }
  for (int32_t size : periods(clues))
    for (int32_t of : {2, 4}) {
      if (int64_t{size} * of > clues.problem().max_kv_len()) continue;
      for (int32_t which = 0; which < of; ++which)
        list.push_back({fmt::format("every {} run of {} keys, from number {}", of == 2 ? "second" : "fourth",
                                    size, which),
                        [=](int32_t j, int32_t) { return j / size % of == which; }, 0.55});
    }
  for (int32_t which : {0, 1})
    list.push_back({which == 0 ? "keys of even number" : "keys of odd number",
                    [which](int32_t j, int32_t) { return j % 2 == which; }, 0.4});
  return list;
}

void counted_wrongly(const Clues& clues, Hypotheses& out, const Subset& subset) {
  const auto edit = [&](std::string_view cause, std::string_view how, double cost, double Term::*what,
                        double value) {
    propose_edit(clues, out, cause, fmt::format("{} {}", subset.name, how), subset.cost + cost,
                 [holds = subset.holds, what, value](Scene& s, std::vector<Term>& terms) {
                   for (Term& t : terms)
                     if (holds(t.position, s.kv_len)) t.*what = value;
                 });
  };
  edit("keys.one_dropped", "left out", 0, &Term::weight, 0);
  edit("keys.one_doubled", "counted twice", 0, &Term::weight, 2);
  edit("softmax.l_missing_key", "missing from the row sum", 0.05, &Term::in_sum, 0);
  edit("softmax.l_extra_key", "twice in the row sum", 0.05, &Term::in_sum, 2);
  edit("keys.lanes_v_dropped", "not in the output, though in the row sum", 0.05, &Term::in_output, 0);
}

void read_wrongly(const Clues& clues, Hypotheses& out, const Subset& subset, int32_t step) {
  for (Side side : kSides)
    propose_edit(clues, out, "keys.lanes_stale",
                 fmt::format("{} of the {} read {:+} further on", of_side(side), subset.name, step),
                 subset.cost + 0.1 + 0.05 * (step * step != 1),
                 [holds = subset.holds, side, step](Scene& s, std::vector<Term>& terms) {
                   for (Term& t : terms) {
                     const int32_t from = t.position + step;
                     if (from < 0 || from >= s.kv_len || !holds(t.position, s.kv_len)) continue;
                     if (side != Side::kValues) t.k_row = from;
                     if (side != Side::kKeys) t.v_row = from;
                   }
                 });
}

// K or V alone (or both) of another KV head; both is the mapping family's.
void heads_of_one_side(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (p.heads_kv == 1) return;
  for (const auto& [name, cost, map] : kv_head_maps(p))
    for (Side side : {Side::kKeys, Side::kValues})
      propose_edit(clues, out, "heads.one_side", fmt::format("{} alone: {}", of_side(side), name), 0.2 + cost,
                   [map = map, side](Scene& s, std::vector<Term>& terms) {
                     const int32_t head = map(s.cell.head);
                     for (Term& t : terms) {
                       int32_t& row = side == Side::kKeys ? t.k_row : t.v_row;
                       if (s.keys.has(row, row)) row = s.keys.of_head(row, head);
                     }
                   });
}

// Packed keys that begin at another row.
void starts_of_keys(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (op_of(p).has_cache) return;
  const std::vector<int32_t> keys = p.cu_kv();
  const std::vector<int32_t>* rows = &clues.evidence.first_rows;
  const int32_t total = keys.back();
  const auto requests = static_cast<int32_t>(p.requests.size());
  const std::vector<std::pair<std::string, std::function<int32_t(int32_t)>>> starts = {
      {"where the rows of the request start", [rows](int32_t r) { return (*rows)[r]; }},
      {"where the rows of the request start, kept inside",
       [rows, total, &p](int32_t r) { return std::min((*rows)[r], total - p.requests[r].kv_len); }},
      {"at 0 for every request", [](int32_t) { return 0; }},
      {"at the request's number", [](int32_t r) { return r; }},
      {"at multiples of the longest request", [&p](int32_t r) { return r * p.max_kv_len(); }},
      {"one key early", [keys](int32_t r) { return keys[r] - 1; }},
      {"one key late", [keys](int32_t r) { return keys[r] + 1; }},
      {"where the previous request's do", [keys](int32_t r) { return keys[std::max(0, r - 1)]; }},
      {"where the next request's do",
       [keys, requests](int32_t r) { return keys[std::min(r + 1, requests - 1)]; }},
  };
  for (const auto& [name, start] : starts)
    for (Side side : kSides)
      propose_edit(clues, out, "keys.wrong_start",
                   fmt::format("{} of a request start {}", of_side(side), name), 0.2,
                   [start = start, side, total](Scene& s, std::vector<Term>& terms) {
                     const int32_t from = start(s.keys.request());
                     for (Term& t : terms) {
                       const int32_t at = std::clamp(from + t.position, 0, total - 1);
                       const int32_t row = s.keys.extra(at, 0);
                       if (side != Side::kValues) t.k_row = row;
                       if (side != Side::kKeys) t.v_row = row;
                     }
                   });
}

// The page of a key, or its slot, computed wrongly.
void places(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (!op_of(p).has_cache || p.page_size < 1) return;
  const int32_t size = p.page_size;
  using Source = std::function<int32_t(Scene&, int32_t page, int32_t slot)>;
  const auto rule = [&](std::string text, double cost, const Source& source, bool whole_pages = false) {
    for (Side side : kSides)
      propose_edit(clues, out, whole_pages && side == Side::kValues ? "page.v_only" : "page.wrong",
                   fmt::format("{}, {}", text, of_side(side)), cost + 0.05 * (side != Side::kBoth),
                   [source, side, size](Scene& s, std::vector<Term>& terms) {
                     for (Term& t : terms) {
                       const int32_t row = source(s, t.position / size, t.position % size);
                       if (side != Side::kValues) t.k_row = row;
                       if (side != Side::kKeys) t.v_row = row;
                     }
                   });
  };
  for (int32_t step : {1, -1})
    for (int32_t first : {0, 1}) {
      rule(fmt::format("{} slot of every page from the page {}", first == 0 ? "first" : "last",
                       step > 0 ? "after it" : "before it"),
           0.3, [=](Scene& s, int32_t page, int32_t slot) {
             const bool at = first == 0 ? slot == 0 : slot == size - 1;
             const int32_t from = page + (at ? step : 0), pages = (s.kv_len + size - 1) / size;
             return own_row(s, (from < 0 || from >= pages ? page : from) * size + slot);
           });
      if (first == 0)
        rule(
            fmt::format("every page from the page {}", step > 0 ? "after it" : "before it"), 0.3,
            [=](Scene& s, int32_t page, int32_t slot) {
              const int32_t from = page + step, pages = (s.kv_len + size - 1) / size;
              return own_row(s, (from < 0 || from >= pages ? page : from) * size + slot);
            },
            true);
      for (int32_t of : {2, 3, 4, 8})
        for (int32_t which = 0; which < of && first == 0; ++which)
          rule(fmt::format("every page of number {} modulo {} from the page {}", which, of,
                           step > 0 ? "after it" : "before it"),
               0.45, [=](Scene& s, int32_t page, int32_t slot) {
                 const int32_t from = page % of == which ? page + step : page,
                               pages = (s.kv_len + size - 1) / size;
                 return own_row(s, (from < 0 || from >= pages ? page : from) * size + slot);
               });
    }
  for (int32_t other : {1, 2, 4, 8, 16, 32, 64, 128}) {
    if (other < size)
      rule(fmt::format("slot of a page of {} keys", other), 0.2,
           [=](Scene& s, int32_t page, int32_t slot) { return own_row(s, page * size + slot % other); });
    if (other < size)
      rule(fmt::format("slots exchanged by {}", other), 0.35, [=](Scene& s, int32_t page, int32_t slot) {
        return own_row(s, page * size + (slot ^ other) % size);
      });
    if (other != size && p.table == ASSAY_TABLE_TOKEN)  // the entry itself is cut into page and slot
      rule(fmt::format("entry of the token table cut at pages of {}", other), 0.2,
           [=](Scene& s, int32_t page, int32_t slot) {
             int64_t block = -1, at = 0;
             const int32_t position = page * size + slot;
             if (!s.keys.place(s.keys.request(), position, &block, &at)) return own_row(s, position);
             const int64_t flat = block * size + at, inside = flat % other % size;
             return s.keys.extra(flat / other % s.keys.blocks(), inside);
           });
    // One entry of the table for a run of keys; the pages behind it are taken to follow in memory.
    if (other > size)
      for (bool whole : {true, false})
        rule(fmt::format("one entry of the table for {} keys, the rest of them {}", other,
                         whole ? "from the next blocks" : "from the same block"),
             0.3, [=](Scene& s, int32_t page, int32_t slot) {
               const int32_t position = page * size + slot, start = position / other * other;
               int64_t block = -1, at = 0;
               if (!s.keys.place(s.keys.request(), start, &block, &at)) return own_row(s, position);
               if (whole) block = (block + (position - start) / size) % s.keys.blocks();
               return s.keys.extra(block, slot);
             });
  }
  // A table taken for a ring.
  for (int32_t ring = 1; ring <= 16 && ring * size < p.max_kv_len(); ++ring)
    rule(fmt::format("page number modulo {}", ring), 0.4,
         [=](Scene& s, int32_t page, int32_t slot) { return own_row(s, page % ring * size + slot); });
  // Tokens of a run taken to lie one behind the other.
  for (int32_t run : {size, 8, 16, 32, 64})
    for (const bool round : {true, false}) {
      if (p.table != ASSAY_TABLE_TOKEN) continue;
      rule(fmt::format("entry of the token table for {} keys, the rest of them behind it{}", run,
                       round ? "" : ", no further than the last slot"),
           0.2 + 0.02 * !round, [=](Scene& s, int32_t page, int32_t slot) {
             const int32_t position = page * size + slot, start = position / run * run;
             int64_t block = -1, at = 0;
             if (!s.keys.place(s.keys.request(), start, &block, &at)) return own_row(s, position);
             const int64_t flat = block * size + at + position - start, slots = s.keys.blocks() * size;
             const int64_t to = round ? flat % slots : std::min(flat, slots - 1);
             return s.keys.extra(to / size, to % size);
           });
    }
  // Requests from some number on take rows of the table that are taken already.
  const auto requests = static_cast<int32_t>(p.requests.size());
  for (int32_t limit = 2; limit < requests; limit *= 2)
    rule(fmt::format("table row of the request's number modulo {}", limit), 0.3,
         [=](Scene& s, int32_t page, int32_t slot) {
           const int32_t position = page * size + slot, r = s.cell.request % limit;
           int64_t block = -1, at = 0;
           if (r == s.cell.request || !s.keys.place(r, position, &block, &at)) return own_row(s, position);
           return s.keys.extra(block, at);
         });
}

// The last key again in the lanes behind it, up to a whole tile.
void clamped_loads(const Clues& clues, Hypotheses& out) {
  std::vector<int32_t> sizes = periods(clues);
  for (int32_t size : sizes)
    for (bool causal : {false, true})
      propose_edit(clues, out, "keys.tail_unmasked",
                   fmt::format("the last key repeated up to a whole {}{}", size,
                               causal ? "" : ", where the row sees it"),
                   0.3, [size, causal](Scene& s, std::vector<Term>& terms) {
                     if (terms.empty() || s.kv_len % size == 0) return;
                     if (!causal && terms.back().position != s.kv_len - 1) return;
                     const int32_t last = causal ? terms.back().position : s.kv_len - 1;
                     for (Term& t : terms)
                       if (t.position == last) t.weight = 1 + (size - (last + 1) % size) % size;
                   });
}

}  // namespace

void lane_family(const Clues& clues, Hypotheses& out) {
  for (const Subset& subset : subsets(clues)) {
    counted_wrongly(clues, out, subset);
    read_wrongly(clues, out, subset, 1);
    read_wrongly(clues, out, subset, -1);
  }
  // The tile before, left in a buffer that is read too early; the one after, written too early.
  for (int32_t tile : {16, 32, 64, 128}) {
    if (tile >= clues.problem().max_kv_len()) break;
    for (int32_t step : {-tile, tile}) {
      read_wrongly(
          clues, out,
          {fmt::format("keys of every tile of {}", tile), [](int32_t, int32_t) { return true; }, 0.4}, step);
      for (int32_t count : {1, 2, 4, 8, 16, 32}) {
        if (count >= tile) break;
        read_wrongly(clues, out,
                     {fmt::format("first {} of every {} keys", count, tile),
                      [=](int32_t j, int32_t) { return j % tile < count; }, 0.5},
                     step);
        read_wrongly(clues, out,
                     {fmt::format("last {} of every {} keys", count, tile),
                      [=](int32_t j, int32_t) { return j % tile >= tile - count; }, 0.5},
                     step);
      }
    }
  }
  heads_of_one_side(clues, out);
  starts_of_keys(clues, out);
  places(clues, out);
  clamped_loads(clues, out);
}

}  // namespace assay
