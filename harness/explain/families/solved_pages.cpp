// SPDX-License-Identifier: Apache-2.0
// Addresses of keys that are computed wrongly by a number no list holds. Where they lead into memory that no
// key occupies, what lies there is read as the kernel reads it.
#include <algorithm>

#include "harness/explain/families/fit.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

enum class Side { kBoth, kKeys, kValues };
constexpr Side kSides[] = {Side::kBoth, Side::kKeys, Side::kValues};
const char* of_side(Side s) { return s == Side::kBoth ? "" : s == Side::kKeys ? ", K alone" : ", V alone"; }

// Row of the store where `position` of the request is read.
using Source = std::function<int32_t(Scene&, int32_t position)>;

Edit read_from(Side side, Source source) {
  return [side, source = std::move(source)](Scene& s, std::vector<Term>& terms) {
    for (Term& t : terms) {
      if (t.position < 0 || t.position >= s.kv_len) continue;
      // Where an earlier mistake took the key from, if that is a key of the request.
      const auto from = [&](int32_t row) { return source(s, row >= 0 && row < s.kv_len ? row : t.position); };
      const bool one = t.k_row == t.v_row;
      if (side != Side::kValues) t.k_row = from(t.k_row);
      if (side != Side::kKeys) t.v_row = one && side == Side::kBoth ? t.k_row : from(t.v_row);
    }
  };
}

struct Pages {  // which of them
  const char* words;
  bool (*hold)(int32_t page, int32_t of);
  double cost;
};
constexpr Pages kPages[] = {
    {"every page", [](int32_t, int32_t) { return true; }, 0},
    {"pages of odd number", [](int32_t p, int32_t) { return p % 2 == 1; }, 0.1},
    {"pages of even number", [](int32_t p, int32_t) { return p % 2 == 0; }, 0.15},
    {"all pages but the first", [](int32_t p, int32_t) { return p > 0; }, 0.1},
    {"the first page", [](int32_t p, int32_t) { return p == 0; }, 0.15},
    {"the last page", [](int32_t p, int32_t of) { return p == of - 1; }, 0.15},
    {"all pages but the last", [](int32_t p, int32_t of) { return p < of - 1; }, 0.15},
};

class Addresses {
 public:
  Addresses(const Clues& clues, Hypotheses& out)
      : clues_(clues), out_(out), fit_(clues), size_(std::max(1, clues.problem().page_size)) {}
  int32_t size() const { return size_; }
  using SourceOf = std::function<Source(int32_t n)>;
  void rule(std::string_view cause, const char* text, const std::string& behind, double cost, int32_t low,
            int32_t high, const SourceOf& of) {
    for (const Side side : kSides) {
      if (!clues_.wants(cause) && !(side == Side::kValues && clues_.wants("page.v_only"))) continue;
      const auto set = [&](Rules& r, int32_t n) { r.edit_terms = read_from(side, of(n)); };
      auto found = fit_.whole(low, high, set);
      if (!found) continue;
      Hypothesis h = propose(clues_, side == Side::kValues && cause == "page.wrong" ? "page.v_only" : cause,
                             fmt::format(fmt::runtime(text), *found) + behind + of_side(side),
                             cost + 0.05 * (side != Side::kBoth));
      h.free = 1;
      set(h.rules, *found);
      out_.push_back(std::move(h));
    }
  }

 private:
  const Clues& clues_;
  Hypotheses& out_;
  Fit fit_;
  int32_t size_;
};

void places(const Clues& clues, Addresses& add) {
  const Problem& p = clues.problem();
  const int32_t size = add.size(), longest = p.max_kv_len(), pages = (longest + size - 1) / size;
  const auto of = [size](const Scene& s) { return (s.kv_len + size - 1) / size; };
  // The slot of another page or place of the request's own list.
  add.rule("page.wrong", "pages taken to hold {} keys", "", 0.3, 1, 4 * size, [size](int32_t n) -> Source {
    return [=](Scene& s, int32_t j) { return n == size ? j : s.keys.through_table(j / n, j % n % size); };
  });
  add.rule("page.wrong", "slot is the key's number and {} (bit by bit)", "", 0.35, 1, 2 * size,
           [size](int32_t n) -> Source {
             return [=](Scene& s, int32_t j) { return s.keys.through_table(j / size, (j & n) % size); };
           });
  add.rule("page.wrong", "number of the page modulo {}", "", 0.4, 1, pages, [size](int32_t n) -> Source {
    return [=](Scene& s, int32_t j) { return own_row(s, j / size % n * size + j % size); };
  });
  add.rule("page.wrong", "pages from number {} on", " from the one before it", 0.5, 1, pages,
           [size](int32_t n) -> Source {
             return
                 [=](Scene& s, int32_t j) { return own_row(s, std::min(j / size, n - 1) * size + j % size); };
           });
  // Only where the request has such a page, has it whole, or wherever the table leads.
  enum Bound { kHeld, kWhole, kTable, kFromWhole };
  for (const Bound bound : {kHeld, kWhole, kTable, kFromWhole}) {
    const char* behind[] = {"", ", whole ones alone", ", whatever the table says there",
                            ", where the other one is whole"};
    add.rule("page.swapped", "pages of numbers that differ by {} (bit by bit) exchanged", behind[bound],
             0.35 + 0.05 * (bound > 0), 1, 63, [=](int32_t n) -> Source {
               return [=](Scene& s, int32_t j) {
                 const int32_t page = j / size, other = page ^ n, slot = j % size;
                 if (bound == kTable) return s.keys.through_table(other, slot);
                 const int32_t end = bound == kHeld ? of(s) : s.kv_len / size;
                 const int32_t held = bound == kFromWhole ? other : std::max(other, page);
                 return own_row(s, (held < end ? other : page) * size + slot);
               };
             });
    if (bound == kFromWhole) continue;
    add.rule("page.wrong", "the page {} behind, round the request", behind[bound], 0.4 + 0.05 * (bound > 0),
             1, pages - 1, [=](int32_t n) -> Source {
               return [=](Scene& s, int32_t j) {
                 const int32_t end = bound == kWhole ? s.kv_len / size : of(s), page = j / size;
                 if (bound == kTable)
                   return s.keys.through_table((page + n) % std::max(1, p.max_kv_len() / size), j % size);
                 return own_row(s, (page < end ? (page + n) % end : page) * size + j % size);
               };
             });
  }
  add.rule("page.swapped", "pages in reverse from number {} on", "", 0.4, 0, pages, [=](int32_t n) -> Source {
    return [=](Scene& s, int32_t j) {
      const int32_t page = j / size;
      return own_row(s, (page < n ? page : of(s) - 1 - (page - n)) * size + j % size);
    };
  });
  add.rule(
      "keys.shifted", "slots of a page rotated by {}", "", 0.4, 1, size - 1, [size](int32_t n) -> Source {
        return [=](Scene& s, int32_t j) { return s.keys.through_table(j / size, (j % size + n) % size); };
      });
  add.rule("keys.shifted", "slots of a page in reverse in groups of {}", "", 0.4, 2, size,
           [size](int32_t n) -> Source {
             return [=](Scene& s, int32_t j) {
               const int32_t slot = j % size, start = slot / n * n, end = std::min(size, start + n);
               return s.keys.through_table(j / size, start + end - 1 - slot);
             };
           });
  add.rule("keys.shifted", "slots of a page in reverse in groups of {}", ", as far as there are keys", 0.35,
           2, size, [size](int32_t n) -> Source {
             return [=](Scene& s, int32_t j) {
               const int32_t slot = j % size, start = slot / n * n, page = j / size * size;
               const int32_t end = std::min({size, start + n, s.kv_len - page});
               return own_row(s, page + start + end - 1 - slot);
             };
           });
  add.rule("keys.shifted", "slots of a page taken as {} rows, read by columns", "", 0.4, 2, size / 2,
           [size](int32_t n) -> Source {
             return [=](Scene& s, int32_t j) {
               const int32_t slot = j % size, wide = size / n;
               return s.keys.through_table(j / size, slot < n * wide ? slot % n * wide + slot / n : slot);
             };
           });
  add.rule("keys.shifted", "slots exchanged by {} (bit by bit)", "", 0.4, 1, size - 1,
           [size](int32_t n) -> Source {
             return
                 [=](Scene& s, int32_t j) { return s.keys.through_table(j / size, (j % size ^ n) % size); };
           });
  add.rule("page.wrong", "tiles of {} keys begin at the first slot of a page", "", 0.35, 2, 160,
           [size](int32_t n) -> Source {
             return [=](Scene& s, int32_t j) {
               const int32_t from = j / n * n / size * size + j % n;
               return from < s.kv_len ? from : j;
             };
           });
  // One look at the table for a run of keys: what lies behind the first one's slot, over the end of its page.
  if (p.table != ASSAY_TABLE_TOKEN)
    add.rule("page.wrong", "the table is read for every {}th key, the rest behind it in memory", "", 0.3, 2,
             4 * size, [size](int32_t n) -> Source {
               return [=](Scene& s, int32_t j) {
                 int64_t block = -1, at = 0;
                 if (!s.keys.place(s.keys.request(), j / n * n, &block, &at)) return own_row(s, j);
                 const int64_t flat = block * size + at + j % n;
                 return s.keys.extra(flat / size % s.keys.blocks(), flat % size);
               };
             });
  // A page that was fetched before serves all whose block has the same low part of its number.
  if (p.table != ASSAY_TABLE_TOKEN)
    add.rule("page.wrong", "a page whose block has the same number modulo {} as an earlier one's is that one",
             "", 0.4, 2, 128, [size](int32_t n) -> Source {
               return [=](Scene& s, int32_t j) {
                 int64_t block = -1, at = 0, earlier = -1;
                 if (!s.keys.place(s.keys.request(), j, &block, &at)) return own_row(s, j);
                 for (int32_t page = 0; page < j / size; ++page)
                   if (s.keys.place(s.keys.request(), page * size, &earlier, &at) && earlier % n == block % n)
                     return own_row(s, page * size + j % size);
                 return j;
               };
             });
  if (p.table == ASSAY_TABLE_TOKEN) {
    const auto whole_pages = [size](const Addresses::SourceOf& of) -> Addresses::SourceOf {
      return [=](int32_t n) -> Source {
        return [=, source = of(n)](Scene& s, int32_t j) {
          return j < s.kv_len / size * size ? source(s, j) : j;
        };
      };
    };
    const auto run_of = [size](int32_t n, bool aligned) -> Source {
      return [=](Scene& s, int32_t j) {
        int64_t block = -1, at = 0;
        if (!s.keys.place(s.keys.request(), j / n * n, &block, &at)) return own_row(s, j);
        const int64_t start = block * size + at, flat = (aligned ? start / n * n : start) + j % n;
        return s.keys.extra(flat / size % s.keys.blocks(), flat % size);
      };
    };
    const auto entries = [&](const std::string& behind, const Addresses::SourceOf& of) {
      const char* text = "an entry of the token table for every {} keys";
      add.rule("page.wrong", text, behind, 0.3, 2, 128, of);
      add.rule("page.wrong", text, behind + ", of whole pages alone", 0.35, 2, 128, whole_pages(of));
    };
    entries(", the rest behind it", [=](int32_t n) { return run_of(n, false); });
    entries(", in order in their places", [=](int32_t n) { return run_of(n, true); });
    for (bool from_entry : {true, false})
      entries(from_entry ? ", the rest behind it, round its page" : ", the rest by their slot in its page",
              [=](int32_t n) -> Source {
                return [=](Scene& s, int32_t j) {
                  int64_t block = -1, at = 0;
                  if (!s.keys.place(s.keys.request(), j / n * n, &block, &at)) return own_row(s, j);
                  return s.keys.extra(block, from_entry ? (at + j % n) % size : j % size);
                };
              });
    return;
  }
  for (const Pages& some : kPages) {
    const std::string behind = fmt::format(", {}", some.words);
    // The block in another column of the table, what lies behind the request's entries included.
    const auto column = [=, hold = some.hold](int32_t n) -> Source {
      return [=](Scene& s, int32_t j) {
        const int32_t page = j / size;
        return hold(page, of(s)) ? s.keys.through_table(page + n, j % size) : j;
      };
    };
    add.rule("page.wrong", "table indexed {:+} entries on", behind, 0.35 + some.cost, -8, 8, column);
    const auto block =
        [=, hold = some.hold](const std::function<int64_t(int64_t b, int64_t blocks, int32_t n)>& rule) {
          return [=](int32_t n) -> Source {
            return [=](Scene& s, int32_t j) {
              int64_t b = -1, at = 0;
              if (!hold(j / size, of(s)) || !s.keys.place(s.keys.request(), j, &b, &at)) return j;
              const int64_t blocks = s.keys.blocks();
              return s.keys.extra(std::clamp<int64_t>(rule(b, blocks, n), 0, blocks - 1), at);
            };
          };
        };
    add.rule(
        "page.wrong", "block {:+}, round", behind, 0.4 + some.cost, -16, 16,
        block([](int64_t b, int64_t blocks, int32_t n) { return ((b + n) % blocks + blocks) % blocks; }));
    const bool every = some.words == kPages[0].words;
    if (!every) continue;
    add.rule("page.wrong", "block {:+}, kept inside", behind, 0.45 + some.cost, -16, 16,
             block([](int64_t b, int64_t, int32_t n) { return b + n; }));
    add.rule("page.wrong", "block number modulo {}", behind, 0.45 + some.cost, 1, 512,
             block([](int64_t b, int64_t, int32_t n) { return b % n; }));
    add.rule("page.wrong", "block number and {}, bit by bit", behind, 0.5 + some.cost, 1, 255,
             block([](int64_t b, int64_t, int32_t n) { return b & n; }));
    add.rule("page.wrong", "block number without the bits of {}", behind, 0.5 + some.cost, 1, 127,
             block([](int64_t b, int64_t, int32_t n) { return b & ~int64_t{n}; }));
    add.rule("page.wrong", "block {} for all", behind, 0.5 + some.cost, 0, 255,
             block([](int64_t, int64_t, int32_t n) { return n; }));
  }
}

// Pages of other requests' rows of the table, from some page on or up to it.
void rows(const Clues& clues, Addresses& add) {
  const Problem& p = clues.problem();
  const auto requests = static_cast<int32_t>(p.requests.size());
  if (requests < 2) return;
  const int32_t size = add.size(), pages = (p.max_kv_len() + size - 1) / size;
  if (p.table == ASSAY_TABLE_BLOCK) {
    // Rows of the table begin where rows of another length would.
    const int64_t wide = clues.evidence.operands(false).tensors->block_table.shape[1];
    for (bool packed : {true, false})
      add.rule("page.of_other_request", "rows of the table begin after the request's own pages {:+}",
               packed ? ", rows packed" : "", 0.35, -2, 2, [=](int32_t n) -> Source {
                 return [=](Scene& s, int32_t j) {
                   const int32_t r = s.keys.request();
                   const int64_t flat = int64_t{r} * ((s.kv_len + size - 1) / size + n) + j / size;
                   if (flat < 0) return j;
                   return packed && wide > 0 ? s.keys.through_table_of(static_cast<int32_t>(flat / wide),
                                                                       flat % wide, j % size)
                                             : s.keys.through_table_of(0, flat, j % size);
                 };
               });
    // ... or where all of it before the request was as the request is.
    const int64_t apart = clues.evidence.operands(false).tensors->block_table.stride[0];
    add.rule("page.of_other_request", "rows of the table begin after the request's own pages {:+}",
             ", whatever lies between rows", 0.4, -2, 2, [=](int32_t n) -> Source {
               return [=](Scene& s, int32_t j) {
                 const int64_t flat =
                     int64_t{s.keys.request()} * ((s.kv_len + size - 1) / size + n) + j / size;
                 if (flat < 0 || apart <= 0) return j;
                 return s.keys.through_table_of(static_cast<int32_t>(flat / apart), flat % apart, j % size);
               };
             });
    add.rule("page.of_other_request", "rows of the table taken to be {} long", "", 0.4, 1,
             static_cast<int32_t>(wide) + 8, [=](int32_t n) -> Source {
               return [=](Scene& s, int32_t j) {
                 return s.keys.through_table_of(0, int64_t{s.keys.request()} * n + j / size, j % size);
               };
             });
  }
  struct Other {
    const char* words;
    std::function<int32_t(int32_t)> of;
  };
  const Other others[] = {{"the next request's", [=](int32_t r) { return std::min(r + 1, requests - 1); }},
                          {"the previous request's", [](int32_t r) { return std::max(r - 1, 0); }},
                          {"the first request's", [](int32_t) { return 0; }},
                          {"the last request's", [=](int32_t) { return requests - 1; }}};
  for (const Other& other : others)
    for (bool upto : {false, true})
      for (bool held : {false, true}) {  // only where that row has such a page
        const auto source = [=, row = other.of](int32_t n) -> Source {
          return [=](Scene& s, int32_t j) {
            const int32_t page = j / size, r = row(s.cell.request);
            if ((page < n) != upto || r == s.cell.request) return j;
            if (held && page >= (s.problem.requests[r].kv_len + size - 1) / size) return j;
            if (p.table != ASSAY_TABLE_TOKEN && p.table != ASSAY_TABLE_CSR)
              return s.keys.through_table_of(r, page, j % size);
            int64_t block = -1, at = 0;
            return s.keys.place(r, j, &block, &at) ? s.keys.extra(block, at) : own_row(s, j);
          };
        };
        const std::string behind =
            fmt::format(" through {} table row{}", other.words, held ? ", where it has them" : "");
        if (upto)
          add.rule("page.of_other_request", "pages before number {}", behind, 0.45 + 0.05 * held, 1, pages,
                   source);
        else
          add.rule("page.of_other_request", "pages from number {} on", behind, 0.45 + 0.05 * held, 0, pages,
                   source);
      }
}

// Entries of all requests in one list: where a request's begin is worked out in place of read.
void starts(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const int32_t size = p.page_size;
  if (p.table != ASSAY_TABLE_CSR || p.requests.size() < 2) return;
  const auto pages = [&p, size](int32_t r) { return (p.requests[r].kv_len + size - 1) / size; };
  int32_t most = 0;
  for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r) most = std::max(most, pages(r));
  const std::pair<const char*, std::function<int64_t(int32_t)>> begins[] = {
      {"its number times the first request's pages", [pages](int32_t r) { return int64_t{r} * pages(0); }},
      {"its number times its own pages", [pages](int32_t r) { return int64_t{r} * pages(r); }},
      {"its number times the pages of the longest request", [most](int32_t r) { return int64_t{r} * most; }},
      {"its number times the pages of the request before",
       [pages](int32_t r) { return r > 0 ? int64_t{r} * pages(r - 1) : 0; }},
      {"its number", [](int32_t r) { return int64_t{r}; }},
      {"the beginning", [](int32_t) { return int64_t{0}; }},
  };
  for (const auto& [name, of] : begins)
    propose_edit(clues, out, "page.wrong", fmt::format("entries of a request taken to begin at {}", name),
                 0.25, [of = of, size](Scene& s, std::vector<Term>& terms) {
                   for (Term& t : terms)
                     t.k_row = t.v_row = s.keys.through_table_of(0, of(s.keys.request()) + t.position / size,
                                                                 t.position % size);
                 });
}

}  // namespace

void solved_page_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  if (!op_of(clues.problem()).has_cache || clues.problem().page_size < 1) return;
  starts(clues, out);
  Addresses add(clues, out);
  places(clues, add);
  rows(clues, add);
}

}  // namespace assay
