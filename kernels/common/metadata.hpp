// SPDX-License-Identifier: Apache-2.0
// The metadata ops (enum assay_op) as functions that a team of threads runs for one unit of the work: a
// thread of the CPU (kernels/cpu/data_ops/metadata.cpp) or a block of a GPU (kernels/portable/metadata.cu).
// Lengths are read from device memory and units follow from shapes alone, so that a captured call serves
// whatever lengths it finds; nothing is written past the shapes. A team offers thread(), threads(), and for
// all its threads at once sum(x), least(x), before(x) (the sum of x of the threads before) and barrier().
#pragma once

#include "kernels/common/metadata_operands.hpp"

namespace assay_kernels {
namespace metadata {

// Unit r is request r, the last one what stands behind them.
template <class Team>
ASSAY_TEAM void expand_pages(const MetadataOperands& m, int64_t r, const Team& team) {
  const int64_t first = sum_below(team, r, [&](int64_t i) { return m.kv_len.at(i); });
  if (team.thread() == 0) m.out_cu_kv.at(r) = static_cast<int32_t>(first);
  if (r == m.requests) return fill(team, m.out_indices, first, -1);
  for (int64_t j = team.thread(); j < m.kv_len.at(r) && first + j < m.out_indices.columns;
       j += team.threads())
    m.out_indices.at(first + j) = slot_of(m, r, j);
}

// Keys that a rank holds of the first `keys` of a request, in turns of `turn` (assay_group.h).
ASSAY_INLINE int32_t keys_of_rank(int64_t keys, int64_t ranks, int64_t turn, int64_t rank) {
  const int64_t whole = keys / (turn * ranks) * turn, rest = keys - whole * ranks - rank * turn;
  return static_cast<int32_t>(whole + (rest < 0 ? 0 : rest < turn ? rest : turn));
}

// Unit: a rank.
template <class Team>
ASSAY_TEAM void dcp_lengths(const MetadataOperands& m, int64_t rank, const Team& team) {
  for (int64_t r = team.thread(); r < m.requests; r += team.threads())
    m.out_len.at(rank, r) = keys_of_rank(m.kv_len.at(r), m.ranks, m.interleave, rank);
}

// How attention in chunks cuts a request: `blind` rows before its first key as a batch of their own, then a
// batch for each of `pieces` chunks from that of key `first` on.
struct Cut {
  int32_t blind, first, position, pieces;
};
ASSAY_INLINE Cut cut_of(const MetadataOperands& m, int64_t r) {
  const int32_t rows = rows_of(m, r), keys = m.kv_len.at(r), context = keys - rows;
  Cut c;
  c.position = greater(context, 0);
  c.blind = smaller(greater(-context, 0), rows);
  c.first = m.chunk > 0 ? c.position / m.chunk * m.chunk : 0;
  c.pieces = c.blind == rows ? 0 : m.chunk > 0 ? (keys - 1 - c.first) / m.chunk + 1 : 1;
  return c;
}

// Unit r is request r, the last one what stands behind them.
template <class Team>
ASSAY_TEAM void local_batches(const MetadataOperands& m, int64_t r, const Team& team) {
  const int64_t first = sum_below(team, r, [&](int64_t i) {
    const Cut c = cut_of(m, i);
    return c.pieces + (c.blind > 0 ? 1 : 0);
  });
  const int64_t keys_before = sum_below(team, r, [&](int64_t i) {
    const Cut c = cut_of(m, i);
    return c.pieces > 0 ? m.kv_len.at(i) - c.first : 0;
  });
  if (r == m.requests) {
    if (team.thread() == 0) m.out_counts.at(0) = static_cast<int32_t>(first);
    fill(team, m.out_len, first, 0);
    fill(team, m.out_request, first, -1);
    fill(team, m.out_cu_q, first, m.cu_q.at(m.requests));
    return fill(team, m.out_cu_kv, first, keys_before);
  }
  const Cut c = cut_of(m, r);
  const int32_t keys = m.kv_len.at(r), rows = rows_of(m, r), lead = c.blind > 0 ? 1 : 0;
  for (int64_t v = team.thread(); v < c.pieces + lead && first + v < m.out_len.columns; v += team.threads()) {
    const int64_t b = first + v;
    const bool blind = v < lead;
    const int64_t begin = blind ? 0 : c.first + (v - lead) * m.chunk;
    int64_t end = blind ? 0 : keys;
    if (!blind && m.chunk > 0 && begin + m.chunk < end) end = begin + m.chunk;
    const int64_t at = begin > c.position ? begin : c.position;  // position of the first row
    m.out_request.at(b) = static_cast<int32_t>(r);
    m.out_len.at(b) = static_cast<int32_t>(end - begin);
    m.out_cu_q.at(b) = static_cast<int32_t>(m.cu_q.at(r) + (blind ? 0 : at - (keys - rows)));
    m.out_cu_kv.at(b) = static_cast<int32_t>(keys_before + (blind ? 0 : begin - c.first));
    ASSAY_ONE_AT_A_TIME
    for (int32_t i = 0; i < pages_of(m, static_cast<int32_t>(end - begin)); ++i)
      m.out_table.at(b, i) = page_of(m, r, begin / m.page_size + i);
  }
}

// 0 decode, 1 extend, 2 prefill.
ASSAY_INLINE int32_t group_of(const MetadataOperands& m, int64_t r) {
  const int32_t rows = rows_of(m, r);
  return rows <= m.threshold ? 0 : m.kv_len.at(r) > rows ? 1 : 2;
}

// Unit r is request r, the last one the counts.
template <class Team>
ASSAY_TEAM void split_batch(const MetadataOperands& m, int64_t r, const Team& team) {
  if (r < m.requests) {
    const int32_t group = group_of(m, r);
    const int64_t first =
        sum_below(team, m.requests, [&](int64_t i) { return group_of(m, i) < group ? 1 : 0; });
    const int64_t place =
        first + sum_below(team, r, [&](int64_t i) { return group_of(m, i) == group ? 1 : 0; });
    const int64_t row =
        sum_below(team, r, [&](int64_t i) { return group_of(m, i) == group ? rows_of(m, i) : 0; });
    const int64_t key =
        sum_below(team, r, [&](int64_t i) { return group_of(m, i) == group ? m.kv_len.at(i) : 0; });
    if (team.thread() != 0) return;
    m.out_request.at(place) = static_cast<int32_t>(r);
    m.out_len.at(place) = m.kv_len.at(r);
    m.out_cu_q.at(place + group) = static_cast<int32_t>(row);
    m.out_cu_kv.at(place + group) = static_cast<int32_t>(key);
    return;
  }
  constexpr int32_t kNone = INT32_MAX;
  int64_t end = 0;  // of the requests of this group and those before
  ASSAY_ONE_AT_A_TIME
  for (int32_t g = 0; g < 3; ++g) {
    const auto largest = [&](auto value) {
      return -least_below(team, m.requests, 0,
                          [&](int64_t i) { return group_of(m, i) == g ? -value(i) : 0; });
    };
    const int64_t requests =
        sum_below(team, m.requests, [&](int64_t i) { return group_of(m, i) == g ? 1 : 0; });
    const int64_t rows =
        sum_below(team, m.requests, [&](int64_t i) { return group_of(m, i) == g ? rows_of(m, i) : 0; });
    const int64_t all_keys =
        sum_below(team, m.requests, [&](int64_t i) { return group_of(m, i) == g ? m.kv_len.at(i) : 0; });
    const int32_t longest = largest([&](int64_t i) { return rows_of(m, i); });
    const int32_t keys = largest([&](int64_t i) { return m.kv_len.at(i); });
    const int32_t shortest = least_below(
        team, m.requests, kNone, [&](int64_t i) { return group_of(m, i) == g ? rows_of(m, i) : kNone; });
    end += requests;
    if (team.thread() != 0) continue;
    m.out_cu_q.at(end + g) = static_cast<int32_t>(rows);
    m.out_cu_kv.at(end + g) = static_cast<int32_t>(all_keys);
    m.out_counts.at(g, 0) = static_cast<int32_t>(requests);
    m.out_counts.at(g, 1) = static_cast<int32_t>(rows);
    m.out_counts.at(g, 2) = longest;
    m.out_counts.at(g, 3) = requests > 0 ? shortest : 0;
    m.out_counts.at(g, 4) = keys;
  }
}

ASSAY_INLINE int32_t context_of(const MetadataOperands& m, int64_t r) {
  return greater(m.kv_len.at(r) - rows_of(m, r), 0);
}

// Unit: a step.
template <class Team>
ASSAY_TEAM void chunk_metadata(const MetadataOperands& m, int64_t step, const Team& team) {
  const int64_t extends =
      sum_below(team, m.requests, [&](int64_t r) { return context_of(m, r) > 0 ? 1 : 0; });
  const int32_t longest = -least_below(team, m.requests, 0, [&](int64_t r) { return -context_of(m, r); });
  const int32_t tokens = extends == 0 ? 0 : greater(1, static_cast<int32_t>(m.token_budget / extends));
  const int64_t done = step * tokens;
  const int32_t left = done < longest ? static_cast<int32_t>(longest - done) : 0;
  if (team.thread() == 0) {
    if (step == 0) m.out_counts.at(0) = extends == 0 ? 0 : (longest - 1) / tokens + 1;
    if (step == 0) m.out_counts.at(1) = tokens;
    if (step + 2 < m.out_counts.columns) m.out_counts.at(step + 2) = smaller(tokens, left);
  }
  if (step >= m.out_len.rows) return;  // a batch that was captured without room for any
  int64_t sum = 0;
  ASSAY_ONE_AT_A_TIME
  for (int32_t r = 0; r < m.requests; ++r) {
    const int32_t context = context_of(m, r);
    const int64_t start = done < context ? done : context;
    const int32_t length = smaller(tokens, static_cast<int32_t>(context - start));
    if (team.thread() == 0) {
      m.out_starts.at(step, r) = static_cast<int32_t>(start);
      m.out_len.at(step, r) = length;
      m.out_cu_kv.at(step, r) = static_cast<int32_t>(sum);
    }
    for (int64_t i = sum + team.thread(); i < sum + length && i < m.out_request.columns; i += team.threads())
      m.out_request.at(step, i) = r;
    sum += length;
  }
  if (team.thread() == 0) m.out_cu_kv.at(step, m.requests) = static_cast<int32_t>(sum);
  for (int64_t i = sum + team.thread(); i < m.out_request.columns; i += team.threads())
    m.out_request.at(step, i) = -1;
}

// Units of a row of the table, that of the widest: a long table is copied by many teams, each of which asks
// for all its pages before it writes one.
constexpr int32_t kSharePages = 512;
ASSAY_INLINE int64_t table_shares(const MetadataOperands& m) {
  return m.out_table.columns > kSharePages ? (m.out_table.columns - 1) / kSharePages + 1 : 1;
}

// Of requests + 1 units each: first every request's lengths and the first pages of its table, with what
// stands behind the requests last, then their next pages.
template <class Team>
ASSAY_TEAM void decode_metadata(const MetadataOperands& m, int64_t unit, const Team& team) {
  const int64_t share = unit / (int64_t{m.requests} + 1), r = unit - share * (int64_t{m.requests} + 1);
  const auto length = [&](int64_t i) { return m.context_len.at(i) + rows_of(m, i); };
  if (share == 0) {
    const int64_t before = sum_below(team, r, length);
    if (r == m.requests) {
      fill(team, m.out_len, r, 0);
      fill(team, m.out_cu_q, r, m.cu_q.at(r));
      return fill(team, m.out_cu_kv, r, before);
    }
    if (team.thread() == 0) {
      m.out_cu_q.at(r) = m.cu_q.at(r);
      m.out_cu_kv.at(r) = static_cast<int32_t>(before);
      m.out_len.at(r) = length(r);
    }
  }
  if (r == m.requests) return;
  // Some are asked for before any is written: a load may not pass a store that could be to its place.
  constexpr int32_t kAhead = 4;
  const int64_t begin = share * kSharePages, pages = pages_of(m, length(r));
  const int64_t end = pages < begin + kSharePages ? pages : begin + kSharePages;
  const PageRow row = page_row(m, r);
  const int32_t stride = team.threads();
  for (int64_t first = begin + team.thread(); first < end; first += kAhead * stride) {
    int32_t page[kAhead];
    for (int32_t j = 0; j < kAhead; ++j)
      page[j] = first + j * stride < end ? row.first[(first + j * stride) * row.step] : 0;
    for (int32_t j = 0; j < kAhead; ++j)
      if (first + j * stride < end)
        m.out_table.at(r, first + j * stride) = mapped_page(m, page[j] / row.slots);
  }
}

// Whether attention to a prefix of so many keys as one request of all rows takes fewer waves of blocks, in
// tiles of 128 rows and 128 keys, than each request for itself with its keys split over the device.
ASSAY_INLINE bool prefix_pays(const MetadataOperands& m, int32_t prefix, bool single_rows) {
  if (prefix < 256 || m.requests < 8 || !m.plain) return false;
  if (!single_rows || m.heads_q == m.heads) return true;
  const int64_t tiles = (int64_t{prefix} + 127) / 128, group = m.heads_q / m.heads;
  const int64_t blocks = int64_t{m.heads_q} * ((int64_t{m.requests} + 127) / 128);
  const int64_t split = int64_t{m.requests} * m.heads * ((group + 127) / 128) * tiles;
  return (blocks + m.workers - 1) / m.workers * tiles < (split + m.workers - 1) / m.workers;
}

// Unit r is request r, the last one the prefix.
template <class Team>
ASSAY_TEAM void cascade_metadata(const MetadataOperands& m, int64_t r, const Team& team) {
  const int32_t shortest = least_below(team, m.requests, INT32_MAX, [&](int64_t i) {
    return m.kv_len.at(i) > 0 ? m.kv_len.at(i) : INT32_MAX;
  });
  const int32_t keys = shortest == INT32_MAX ? 0 : smaller(shortest, m.prefix_tokens);
  const int32_t pages = keys / m.page_size, prefix = pages * m.page_size;
  if (r < m.requests) {
    const int32_t rest = greater(m.kv_len.at(r) - prefix, 0);
    if (team.thread() == 0) m.out_len.at(r + 1) = rest;
    for (int32_t i = team.thread(); i < pages_of(m, rest); i += team.threads())
      m.out_table.at(r, i) = page_of(m, r, pages + i);
    return;
  }
  const int64_t others = sum_below(team, m.requests, [&](int64_t i) { return rows_of(m, i) == 1 ? 0 : 1; });
  if (team.thread() == 0) {
    m.out_counts.at(0) = prefix_pays(m, prefix, others == 0) ? 1 : 0;
    m.out_len.at(0) = prefix;
    m.out_cu_q.at(0) = 0;
    m.out_cu_q.at(1) = m.cu_q.at(m.requests);
  }
  const int32_t holder = least_below(team, m.requests, INT32_MAX, [&](int64_t i) {
    return m.kv_len.at(i) > 0 ? static_cast<int32_t>(i) : INT32_MAX;
  });
  for (int32_t i = team.thread(); i < pages && i < m.out_indices.columns; i += team.threads())
    m.out_indices.at(i) = page_of(m, holder, i);
  fill(team, m.out_indices, pages, -1);
}

// Unit: a row. out_cu_kv and where out_cu_q begins are left to sum_lengths().
template <class Team>
ASSAY_TEAM void tree_tables(const MetadataOperands& m, int64_t row, const Team& team, bool with_context) {
  const int64_t rows = m.cu_q.at(m.requests);
  if (team.thread() == 0) {
    m.out_cu_q.at(row + 1) = static_cast<int32_t>(row < rows ? row + 1 : rows);
    if (row >= rows) m.out_len.at(row) = 0;
  }
  if (row >= rows) return;
  int64_t low = 0, high = m.requests;  // cu_q[low] <= row < cu_q[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (m.cu_q.at(middle) <= row ? low : high) = middle;
  }
  const int64_t r = low;
  const int32_t drafts = rows_of(m, r) * (m.drafted + 1);
  const int64_t context = m.kv_len.at(r) - drafts, before = with_context ? context : 0;
  const int64_t width = m.flat_tree ? context + drafts : drafts;
  const int64_t bits =
      m.tree_indptr[r * m.tree_indptr_stride] + (row - m.cu_q.at(r)) * width + (width - drafts);
  const auto sees = [&](int64_t j) { return m.tree_mask[(bits + j) * m.tree_mask_stride] != 0; };
  for (int64_t j = team.thread(); j < before; j += team.threads()) m.out_table.at(row, j) = slot_of(m, r, j);
  const int64_t seen = sum_below(team, drafts, [&](int64_t j) { return sees(j) ? 1 : 0; });
  if (team.thread() == 0) m.out_len.at(row) = static_cast<int32_t>(before + seen);
  for (int64_t j = team.thread(); j < drafts; j += team.threads()) {
    if (!sees(j)) continue;
    int64_t place = before;
    for (int64_t i = 0; i < j; ++i) place += sees(i) ? 1 : 0;
    m.out_table.at(row, place) = slot_of(m, r, context + j);
  }
}

// out_cu_kv from out_len, by one team.
template <class Team>
ASSAY_TEAM void sum_lengths(const MetadataOperands& m, const Team& team) {
  const int64_t each = (m.rows + team.threads() - 1) / team.threads();
  const int64_t first = team.thread() * each, end = first + each < m.rows ? first + each : m.rows;
  int64_t own = 0;
  for (int64_t i = first; i < end; ++i) own += m.out_len.at(i);
  int64_t at = team.before(own);
  if (team.thread() == 0) m.out_cu_q.at(0) = m.out_cu_kv.at(0) = 0;  // where there are no rows, too
  for (int64_t i = first; i < end; ++i) {
    at += m.out_len.at(i);
    m.out_cu_kv.at(i + 1) = static_cast<int32_t>(at);
  }
}

// Blocks of keys that tile t of a request's rows counts as, for each KV head; its keys.
ASSAY_INLINE int32_t tile_keys_of(const MetadataOperands& m, int32_t keys, int32_t rows, int64_t t) {
  const int64_t behind = rows - (t + 1) * m.tile_rows;  // rows that other tiles have
  const int64_t seen = keys - (behind > 0 ? behind : 0);
  return seen > 0 ? static_cast<int32_t>(seen) : 0;
}
ASSAY_INLINE int32_t tile_blocks_of(const MetadataOperands& m, int32_t keys, int32_t rows, int64_t t) {
  const int32_t seen = tile_keys_of(m, keys, rows, t);
  return seen == 0 ? 1 : (seen - 1) / m.block_keys + 1;
}
ASSAY_INLINE int64_t tiles_of(const MetadataOperands& m, int64_t r) {
  return (int64_t{rows_of(m, r)} + m.tile_rows - 1) / m.tile_rows;
}
ASSAY_INLINE int64_t blocks_of(const MetadataOperands& m, int64_t r) {
  const int32_t keys = m.kv_len.at(r), rows = rows_of(m, r);
  int64_t blocks = 0;
  for (int64_t t = 0; t < tiles_of(m, r); ++t) blocks += tile_blocks_of(m, keys, rows, t);
  return blocks * m.heads;
}

// visit(r, t, blocks of each head, first block, first tile) for every tile of rows, whose heads follow each
// other: blocks and tiles of the heads counted over the whole batch. A thread takes whole requests.
template <class Team, class Visit>
ASSAY_TEAM void each_tile(const MetadataOperands& m, const Team& team, const Visit& visit) {
  int64_t block = 0, tile = 0;
  ASSAY_ONE_AT_A_TIME
  for (int64_t base = 0; base < m.requests; base += team.threads()) {
    const int64_t r = base + team.thread();
    const bool live = r < m.requests;
    const int64_t blocks = live ? blocks_of(m, r) : 0, tiles = live ? tiles_of(m, r) : 0;
    int64_t at = block + team.before(blocks);
    const int64_t first = tile + team.before(tiles * m.heads);
    ASSAY_ONE_AT_A_TIME
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t each = tile_blocks_of(m, m.kv_len.at(r), rows_of(m, r), t);
      visit(r, t, each, at, first + t * m.heads);
      at += each * m.heads;
    }
    block += team.sum(blocks), tile += team.sum(tiles * m.heads);
  }
}

// Unit: a worker; the last one what stands behind them. All blocks of a batch stand in one row, of which
// worker w has `share` from w share on: a cut is where such a border lies within a tile. A tile with k cuts
// leaves k + 1 partial results, which are numbered in the order of the row.
template <class Team>
ASSAY_TEAM void ps_metadata(const MetadataOperands& m, int64_t w, const Team& team) {
  const int64_t total = sum_below(team, m.requests, [&](int64_t r) { return blocks_of(m, r); });
  const int64_t share = total > 0 ? (total - 1) / m.workers + 1 : 1;
  const int64_t begin = w * share, end = begin + share;
  // Before this border: tiles that began, cuts; tiles with their first cut there or before; is it a cut.
  int64_t began = 0, cuts = 0, split = 0, here = 0;
  each_tile(m, team, [&](int64_t, int64_t, int64_t each, int64_t first, int64_t) {
    const int64_t behind = first + each * m.heads;
    if (begin >= behind)
      began += m.heads;
    else if (begin > first)
      began += (begin - first - 1) / each + 1;
    int64_t last = -1;
    ASSAY_ONE_AT_A_TIME
    for (int64_t j = first / share + 1; j <= w && j * share < behind; ++j) {
      const int64_t offset = j * share - first, tile = offset / each;
      if (offset == tile * each) continue;
      split += tile != last ? 1 : 0;
      last = tile;
      (j < w ? cuts : here) += 1;
    }
  });
  began = team.sum(began), cuts = team.sum(cuts), split = team.sum(split), here = team.sum(here);
  if (team.thread() == 0) m.work_indptr.at(w) = static_cast<int32_t>(began + cuts);
  if (w == m.workers) {
    fill(team, m.reduce_indptr, split, cuts + split);
    return fill(team, m.reduce_partial_map, cuts + split, -1);
  }
  each_tile(m, team, [&](int64_t r, int64_t t, int64_t each, int64_t first, int64_t tile) {
    const int64_t from = begin > first ? (begin - first) / each : 0;  // of the heads
    const int32_t rows = rows_of(m, r), keys = m.kv_len.at(r);
    const int64_t row = t * m.tile_rows, next = row + m.tile_rows < rows ? row + m.tile_rows : rows;
    ASSAY_ONE_AT_A_TIME
    for (int64_t head = from; head < m.heads && first + head * each < end; ++head) {
      const int64_t start = first + head * each, stop = start + each;
      const bool begins = start >= begin, ends = stop <= end;
      const int64_t index = began + cuts + (begins ? here + tile + head - began : 0);
      const int64_t partial = begins && ends ? -1 : cuts + split + (begins ? here : 0);
      if (index >= m.work_info.rows) return;
      const int64_t first_key = (begins ? 0 : begin - start) * m.block_keys;
      const int64_t end_key = (ends ? each : end - start) * m.block_keys;
      const int32_t seen = tile_keys_of(m, keys, rows, t);
      m.work_info.at(index, 0) = static_cast<int32_t>(r);
      m.work_info.at(index, 1) = static_cast<int32_t>(head);
      m.work_info.at(index, 2) = static_cast<int32_t>(m.cu_q.at(r) + row);
      m.work_info.at(index, 3) = static_cast<int32_t>(m.cu_q.at(r) + next);
      m.work_info.at(index, 4) = static_cast<int32_t>(first_key);
      m.work_info.at(index, 5) = end_key < seen ? static_cast<int32_t>(end_key) : seen;
      m.work_info.at(index, 6) = static_cast<int32_t>(partial);
      m.work_info.at(index, 7) = static_cast<int32_t>(keys - rows + row);
      if (!begins || ends) continue;
      m.reduce_final_map.at(split, 0) = static_cast<int32_t>(m.cu_q.at(r) + row);
      m.reduce_final_map.at(split, 1) = static_cast<int32_t>(m.cu_q.at(r) + next);
      m.reduce_final_map.at(split, 2) = static_cast<int32_t>(head);
      m.reduce_indptr.at(split) = static_cast<int32_t>(partial);
      const int64_t parts = (stop - 1) / share - w + 1;
      ASSAY_ONE_AT_A_TIME
      for (int64_t i = 0; i < parts; ++i)
        m.reduce_partial_map.at(partial + i) = static_cast<int32_t>(partial + i);
    }
  });
}

// Keys of a request that a window shows its rows, one more than needed.
ASSAY_INLINE int32_t behind_window(const MetadataOperands& m, int64_t r) {
  const int32_t rows = rows_of(m, r), keys = m.kv_len.at(r);
  if (rows == 0) return 0;
  if (m.window_left < 0 || keys - rows <= m.window_left) return keys;
  return rows + m.window_left + 1;
}

// Unit r is request r, the last one what stands behind them.
template <class Team>
ASSAY_TEAM void window_metadata(const MetadataOperands& m, int64_t r, const Team& team) {
  const int64_t first = sum_below(team, r, [&](int64_t i) { return behind_window(m, i); });
  if (team.thread() == 0) m.out_cu_kv.at(r) = static_cast<int32_t>(first);
  if (r == m.requests) return fill(team, m.out_request, first, -1);
  const int32_t keys = behind_window(m, r);
  if (team.thread() == 0) {
    m.out_len.at(0, r) = keys, m.out_len.at(1, r) = rows_of(m, r);
    m.out_starts.at(r) = m.kv_len.at(r) - keys;
  }
  for (int64_t j = team.thread(); j < keys && first + j < m.out_request.columns; j += team.threads())
    m.out_request.at(first + j) = static_cast<int32_t>(r);
}

// How many units an op has; whether sums of out_len come after them.
ASSAY_INLINE int64_t units_of(const MetadataOperands& m) {
  switch (m.op) {
    case ASSAY_OP_DCP_LENGTHS:
      return m.ranks;
    case ASSAY_OP_CHUNK_METADATA:
      return m.out_len.rows > 1 ? m.out_len.rows : 1;
    case ASSAY_OP_TREE_TABLES:
    case ASSAY_OP_SWA_TREE_TABLE:
      return m.rows;
    case ASSAY_OP_PS_METADATA:
      return int64_t{m.workers} + 1;
    case ASSAY_OP_DECODE_METADATA:
      return (int64_t{m.requests} + 1) * table_shares(m);
    default:
      return int64_t{m.requests} + 1;
  }
}
ASSAY_INLINE bool sums_follow(const MetadataOperands& m) {
  return m.op == ASSAY_OP_TREE_TABLES || m.op == ASSAY_OP_SWA_TREE_TABLE;
}

template <class Team>
ASSAY_TEAM void do_unit(int32_t op, const MetadataOperands& m, int64_t unit, const Team& team) {
  switch (op) {
    case ASSAY_OP_EXPAND_PAGES:
      return expand_pages(m, unit, team);
    case ASSAY_OP_DCP_LENGTHS:
      return dcp_lengths(m, unit, team);
    case ASSAY_OP_LOCAL_BATCHES:
      return local_batches(m, unit, team);
    case ASSAY_OP_SPLIT_BATCH:
      return split_batch(m, unit, team);
    case ASSAY_OP_CHUNK_METADATA:
      return chunk_metadata(m, unit, team);
    case ASSAY_OP_DECODE_METADATA:
      return decode_metadata(m, unit, team);
    case ASSAY_OP_CASCADE_METADATA:
      return cascade_metadata(m, unit, team);
    case ASSAY_OP_TREE_TABLES:
      return tree_tables(m, unit, team, false);
    case ASSAY_OP_SWA_TREE_TABLE:
      return tree_tables(m, unit, team, true);
    case ASSAY_OP_PS_METADATA:
      return ps_metadata(m, unit, team);
    case ASSAY_OP_WINDOW_METADATA:
      return window_metadata(m, unit, team);
    default:
      return;
  }
}

}  // namespace metadata
}  // namespace assay_kernels
