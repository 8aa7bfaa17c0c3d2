// SPDX-License-Identifier: Apache-2.0
// Parts of a case that one mistake may be confined to (samples.hpp): those with a name, blocks of rows of any
// size, and all that lies on one side of a number, which is read off the wrong cells.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "harness/explain/samples.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr double kFarFetchedScope = 0.4;
constexpr double kUnusualBlock = 0.2;  // more that a block of rows costs whose size is no power of two
constexpr double kBySide = 0.2;        // ... and all that lies on one side of a number
constexpr int32_t kLargestBlock = 16;  // of every size up to here

int32_t packed_row(const Problem& p, const Cell& c) { return c.row * p.group() + c.head % p.group(); }

// What a block of `size` rows singles out: rows of a request, or its (row, head of the group) pairs.
void blocks_of(int32_t size, bool packed, double cost, std::vector<Scope>& to) {
  struct At {
    int32_t place, of;  // in the block, of so many
  };
  const auto at = [size, packed](const Problem& p, const Cell& c) {
    const int32_t n = packed ? packed_row(p, c) : c.row, rows = p.requests[c.request].q_len;
    const int32_t end = packed ? rows * p.group() : rows, first = n / size * size;
    return At{n - first, std::min(size, end - first)};
  };
  const std::string unit = packed ? "rows and heads" : "rows";
  const auto add = [&](std::string words, double more, auto holds) {
    to.push_back({{std::move(words)},
                  [at, holds](const Problem& p, const Cell& c) { return holds(at(p, c)); },
                  cost + more});
  };
  add(fmt::format("the last of every {} {}", size, unit), 0, [](const At& a) { return a.place == a.of - 1; });
  add(fmt::format("all but the first of every {} {}", size, unit), 0,
      [](const At& a) { return a.place > 0; });
  add(fmt::format("all but the last of every {} {}", size, unit), 0.05,
      [](const At& a) { return a.place < a.of - 1; });
  add(fmt::format("the first of every {} {}", size, unit), 0, [](const At& a) { return a.place == 0; });
  add(fmt::format("odd ones of every {} {}", size, unit), 0.1, [](const At& a) { return a.place % 2 == 1; });
  add(fmt::format("the last of every whole {} {}", size, unit), 0.05,
      [size](const At& a) { return a.of == size && a.place == size - 1; });
  add(fmt::format("the last one where fewer than {} {} are left", size, unit), 0.05,
      [size](const At& a) { return a.of < size && a.place == a.of - 1; });
  add(fmt::format("the last {}, fewer than {}", unit, size), 0.05,
      [size](const At& a) { return a.of < size; });
  for (bool upper : {true, false})
    if (size > 4 && size % 2 == 0)
      add(fmt::format("the {} half of every {} {}", upper ? "second" : "first", size, unit), kFarFetchedScope,
          [size, upper](const At& a) { return (a.place >= size / 2) == upper; });
}

// Numbers of a cell by which a kernel may take another way.
struct Number {
  const char *at_least, *at_most;
  int32_t (*of)(const Problem&, const Cell&);
};
int32_t stands_at(const Problem& p, const Cell& c) {
  return p.requests[c.request].kv_len - p.requests[c.request].q_len + c.row;
}
int32_t keys_seen(const Problem& p, const Cell& c) {
  const KeyRange range = visible_range(p, c.request, c.row);
  return static_cast<int32_t>(std::max<int64_t>(0, range.end - range.begin));
}
constexpr Number kNumbers[] = {
    {"requests of at least {} keys", "requests of at most {} keys",
     [](const Problem& p, const Cell& c) { return p.requests[c.request].kv_len; }},
    {"requests of at least {} rows", "requests of at most {} rows",
     [](const Problem& p, const Cell& c) { return p.requests[c.request].q_len; }},
    {"requests with at least {} keys before their rows", "requests with at most {} keys before their rows",
     [](const Problem& p, const Cell& c) {
       return p.requests[c.request].kv_len - p.requests[c.request].q_len;
     }},
    {"requests from number {} on", "requests up to number {}",
     [](const Problem&, const Cell& c) { return c.request; }},
    {"rows from {} on", "rows up to number {}", [](const Problem&, const Cell& c) { return c.row; }},
    {"rows with at least {} behind them", "the last rows, with at most {} behind them",
     [](const Problem& p, const Cell& c) { return p.requests[c.request].q_len - 1 - c.row; }},
    {"rows at position {} or behind", "rows at position {} or before it", stands_at},
    {"rows that see at least {} keys", "rows that see at most {} keys", keys_seen},
    {"rows and heads from {} on", "rows and heads up to number {}", packed_row},
    {"heads from {} on", "heads up to number {}", [](const Problem&, const Cell& c) { return c.head; }},
    {"heads from number {} of their group on", "heads up to number {} of their group",
     [](const Problem& p, const Cell& c) { return c.head % p.group(); }},
    {"KV heads from {} on", "KV heads up to number {}",
     [](const Problem& p, const Cell& c) { return c.head / p.group(); }},
};

// The sides on which the wrong cells lie, as far as right ones lie on the other.
void sides_of(const Problem& p, const std::vector<Judged>& judged, std::vector<Scope>& to) {
  for (const Number& number : kNumbers) {
    int32_t low = 0, high = 0;
    bool any = false;
    for (const Judged& j : judged) {
      if (!j.bad) continue;
      const int32_t n = number.of(p, j.cell);
      low = any ? std::min(low, n) : n, high = any ? std::max(high, n) : n;
      any = true;
    }
    if (!any) return;
    // What the nearest cells on the other side have.
    int32_t below = std::numeric_limits<int32_t>::min(), above = std::numeric_limits<int32_t>::max();
    for (const Judged& j : judged) {
      const int32_t n = number.of(p, j.cell);
      if (n < low) below = std::max(below, n + 1);
      if (n > high) above = std::min(above, n - 1);
    }
    to.push_back({{fmt::format(fmt::runtime(number.at_least), low), number.at_least, below, low},
                  [of = number.of, low](const Problem& q, const Cell& c) { return of(q, c) >= low; },
                  kBySide});
    to.push_back({{fmt::format(fmt::runtime(number.at_most), high), number.at_most, high, above},
                  [of = number.of, high](const Problem& q, const Cell& c) { return of(q, c) <= high; },
                  kBySide});
  }
}

// Lengths that fill what they are divided into, or do not.
void remainders_of(const Problem& p, std::vector<Scope>& to) {
  std::set<int32_t> sizes = {2, 4, 8, 16, 32, 64, 128};
  if (op_of(p).has_cache && p.page_size > 1) sizes.insert(p.page_size);
  for (const int32_t size : sizes)
    for (const bool whole : {true, false}) {
      const char* how = whole ? "a multiple of {} keys" : "no multiple of {} keys";
      to.push_back({{"requests of " + fmt::format(fmt::runtime(how), size)},
                    [=](const Problem& q, const Cell& c) {
                      return (q.requests[c.request].kv_len % size == 0) == whole;
                    },
                    kBySide});
      to.push_back({{"rows that stand behind " + fmt::format(fmt::runtime(how), size)},
                    [=](const Problem& q, const Cell& c) { return (stands_at(q, c) % size == 0) == whole; },
                    kBySide + 0.1});
    }
}

}  // namespace

std::vector<Scope> all_scopes() {
  using P = const Problem&;
  using C = const Cell&;
  const auto rows = [](P q, C c) { return q.requests[c.request].q_len; };
  std::vector<Scope> all = {
      {{"the last request"},
       [](P q, C c) { return c.request + 1 == static_cast<int32_t>(q.requests.size()); }},
      {{"the first request"}, [](P, C c) { return c.request == 0; }},
      {{"all requests but the first"}, [](P, C c) { return c.request > 0; }},
      {{"requests of odd number"}, [](P, C c) { return c.request % 2 == 1; }},
      {{"requests of even number"}, [](P, C c) { return c.request % 2 == 0; }},
      {{"requests with one row"}, [=](P q, C c) { return rows(q, c) == 1; }},
      {{"requests with several rows"}, [=](P q, C c) { return rows(q, c) > 1; }},
      {{"the first row of each request"}, [](P, C c) { return c.row == 0; }},
      {{"all rows but the first"}, [](P, C c) { return c.row > 0; }},
      {{"the last row of each request"}, [=](P q, C c) { return c.row == rows(q, c) - 1; }},
      {{"rows of odd number"}, [](P, C c) { return c.row % 2 == 1; }},
      {{"rows of even number"}, [](P, C c) { return c.row % 2 == 0; }},
      {{"heads of odd number"}, [](P, C c) { return c.head % 2 == 1; }},
      {{"heads of even number"}, [](P, C c) { return c.head % 2 == 0; }},
      {{"head 0"}, [](P, C c) { return c.head == 0; }},
      {{"all heads but head 0"}, [](P, C c) { return c.head > 0; }},
      {{"the last head"}, [](P q, C c) { return c.head == q.heads_q - 1; }},
      {{"the upper half of the heads"}, [](P q, C c) { return c.head >= q.heads_q / 2; }},
      {{"the lower half of the heads"}, [](P q, C c) { return c.head < q.heads_q / 2; }},
      {{"the first head of each group"}, [](P q, C c) { return c.head % q.group() == 0; }},
      {{"all heads but the first of each group"}, [](P q, C c) { return c.head % q.group() > 0; }},
      {{"the last head of each group"}, [](P q, C c) { return c.head % q.group() == q.group() - 1; }},
      {{"the first KV head"}, [](P q, C c) { return c.head / q.group() == 0; }},
      {{"the last KV head"}, [](P q, C c) { return c.head / q.group() == q.heads_kv - 1; }},
  };
  // Blocks of (row, head of the group) pairs.
  for (int32_t size : {4, 8, 16, 32, 64}) {
    const auto at = [size](P q, C c) { return (c.row * q.group() + c.head % q.group()) % size; };
    all.push_back({{fmt::format("the last of every {} rows and heads", size)}, [=](P q, C c) {
                     const bool end = c.row == rows(q, c) - 1 && c.head % q.group() == q.group() - 1;
                     return end || at(q, c) == size - 1;
                   }});
    if (size > 4)
      for (bool upper : {true, false})
        all.push_back(
            {{fmt::format("the {} half of every {} rows and heads", upper ? "second" : "first", size)},
             [=](P q, C c) { return (at(q, c) >= size / 2) == upper; },
             kFarFetchedScope});
    all.push_back({{fmt::format("all but the first of every {} rows and heads", size)},
                   [=](P q, C c) { return at(q, c) > 0; }});
  }
  all.push_back({{"odd ones of rows and heads"},
                 [](P q, C c) { return (c.row * q.group() + c.head % q.group()) % 2 == 1; }});
  for (int32_t tile : {16, 32, 64, 128}) {
    all.push_back({{fmt::format("rows from {} on", tile)}, [=](P, C c) { return c.row >= tile; }});
    all.push_back({{fmt::format("the last, partly filled {} rows of a request", tile)},
                   [=](P q, C c) { return c.row >= rows(q, c) / tile * tile; }});
  }
  return all;
}

// Of any use on this case or not, the plainest first.
static std::vector<Scope> candidates(const Problem& p, const std::vector<Judged>& judged) {
  std::vector<Scope> all = all_scopes();
  const int32_t rows = p.max_q_len(), pairs = rows * p.group();
  for (int32_t size = 2; size <= 256; size = size < kLargestBlock ? size + 1 : size * 3 / 2) {
    const bool usual = (size & (size - 1)) == 0;
    if (size < rows) blocks_of(size, false, usual ? 0.05 : kUnusualBlock, all);
    if (p.group() > 1 && size < pairs) blocks_of(size, true, usual ? 0.05 : kUnusualBlock, all);
  }
  for (const int32_t size : {32, 64, 128, 48, 96}) {
    if (size < rows) blocks_of(size, false, 0.05, all);
    if (p.group() > 1 && size < pairs) blocks_of(size, true, 0.05, all);
  }
  remainders_of(p, all);
  sides_of(p, judged, all);
  std::stable_sort(all.begin(), all.end(), [](const Scope& a, const Scope& b) { return a.cost < b.cost; });
  return all;
}

static bool holds_all_wrong(const Problem& p, const std::vector<Judged>& judged, const Scope& s) {
  return std::all_of(judged.begin(), judged.end(),
                     [&](const Judged& j) { return !j.bad || s.holds(p, j.cell); });
}

std::vector<Scope> scopes_of(const Problem& p, const std::vector<Judged>& judged) {
  std::vector<Scope> list;
  // Of several that single out the same cells the plainest.
  std::map<std::vector<bool>, size_t> known;
  for (Scope& s : candidates(p, judged)) {
    if (!holds_all_wrong(p, judged, s)) continue;
    std::vector<bool> cells;
    bool keep = false;
    for (const Judged& j : judged) {
      cells.push_back(s.holds(p, j.cell));
      keep = keep || (!j.bad && !cells.back());
    }
    if (!keep) continue;
    const auto [at, fresh] = known.try_emplace(std::move(cells), list.size());
    if (fresh)
      list.push_back(std::move(s));
    else
      list[at->second].same.push_back(std::move(s.name));
  }
  return list;
}

std::vector<PartName> parts_around(const Problem& p, const std::vector<Judged>& judged) {
  std::vector<PartName> names;
  for (Scope& s : candidates(p, judged))
    if (holds_all_wrong(p, judged, s)) names.push_back(std::move(s.name));
  return names;
}

std::vector<Scope> scopes_named(const Problem& p, const std::vector<Judged>& judged,
                                const std::vector<PartName>& names) {
  std::vector<Scope> list = candidates(p, judged);
  std::erase_if(list, [&](const Scope& s) {
    return std::none_of(names.begin(), names.end(), [&](const PartName& n) { return n.may_be(s.name); }) ||
           !holds_all_wrong(p, judged, s);
  });
  return list;
}

}  // namespace assay
