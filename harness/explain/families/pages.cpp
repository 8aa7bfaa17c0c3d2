// SPDX-License-Identifier: Apache-2.0
// Hypotheses about pages of a paged cache, and pages of 16 keys elsewhere: exchanged, replaced, taken from
// another request's row of the table, or fetched a tile too late for the values.
#include <algorithm>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/families/mask_rule.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

constexpr int32_t kPageWithoutPages = 16;

// Which row of the store stands where `page` of the request should be read, slot kept.
using Source = std::function<int32_t(Scene&, int32_t page, int32_t slot)>;
enum class Side { kBoth, kKeys, kValues };

Edit read_through(int32_t page_size, Side side, Source source) {
  return [page_size, side, source = std::move(source)](Scene& s, std::vector<Term>& terms) {
    for (Term& t : terms) {
      // Where an earlier mistake took the key from, if that is a key of the request.
      const auto from = [&](int32_t row) {
        const int32_t at = row >= 0 && row < s.kv_len ? row : t.position;
        return source(s, at / page_size, at % page_size);
      };
      const bool one = t.k_row == t.v_row;
      if (side != Side::kValues) t.k_row = from(t.k_row);
      if (side != Side::kKeys) t.v_row = one && side == Side::kBoth ? t.k_row : from(t.v_row);
    }
  };
}

// Entries of the table, or the slot numbers made of them, kept in fewer bits, with a sign or without.
void numbers_cut(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const int32_t size = p.page_size;
  struct Sign {
    const char* words;
    bool is_signed, round;
  };
  constexpr Sign kSigns[] = {{"", false, false},
                             {" with a sign, none below 0", true, false},
                             {" with a sign, round from the last one", true, true}};
  for (const bool of_slots : {false, true}) {
    if (!of_slots && p.table == ASSAY_TABLE_TOKEN) continue;
    const int64_t count = int64_t{p.num_blocks} * (of_slots ? size : 1);
    for (int bits = 3; bits <= 31 && int64_t{1} << (bits - 1) < count; ++bits)
      for (const Sign& sign : kSigns) {
        if (!sign.is_signed && int64_t{1} << bits >= count) continue;
        const auto cut = [=, is_signed = sign.is_signed, round = sign.round](int64_t n) {
          n &= (int64_t{1} << bits) - 1;
          if (is_signed && n >> (bits - 1) != 0) n -= int64_t{1} << bits;
          return n >= 0 ? n : round ? (n % count + count) % count : 0;
        };
        Hypothesis h =
            propose(clues, "page.wrong",
                    fmt::format("{} number cut to {} bits{}", of_slots ? "slot" : "block", bits, sign.words),
                    0.5 + 0.05 * sign.is_signed + 0.02 * of_slots);
        h.rules.edit_terms = read_through(size, Side::kBoth, [=](Scene& s, int32_t page, int32_t slot) {
          int64_t block = -1, at = 0;
          const int32_t position = page * size + slot;
          if (!s.keys.place(s.cell.request, position, &block, &at)) return own_row(s, position);
          if (!of_slots) return s.keys.extra(cut(block), at);
          const int64_t flat = cut(block * size + at);
          return s.keys.extra(flat / size, flat % size);
        });
        out.push_back(std::move(h));
      }
  }
}

}  // namespace

void page_family(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const bool paged = op_of(p).has_cache;
  const int32_t size = paged ? p.page_size : kPageWithoutPages;
  const auto add = [&](std::string_view cause, std::string text, double cost, Edit edit) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.edit_terms = std::move(edit);
    out.push_back(std::move(h));
  };
  const auto pages_of = [size](const Scene& s) { return (s.kv_len + size - 1) / size; };

  // The entry of the page before, still at hand for the first keys of a tile.
  for (int32_t tile : clues.tile_sizes)
    for (int32_t keys : {1, tile / 2})
      for (Side side : {Side::kBoth, Side::kKeys, Side::kValues}) {
        if (!paged || keys < 1) continue;
        add(side == Side::kValues ? "page.v_only" : "page.wrong",
            fmt::format("{} of the first {} of a tile of {} from the page before",
                        side == Side::kBoth   ? "K and V"
                        : side == Side::kKeys ? "K"
                                              : "V",
                        keys > 1 ? fmt::format("{} keys", keys) : "key", tile),
            0.35, [tile, keys, side, size](Scene&, std::vector<Term>& terms) {
              for (Term& t : terms) {
                if (t.position % tile >= keys || t.position < std::max(tile, size)) continue;
                if (side != Side::kValues) t.k_row = t.position - size;
                if (side != Side::kKeys) t.v_row = t.position - size;
              }
            });
      }
  // The page of the tile before or behind, the key's own slot: an entry of the table that was not moved on.
  // Of tiles of whole pages that is the other tile itself, which keys.lanes_stale says.
  std::vector<Layout> tilings;
  for (int32_t tile : clues.tile_sizes)
    tilings.push_back({tile, 1, 0, {}, fmt::format(", tiles of {}", tile), 0});
  for (const Layout& layout : clues.layouts)
    if (layout.tile_keys > 0 && layout.parts()) tilings.push_back(layout);
  for (const Layout& tiling : tilings)
    for (const int32_t step : {-1, 1})
      for (Side side : {Side::kBoth, Side::kKeys, Side::kValues}) {
        const int32_t tile = tiling.tile_keys;
        if (!paged || tile < 1 || tile % size == 0) continue;
        const char* of = side == Side::kBoth ? "K and V" : side == Side::kKeys ? "K" : "V";
        Hypothesis h = propose(clues, side == Side::kValues ? "page.v_only" : "page.wrong",
                               fmt::format("{} through the page of the tile {}{}", of,
                                           step < 0 ? "before" : "behind", tiling.words),
                               0.3 + tiling.cost);
        if (tiling.parts()) tiling.apply(h.rules);
        const Rules cut = h.rules;
        const bool parts = tiling.parts();
        h.rules.edit_terms = [=](Scene& s, std::vector<Term>& terms) {
          const PartsOf dealt(cut, s);
          for (Term& t : terms) {
            const int32_t from = t.position + step * tile;
            if (from < 0 || from / tile * tile >= s.kv_len) continue;
            if (parts && dealt.of(std::min(from, s.kv_len - 1)) != dealt.of(t.position)) continue;
            const int32_t row = own_row(s, std::min(from, s.kv_len - 1) / size * size + t.position % size);
            if (side != Side::kValues) t.k_row = row;
            if (side != Side::kKeys) t.v_row = row;
          }
        };
        out.push_back(std::move(h));
      }
  // Shifts and masks of a page size that is a power of two.
  for (int32_t other = 4; paged && other <= 2 * size; other *= 2) {
    if (other == size || other * 4 <= size) continue;
    add("page.wrong", fmt::format("pages taken as {} slots, none behind the last one", other), 0.25,
        [size, other](Scene& s, std::vector<Term>& terms) {
          for (Term& t : terms) {
            const int32_t page = std::min(t.position / other, (s.kv_len - 1) / size),
                          slot = t.position % other;
            if (slot < size) t.k_row = t.v_row = own_row(s, page * size + slot);
          }
        });
  }
  // The same where the size is no power of two, as its bits stand.
  if (paged && (size & (size - 1)) != 0)
    add("page.wrong", "slot is the bits that the key's number shares with the page's size less one", 0.2,
        [size](Scene& s, std::vector<Term>& terms) {
          for (Term& t : terms)
            t.k_row = t.v_row = s.keys.through_table(t.position / size, t.position & (size - 1));
        });
  // Slots, or pages and slots, counted from where the key's part begins.
  if (paged)
    for (const Layout& layout : clues.layouts) {
      if (!layout.parts() || layout.cut.interleaved) continue;
      for (const bool pages : {false, true}) {
        Hypothesis h = propose(clues, "page.wrong",
                               fmt::format("{} counted from the first key of its part{}",
                                           pages ? "page and slot" : "slot", layout.words),
                               0.25 + layout.cost);
        layout.apply(h.rules);
        const Rules cut = h.rules;
        h.rules.edit_terms = [=](Scene& s, std::vector<Term>& terms) {
          const PartsOf parts(cut, s);
          for (Term& t : terms) {
            const int32_t from = t.position - parts.start_of(t.position);
            t.k_row = t.v_row = own_row(s, pages ? from : t.position / size * size + from % size);
          }
        };
        out.push_back(std::move(h));
      }
    }
  // What is filled of the last page is taken for what is filled of every one.
  if (paged && size > 1)
    add("page.wrong", "slots of every page no further than the last one filled in the last page", 0.2,
        [size](Scene& s, std::vector<Term>& terms) {
          const int32_t last = (s.kv_len - 1) % size;
          for (Term& t : terms)
            if (t.position / size < (s.kv_len - 1) / size)
              t.k_row = t.v_row = t.position / size * size + std::min(t.position % size, last);
        });

  for (const Pick& pick : picks()) {
    const auto of = pick.of;
    for (Side side : {Side::kBoth, Side::kValues}) {
      const bool values = side == Side::kValues;
      // Page and its successor; the last page has none, so also with its predecessor.
      for (int32_t step : {1, -1}) {
        const Source exchanged = [of, step, size, pages_of](Scene& s, int32_t page, int32_t slot) {
          const int32_t n = pages_of(s), a = of(n), b = a + step;
          if (b < 0 || b >= n) return page * size + slot;
          const int32_t from = page == a ? b : page == b ? a : page;
          return own_row(s, from * size + slot);
        };
        add(values ? "page.v_only" : "page.swapped",
            fmt::format("{} page and the {}{}", pick.name,
                        step > 0 ? "next exchanged" : "one before exchanged", values ? ", values only" : ""),
            0.6, read_through(size, side, exchanged));
        const Source wrong = [of, step, size, pages_of](Scene& s, int32_t page, int32_t slot) {
          const int32_t n = pages_of(s), a = of(n), b = a + step;
          if (page != a || b < 0 || b >= n) return page * size + slot;
          return own_row(s, b * size + slot);
        };
        add(values ? "page.v_only" : "page.wrong",
            fmt::format("{} page read from the {}{}", pick.name, step > 0 ? "next" : "one before",
                        values ? ", values only" : ""),
            0.6, read_through(size, side, wrong));
      }
      for (int32_t target : {0, 1}) {
        const Source wrong = [of, target, size, pages_of](Scene& s, int32_t page, int32_t slot) {
          const int32_t n = pages_of(s), a = of(n);
          int32_t b = target;
          if (a == b) b = target == 0 ? 1 : 0;
          if (page != a || b >= n) return page * size + slot;
          return own_row(s, b * size + slot);
        };
        add(values ? "page.v_only" : "page.wrong",
            fmt::format("{} page read from the {}{}", pick.name, target == 0 ? "first" : "second",
                        values ? ", values only" : ""),
            0.6, read_through(size, side, wrong));
      }
    }
  }
  // One index for a whole tile, or the values a tile behind.
  for (int32_t tile : clues.tile_sizes) {
    if (tile <= size || !paged) continue;
    for (Side side : {Side::kBoth, Side::kValues, Side::kKeys})
      add(side == Side::kValues ? "page.v_only" : "page.wrong",
          fmt::format("one page index for each tile of {}", tile), 0.4,
          read_through(size, side, [size, tile](Scene& s, int32_t page, int32_t slot) {
            const int32_t start = (page * size + slot) / tile * tile;
            return own_row(s, start / size * size + slot);
          }));
  }
  std::vector<int32_t> behind = {size};
  for (int32_t tile : clues.tile_sizes) behind.push_back(tile);
  for (int32_t step : behind) {
    add("page.v_only", fmt::format("values of the page {} keys before", step), 0.4,
        read_through(size, Side::kValues, [size, step](Scene& s, int32_t page, int32_t slot) {
          const int32_t position = page * size + slot, from = position - step;
          if (from < 0) return position;
          return own_row(s, from / size * size + slot);
        }));
    add("page.v_only", fmt::format("values {} keys ahead, where there are keys", step), 0.4,
        read_through(size, Side::kValues, [size, step](Scene& s, int32_t page, int32_t slot) {
          const int32_t position = page * size + slot;
          return position + step < s.kv_len ? position + step : position;
        }));
    add("page.v_only", fmt::format("values of the page {} keys before, the first of the last", step), 0.5,
        read_through(size, Side::kValues, [size, step, pages_of](Scene& s, int32_t page, int32_t slot) {
          const int32_t n = pages_of(s), steps = std::max(1, step / size);
          return own_row(s, (page - steps % n + n) % n * size + slot);
        }));
  }
  if (!paged) return;
  // Another request's row of the table.
  const auto requests = static_cast<int32_t>(p.requests.size());
  enum class Round { kNot, kWhole, kAll };
  const auto row_of = [size](std::function<int32_t(int32_t)> other, Round round = Round::kNot) {
    return [size, other = std::move(other), round](Scene& s, int32_t page, int32_t slot) {
      const int32_t r = other(s.cell.request);
      if (r == s.cell.request) return page * size + slot;
      int64_t block = -1, at = 0;
      // Its row may be shorter: columns go round its pages, whole ones or all.
      const int32_t keys = s.problem.requests[r].kv_len;
      const int32_t pages = round == Round::kWhole ? keys / size : (keys + size - 1) / size;
      if (round != Round::kNot && pages > 0) page %= pages;
      // Scales that belong to the request stay this one's: only the place is wrong.
      if (!s.keys.place(r, page * size + slot, &block, &at)) return own_row(s, page * size + slot);
      return s.keys.extra(block, at);
    };
  };
  if (requests > 1) {
    const std::vector<std::pair<std::string, std::function<int32_t(int32_t)>>> others = {
        {"next", [requests](int32_t r) { return (r + 1) % requests; }},
        {"next, the last its own", [requests](int32_t r) { return std::min(r + 1, requests - 1); }},
        {"previous", [requests](int32_t r) { return (r + requests - 1) % requests; }},
        {"first", [](int32_t) { return 0; }},
        {"last", [requests](int32_t) { return requests - 1; }},
    };
    for (const IndexMap& map : schedule_maps(p)) {
      add("page.of_other_request", "table row of " + map.name, 0.3,
          read_through(size, Side::kBoth, row_of(map.of)));
      // Its length, its keys: all that is looked up by the number of a request.
      Hypothesis h = propose(clues, "page.of_other_request", "keys and length of " + map.name, 0.3);
      h.rules.kv_request_of = [of = map.of](const Cell& c) { return of(c.request); };
      out.push_back(std::move(h));
    }
    // ... and its rows are taken to stand at the end of those keys.
    // Or behind it or before its rows, as rows that are counted with those of the request they are taken for.
    enum Where { kAtEnd, kBehind, kBefore };
    const char* const words[] = {"at that end", "behind it", "before its rows"};
    for (const IndexMap& map : request_maps(p))
      for (const Where where : {kAtEnd, kBehind, kBefore}) {
        Hypothesis h = propose(clues, "page.of_other_request",
                               fmt::format("keys and length of {}, rows stand {}", map.name, words[where]),
                               0.3 + map.cost + (where == kAtEnd ? 0 : 0.05));
        h.rules.kv_request_of = [of = map.of](const Cell& c) { return of(c.request); };
        const auto end = [where](const Scene& s) {
          const int32_t rows = s.problem.requests[s.cell.request].q_len,
                        theirs = s.problem.requests[s.keys.request()].q_len;
          return s.kv_len - (where == kBehind ? 0 : rows) - (where == kBefore ? theirs : 0) + s.cell.row;
        };
        MaskRule mask = given_mask(p);
        mask.causal_at = mask.window_at = mask.chunk_at = end;
        h.rules.sees = [mask](const Scene& s, int32_t j) { return mask.sees(s, j); };
        h.rules.edit_terms = [end](Scene& s, std::vector<Term>&) { s.position = end(s); };
        out.push_back(std::move(h));
      }
    for (const auto& [name, other] : others) {
      add("page.of_other_request", fmt::format("table row of the {} request", name), 0.3,
          read_through(size, Side::kBoth, row_of(other)));
      for (const Round round : {Round::kWhole, Round::kAll})
        add("page.of_other_request",
            fmt::format("table row of the {} request, round its {}pages", name,
                        round == Round::kWhole ? "whole " : ""),
            0.35, read_through(size, Side::kBoth, row_of(other, round)));
      add("page.of_other_request", fmt::format("last page from the {} request", name), 0.5,
          read_through(size, Side::kBoth,
                       [pages_of, size, inner = row_of(other)](Scene& s, int32_t page, int32_t slot) {
                         return page == pages_of(s) - 1 ? inner(s, page, slot) : page * size + slot;
                       }));
      // The entry behind the request's last one, in place of its last page, where that is partly filled or
      // not.
      for (const bool partly : {true, false})
        for (const bool first_page : {true, false})
          add("page.of_other_request",
              fmt::format("last{} page from the {} of the {} request", partly ? ", partly filled" : "",
                          first_page ? "first" : "last", name),
              0.45 + 0.02 * !partly,
              read_through(size, Side::kBoth,
                           [=, other = other, inner = row_of(other)](Scene& s, int32_t page, int32_t slot) {
                             const int32_t n = pages_of(s), r = other(s.cell.request);
                             const bool hit = n > 1 && page == n - 1 && (!partly || s.kv_len % size != 0);
                             const int32_t last = (s.problem.requests[r].kv_len - 1) / size;
                             return hit ? inner(s, first_page ? 0 : last, slot) : page * size + slot;
                           }));
      // The beginning (a prefix taken for shared) or the rest of the row, as far as the other one goes.
      for (int32_t from : {1, 2, 4})
        for (bool rest : {false, true})
          add("page.of_other_request",
              fmt::format(
                  "{} from the {} request",
                  rest ? fmt::format("pages from number {} on", from) : fmt::format("first {} pages", from),
                  name),
              0.5,
              read_through(size, Side::kBoth,
                           [from, rest, size, other = other, inner = row_of(other)](Scene& s, int32_t page,
                                                                                    int32_t slot) {
                             const int32_t r = other(s.cell.request), keys = s.problem.requests[r].kv_len;
                             const bool wrong = (page >= from) == rest && (rest ? keys >= (page + 1) * size
                                                                                : keys > page * size + slot);
                             return wrong ? inner(s, page, slot) : page * size + slot;
                           }));
      add("page.of_other_request", fmt::format("values through the table row of the {} request", name), 0.6,
          read_through(size, Side::kValues, row_of(other)));
    }
  }
  // The table indexed with something else than the page.
  const auto column = [&](std::string text, std::function<int64_t(int32_t page, int32_t slot)> of) {
    add("page.wrong", std::move(text), 0.2,
        read_through(size, Side::kBoth, [of = std::move(of)](Scene& s, int32_t page, int32_t slot) {
          return s.keys.through_table(of(page, slot), slot);
        }));
  };
  if (p.table != ASSAY_TABLE_TOKEN) {
    column("table indexed by the token",
           [size](int32_t page, int32_t slot) { return int64_t{page} * size + slot; });
    column("table indexed by pages twice as long", [](int32_t page, int32_t) { return page / 2; });
    column("table indexed by pages half as long",
           [size](int32_t page, int32_t slot) { return 2 * page + 2 * slot / size; });
    column("table indexed one entry late", [](int32_t page, int32_t) { return page + 1; });
  } else {
    add("page.wrong", "table indexed by pages twice as long", 0.2,
        read_through(size, Side::kBoth, [size](Scene& s, int32_t page, int32_t slot) {
          return own_row(s, page / 2 * size + slot);
        }));
  }
  // The block itself: halved, scaled, or block 0.
  const auto block_rule = [&](std::string text, std::function<int64_t(int64_t block, int64_t blocks)> rule,
                              double cost) {
    add("page.wrong", std::move(text), cost,
        read_through(size, Side::kBoth, [size, rule = std::move(rule)](Scene& s, int32_t page, int32_t slot) {
          int64_t block = -1, at = 0;
          const int32_t position = page * size + slot;
          if (!s.keys.place(s.cell.request, position, &block, &at)) return own_row(s, position);
          return s.keys.extra(rule(block, s.keys.blocks()), at);
        }));
  };
  block_rule(
      "every page read from block 0", [](int64_t, int64_t) { return int64_t{0}; }, 0.3);
  block_rule(
      "block after the right one", [](int64_t b, int64_t n) { return (b + 1) % n; }, 0.4);
  block_rule(
      "block before the right one", [](int64_t b, int64_t n) { return (b + n - 1) % n; }, 0.4);
  block_rule(
      "half of the block's number", [](int64_t b, int64_t) { return b / 2; }, 0.4);
  block_rule(
      "block number times the page size", [size](int64_t b, int64_t n) { return b * size % n; }, 0.4);
  numbers_cut(clues, out);
  for (bool last : {false, true})
    add("page.skipped", fmt::format("keys that lie in block {} left out", last ? "the last one" : "0"), 0.3,
        [last](Scene& s, std::vector<Term>& terms) {
          const int64_t empty = last ? s.keys.blocks() - 1 : 0;
          std::erase_if(terms, [&](const Term& t) {
            int64_t block = -1, at = 0;
            return t.position < s.kv_len && s.keys.place(s.keys.request(), t.position, &block, &at) &&
                   block == empty;
          });
        });
  // Any page in the place of any other, cell by cell.
  propose_per_cell(
      clues, "page.wrong", "one page per row read from elsewhere", 1.6,
      [&](const Cell& cell) {
        std::vector<Candidate> list;
        const int32_t n = (p.requests[cell.request].kv_len + size - 1) / size;
        for (int32_t a = 0; a < n && n <= 24; ++a)
          for (int32_t b = 0; b < n; ++b) {
            if (a == b) continue;
            list.push_back(
                {fmt::format("page {} from page {}", a, b),
                 read_through(size, Side::kBoth, [a, b, size](Scene& s, int32_t page, int32_t slot) {
                   return page == a ? own_row(s, b * size + slot) : page * size + slot;
                 })});
          }
        return list;
      },
      out);
}

}  // namespace assay
