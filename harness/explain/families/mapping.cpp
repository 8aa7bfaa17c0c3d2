// SPDX-License-Identifier: Apache-2.0
// Hypotheses about which head, row or dimension goes where: KV heads, query heads, query rows, rows of the
// output, dimensions of the dot product and of the result.
#include <algorithm>

#include "harness/explain/families/exchanges.hpp"
#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/families/read_orders.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

void kv_heads(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (p.heads_kv == 1) return;
  for (const HeadMap& map : kv_head_maps(p)) {
    Hypothesis h = propose(clues, "heads.kv_mapping", map.name, 0.1 + map.cost);
    h.rules.kv_head_of = [of = map.of](const Cell& c) { return of(c.head); };
    out.push_back(std::move(h));
  }
}

void query_heads(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (p.heads_q == 1) return;
  for (const auto& [name, cost, map] : query_head_maps(p)) {
    Hypothesis h = propose(clues, "heads.q_swapped", name + " (query)", 0.2 + cost);
    h.rules.query_of = [map = map](const Scene& s) {
      Cell c = s.cell;
      c.head = map(c.head);
      return c;
    };
    out.push_back(std::move(h));
    const auto moved = [map = map](const Cell& cell) {
      Cell c = cell;
      c.head = map(c.head);
      return c;
    };
    h = propose(clues, "heads.q_swapped", name + " (result)", 0.25 + cost);
    h.rules.result_of = moved;
    out.push_back(std::move(h));
    h = propose(clues, "output.other_head", name + " (O alone)", 0.2 + cost);
    h.rules.o_of = moved;
    out.push_back(std::move(h));
    h = propose(clues, "lse.other_head", name + " (LSE alone)", 0.2 + cost);
    h.rules.lse_of = moved;
    out.push_back(std::move(h));
  }
}

// The head's place indexed by something else.
void query_heads_by(const Clues& clues, Hypotheses& out) {
  const int32_t q = clues.problem().heads_q;
  using Of = int32_t (*)(const Cell&);
  const std::pair<const char*, Of> others[] = {{"request's", [](const Cell& c) { return c.request; }},
                                               {"row's", [](const Cell& c) { return c.row; }}};
  for (const auto& [whose, of] : others) {
    Hypothesis h =
        propose(clues, "heads.q_swapped", fmt::format("head of the {} number (query)", whose), 0.3);
    h.rules.query_of = [of = of, q](const Scene& s) {
      Cell c = s.cell;
      c.head = of(c) % q;
      return c;
    };
    out.push_back(std::move(h));
  }
}

// Cell of a packed row number, round.
Cell at_packed(const std::vector<int32_t>& first, int64_t packed, const Cell& c) {
  const auto total = static_cast<int64_t>(first.back());
  return cell_of_row(first, ((packed % total) + total) % total, c.head);
}

void rows(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const std::vector<int32_t>& first = clues.evidence.first_rows;
  if (first.back() < 2) return;
  using Map = std::function<Cell(const Cell&)>;
  std::vector<std::tuple<std::string, double, Map>> maps;
  for (int32_t step : {1, -1, 2, -2}) {
    const double cost = step * step == 1 ? 0.2 : 0.4;
    maps.push_back({fmt::format("row {:+} of the request, round", step), cost, [&p, step](Cell c) {
                      const int32_t n = p.requests[c.request].q_len;
                      c.row = ((c.row + step) % n + n) % n;
                      return c;
                    }});
    maps.push_back({fmt::format("row {:+} of the request, clamped", step), cost + 0.05, [&p, step](Cell c) {
                      c.row = std::clamp(c.row + step, 0, p.requests[c.request].q_len - 1);
                      return c;
                    }});
    maps.push_back({fmt::format("packed row {:+}", step), cost + 0.05, [&first, step](const Cell& c) {
                      return at_packed(first, first[c.request] + c.row + step, c);
                    }});
  }
  // One on in the (row, head of the group) pairs of a block.
  if (const int32_t g = p.group(); g > 1)
    for (int32_t step : {1, -1})
      maps.push_back({fmt::format("pair {:+} of the request's rows and heads of the group", step), 0.25,
                      [&p, g, step](Cell c) {
                        const int32_t pairs = p.requests[c.request].q_len * g;
                        const int32_t at = std::clamp(c.row * g + c.head % g + step, 0, pairs - 1);
                        c.row = at / g, c.head = c.head / g * g + at % g;
                        return c;
                      }});
  maps.push_back({"rows of the request in reverse", 0.2, [&p](Cell c) {
                    c.row = p.requests[c.request].q_len - 1 - c.row;
                    return c;
                  }});
  maps.push_back({"first row of the request for all", 0.2, [](Cell c) {
                    c.row = 0;
                    return c;
                  }});
  maps.push_back({"last row of the request for all", 0.2, [&p](Cell c) {
                    c.row = p.requests[c.request].q_len - 1;
                    return c;
                  }});
  maps.push_back(
      {"requests start at row 0", 0.1, [&first](const Cell& c) { return at_packed(first, c.row, c); }});
  for (const RowBlock& block : row_blocks(p))
    for (bool last : {false, true})
      maps.push_back({fmt::format("{} row of a block of {} for all", last ? "last" : "first", block.words()),
                      0.3, [&p, block, last](Cell c) {
                        const auto [from, to] = block.rows(p, c);
                        c.row = last ? to : from;
                        return c;
                      }});
  for (int32_t size : {2, 4, 8, 16, 32, 64})
    if (size < p.max_q_len())
      maps.push_back({fmt::format("row of the request modulo {}", size), 0.25, [size](Cell c) {
                        c.row %= size;
                        return c;
                      }});
  maps.push_back({"requests start at their own number", 0.1,
                  [&first](const Cell& c) { return at_packed(first, int64_t{c.request} + c.row, c); }});
  maps.push_back({"requests start every max_q_len rows", 0.1, [&p, &first](const Cell& c) {
                    return at_packed(first, int64_t{c.request} * p.max_q_len() + c.row, c);
                  }});
  maps.push_back({"requests start every max_q_len rows, no further than the last row", 0.12,
                  [&p, &first](const Cell& c) {
                    const int64_t at = int64_t{c.request} * p.max_q_len() + c.row;
                    return at_packed(first, std::min<int64_t>(at, first.back() - 1), c);
                  }});
  // (row, head of the group) packed one way and unpacked the other, all rows of a request or so many at a
  // time.
  for (bool row_major : {true, false})
    for (int32_t tile : {0, 2, 4, 8, 16, 32, 64}) {
      const int32_t g = p.group();
      if (g < 2 || tile >= p.max_q_len()) continue;
      maps.push_back({fmt::format("packed by {}{}",
                                  row_major ? "rows, unpacked by heads of the group"
                                            : "heads of the group, unpacked by rows",
                                  tile > 0 ? fmt::format(", {} rows at a time", tile) : ""),
                      0.15 + 0.1 * (tile > 0), [&p, g, row_major, tile](Cell c) {
                        const int32_t rows = p.requests[c.request].q_len, h = c.head % g;
                        const int32_t from = tile > 0 ? c.row / tile * tile : 0;
                        const int32_t n = tile > 0 ? std::min(tile, rows - from) : rows, row = c.row - from;
                        const int32_t at = row_major ? row * g + h : h * n + row;
                        c.row = from + (row_major ? at % n : at / g);
                        c.head = c.head / g * g + (row_major ? at / n : at % g);
                        return c;
                      }});
    }
  for (int32_t grain : {2, 4, 8, 16, 32, 64, 128})
    maps.push_back({fmt::format("requests start as if padded to {} rows", grain), 0.2,
                    [&p, &first, grain](const Cell& c) {
                      int64_t start = 0;
                      for (int32_t r = 0; r < c.request; ++r)
                        start += (int64_t{p.requests[r].q_len} + grain - 1) / grain * grain;
                      return at_packed(first, start + c.row, c);
                    }});
  // Where a request's rows begin, cut or raised to a multiple.
  for (const int32_t grain : {2, 4, 8, 16, 32, 64, 128})
    for (const bool up : {false, true})
      maps.push_back(
          {fmt::format("requests start at a multiple of {} rows, rounded {}", grain, up ? "up" : "down"),
           0.2 + 0.05 * up, [&first, grain, up](const Cell& c) {
             const int64_t from = (first[c.request] + (up ? grain - 1 : 0)) / grain * grain;
             return at_packed(first, from + c.row, c);
           }});
  // The request's number itself is wrong.
  for (const IndexMap& map : request_maps(p))
    maps.push_back(
        {"rows from the start of " + map.name, 0.2 + map.cost, [&first, of = map.of](const Cell& c) {
           const int64_t at = int64_t{first[of(c.request)]} + c.row;
           return at_packed(first, std::min<int64_t>(at, first.back() - 1), c);
         }});
  maps.push_back({"start of the next request", 0.2, [&first](const Cell& c) {
                    const int32_t from = first[c.request + 1];
                    return from + c.row < first.back() ? at_packed(first, from + c.row, c) : c;
                  }});
  // Blocks of rows are stored whole: those behind the end of a request lie on the next requests' first rows.
  for (int32_t block : {2, 4, 8, 16, 32, 64, 128})
    for (int32_t most : {1, 2, 3, 4, 8, block - 1}) {
      if (most >= block && most != block - 1) continue;
      maps.push_back({fmt::format("the last row of a request before it whose blocks of {} rows reach here{}",
                                  block, most < block - 1 ? fmt::format(", {} rows at most", most) : ""),
                      0.3 + 0.05 * (most < block - 1), [&p, &first, block, most](Cell c) {
                        const int32_t packed = first[c.request] + c.row;
                        for (int32_t r = c.request - 1; r >= 0; --r) {
                          const int32_t rows = p.requests[r].q_len;
                          if (rows == 0) continue;
                          const int32_t over = std::min((block - rows % block) % block, most);
                          if (packed >= first[r] + rows + over) continue;
                          c.request = r;
                          c.row = rows - 1;
                          break;
                        }
                        return c;
                      }});
    }
  for (const auto& [name, cost, map] : maps) {
    Hypothesis h = propose(clues, "rows.query_of_other_row", name, cost);
    h.rules.query_of = [map](const Scene& s) { return map(s.cell); };
    out.push_back(std::move(h));
    h = propose(clues, "rows.written_to_other_row", "result of " + name, cost + 0.02);
    h.rules.result_of = map;
    out.push_back(std::move(h));
    h = propose(clues, "rows.written_to_other_row", "O alone of " + name, cost + 0.04);
    h.rules.o_of = map;
    out.push_back(std::move(h));
    h = propose(clues, "lse.other_row", "LSE alone of " + name, cost + 0.04);
    h.rules.lse_of = map;
    out.push_back(std::move(h));
  }
}

void dims(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const int32_t qk = p.head_dim_qk, dv = p.head_dim_v;
  const auto drop_qk = [&](std::string text, double cost, std::function<bool(int32_t)> dropped) {
    Hypothesis h = propose(clues, "dims.qk_dropped", std::move(text), cost);
    h.rules.edit_q = [dropped, qk](const Scene&, double* q) {
      for (int32_t d = 0; d < qk; ++d)
        if (dropped(d)) q[d] = 0;
    };
    out.push_back(std::move(h));
  };
  for (int32_t count : {1, 2, 4, 8, 16, 32, 64}) {
    if (count >= qk) break;
    drop_qk(fmt::format("last {} dimensions", count), 0.2,
            [qk, count](int32_t d) { return d >= qk - count; });
    drop_qk(fmt::format("first {} dimensions", count), 0.3, [count](int32_t d) { return d < count; });
    if (count > 1)
      drop_qk(fmt::format("every {}th dimension", count), 0.4,
              [count](int32_t d) { return d % count == count - 1; });
  }
  for (int32_t width : {16, 32, 64, 128, 256, 512, dv}) {
    if (width < qk && qk % width != 0)
      drop_qk(fmt::format("dimensions past the last whole {}", width), 0.2,
              [qk, width](int32_t d) { return d >= qk / width * width; });
    if (width < qk)
      drop_qk(fmt::format("dimensions from {} on", width), 0.25, [width](int32_t d) { return d >= width; });
  }
  drop_qk("second half of the dimensions", 0.25, [qk](int32_t d) { return d >= qk / 2; });
  drop_qk("first half of the dimensions", 0.25, [qk](int32_t d) { return d < qk / 2; });

  const auto finish = [&](std::string_view cause, std::string text, double cost,
                          std::function<void(std::vector<double>&)> change) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.finish = [change](const Scene&, std::vector<double>& o, double&) { change(o); };
    out.push_back(std::move(h));
  };
  const auto zero_from = [](int32_t from) {
    return [from](std::vector<double>& o) {
      std::fill(o.begin() + std::min<int64_t>(from, static_cast<int64_t>(o.size())), o.end(), 0.0);
    };
  };
  for (int32_t count : {1, 2, 4, 8, 16, 32, 64})
    if (count < dv)
      finish("dims.v_dropped", fmt::format("last {} dimensions zero", count), 0.2, zero_from(dv - count));
  for (int32_t width : {8, 16, 32, 64, 128, 256})
    if (width < dv && dv % width != 0)
      finish("dims.v_dropped", fmt::format("dimensions past the last whole {} zero", width), 0.2,
             zero_from(dv / width * width));
  if (dv > qk) finish("dims.v_dropped", "dimensions past the width of K zero", 0.15, zero_from(qk));
  for (int32_t bit : {1, 2, 4, 8, 16, 32})
    if (bit < dv)
      finish("dims.v_shifted", fmt::format("dimensions exchanged by {}", bit), 0.3,
             [bit, dv](std::vector<double>& o) {
               const std::vector<double> from = o;
               for (int32_t d = 0; d < dv; ++d)
                 if ((d ^ bit) < dv) o[d] = from[d ^ bit];
             });
  finish("dims.v_shifted", "dimensions in reverse", 0.3,
         [](std::vector<double>& o) { std::reverse(o.begin(), o.end()); });
  for (int32_t shift : {1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 32, -32, dv / 2, qk - dv}) {
    if (shift == 0 || std::abs(shift) >= dv) continue;
    const double cost = shift * shift == 1 ? 0.2 : 0.3;
    finish("dims.v_shifted", fmt::format("dimensions {:+}, round", shift), cost,
           [shift, dv](std::vector<double>& o) {
             const std::vector<double> from = o;
             for (int32_t d = 0; d < dv; ++d) o[d] = from[((d + shift) % dv + dv) % dv];
           });
    finish("dims.v_shifted", fmt::format("dimensions {:+}, zeros moved in", shift), cost + 0.05,
           [shift, dv](std::vector<double>& o) {
             const std::vector<double> from = o;
             for (int32_t d = 0; d < dv; ++d) o[d] = d + shift >= 0 && d + shift < dv ? from[d + shift] : 0.0;
           });
    finish("dims.v_shifted", fmt::format("dimensions {:+}, clamped", shift), cost + 0.05,
           [shift, dv](std::vector<double>& o) {
             const std::vector<double> from = o;
             for (int32_t d = 0; d < dv; ++d) o[d] = from[std::clamp(d + shift, 0, dv - 1)];
           });
  }
  // V of a latent cache taken from the end of K's row.
  if (p.layout == ASSAY_LAYOUT_MLA && op_of(p).has_cache && qk > dv) {
    for (int32_t from : {qk - dv}) {
      Hypothesis h = propose(clues, "dims.v_shifted",
                             fmt::format("values begin at dimension {} of the latent row", from), 0.15);
      h.rules.finish = nullptr;
      h.rules.values_from_k = from;
      out.push_back(std::move(h));
    }
  }
}

}  // namespace

void mapping_family(const Clues& clues, Hypotheses& out) {
  kv_heads(clues, out);
  query_heads(clues, out);
  query_heads_by(clues, out);
  rows(clues, out);
  query_blocks(clues, out);
  dims(clues, out);
  read_dims(clues, out);
  exchanges(clues, out);
}

}  // namespace assay
