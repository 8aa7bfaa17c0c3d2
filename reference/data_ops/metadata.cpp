// SPDX-License-Identifier: Apache-2.0
// See metadata.hpp.
#include "reference/data_ops/metadata.hpp"

#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"

namespace assay {

std::vector<int32_t> cumulative(Lengths lengths) {
  std::vector<int32_t> sums = {0};
  for (const int32_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

int32_t slot_of(const std::vector<int32_t>& pages, int32_t page_size, int32_t key) {
  const auto page = static_cast<size_t>(key / page_size);
  ASSAY_CHECK(page < pages.size(), "key {} of {} pages of {}", key, pages.size(), page_size);
  return pages[page] * page_size + key % page_size;
}

ExpandedPages expand_pages(Lengths kv_len, const Pages& pages, int32_t page_size) {
  ExpandedPages out{cumulative(kv_len), {}};
  for (size_t r = 0; r < kv_len.size(); ++r)
    for (int32_t key = 0; key < kv_len[r]; ++key) out.indices.push_back(slot_of(pages[r], page_size, key));
  return out;
}

std::vector<BatchGroup3> split_batch(Lengths q_len, Lengths kv_len, int32_t threshold) {
  std::vector<BatchGroup3> groups(kBatchGroups);
  for (BatchGroup3& g : groups) g.cu_q = g.cu_kv = {0};
  for (size_t r = 0; r < q_len.size(); ++r) {
    const bool decode = q_len[r] <= threshold, context = kv_len[r] > q_len[r];
    BatchGroup3& g = groups[decode ? 0 : context ? 1 : 2];
    g.smallest_q = g.requests.empty() ? q_len[r] : std::min(g.smallest_q, q_len[r]);
    g.largest_q = std::max(g.largest_q, q_len[r]);
    g.largest_kv = std::max(g.largest_kv, kv_len[r]);
    g.requests.push_back(static_cast<int32_t>(r));
    g.rows += q_len[r];
    g.cu_q.push_back(g.rows);
    g.cu_kv.push_back(g.cu_kv.back() + kv_len[r]);
  }
  return groups;
}

ContextSteps chunk_metadata(Lengths q_len, Lengths kv_len, int32_t token_budget) {
  ContextSteps out;
  std::vector<int32_t> left;  // tokens of context not gathered yet
  int32_t extends = 0;
  for (size_t r = 0; r < q_len.size(); ++r) {
    left.push_back(std::max(0, kv_len[r] - q_len[r]));
    extends += left.back() > 0 ? 1 : 0;
  }
  if (extends == 0) return out;
  out.tokens = std::max(1, token_budget / extends);
  std::vector<int32_t> done(left.size(), 0);
  while (std::any_of(left.begin(), left.end(), [](int32_t n) { return n > 0; })) {
    ContextSteps::Step step;
    for (size_t r = 0; r < left.size(); ++r) {
      const int32_t now = std::min(left[r], out.tokens);
      step.starts.push_back(done[r]);
      step.lengths.push_back(now);
      step.request.insert(step.request.end(), now, static_cast<int32_t>(r));
      left[r] -= now, done[r] += now;
    }
    step.cu_kv = cumulative(step.lengths);
    out.steps.push_back(std::move(step));
  }
  return out;
}

WindowKeys window_metadata(Lengths q_len, Lengths kv_len, int32_t window_left) {
  WindowKeys out;
  for (size_t r = 0; r < q_len.size(); ++r) {
    const int32_t first_row = kv_len[r] - q_len[r];
    int32_t from = q_len[r] == 0 ? kv_len[r] : 0;  // nobody looks
    while (window_left >= 0 && from < first_row - window_left - 1) ++from;
    out.starts.push_back(from);
    out.lengths.push_back(kv_len[r] - from);
    out.request.insert(out.request.end(), static_cast<size_t>(out.lengths.back()), static_cast<int32_t>(r));
  }
  out.cu_kv = cumulative(out.lengths);
  return out;
}

DecodeMetadata decode_metadata(Lengths q_len, Lengths context, const TableRows& table, int32_t page_size) {
  DecodeMetadata out;
  for (size_t r = 0; r < q_len.size(); ++r) {
    const int32_t tokens = context[r] + q_len[r];
    int64_t first = table.encoder.empty() ? 0 : table.encoder[r];
    if (!table.slots) first = (first + page_size - 1) / page_size;
    std::vector<int32_t>& row = out.pages.emplace_back();
    for (int32_t key = 0; key < tokens; ++key) {
      if (key % page_size != 0) continue;
      row.push_back(table.slots ? table.at(r, first + key) / page_size
                                : table.at(r, first + key / page_size));
    }
    out.lengths.push_back(tokens);
  }
  out.cu_q = cumulative(q_len), out.cu_kv = cumulative(out.lengths);
  return out;
}

CascadeMetadata cascade_metadata(Lengths kv_len, const Pages& pages, int32_t page_size,
                                 int32_t prefix_tokens) {
  CascadeMetadata out;
  const auto first = std::find_if(kv_len.begin(), kv_len.end(), [](int32_t m) { return m > 0; });
  if (first != kv_len.end()) {
    int32_t shared = prefix_tokens;
    for (const int32_t m : kv_len)
      if (m > 0) shared = std::min(shared, m);
    out.prefix = shared / page_size * page_size;
    const std::vector<int32_t>& row = pages[static_cast<size_t>(first - kv_len.begin())];
    out.prefix_pages.assign(row.begin(), row.begin() + out.prefix / page_size);
  }
  for (size_t r = 0; r < kv_len.size(); ++r) {
    out.suffix.push_back(std::max(0, kv_len[r] - out.prefix));
    std::vector<int32_t>& rest = out.pages.emplace_back();
    for (int32_t key = out.prefix; key < kv_len[r]; key += page_size)
      rest.push_back(pages[r][static_cast<size_t>(key / page_size)]);
  }
  return out;
}

bool cascade_pays(int32_t prefix, Lengths q_len, const CascadeShape& s) {
  constexpr int32_t kShortest = 256, kFewest = 8;
  constexpr double kTile = 128;  // rows and keys
  if (prefix < kShortest || q_len.size() < kFewest) return false;
  const bool single = std::all_of(q_len.begin(), q_len.end(), [](int32_t n) { return n == 1; });
  const int32_t group = s.heads_q / s.heads_kv;
  if (!single || group == 1) return true;
  const auto requests = static_cast<double>(q_len.size());
  const double tiles = std::ceil(prefix / kTile);
  const double together = std::ceil(s.heads_q * std::ceil(requests / kTile) / s.workers) * tiles;
  const double split = std::ceil(requests * s.heads_kv * std::ceil(group / kTile) * tiles / s.workers);
  return together < split;
}

std::vector<std::vector<int32_t>> tree_tables(Lengths q_len, Lengths kv_len, const Pages& pages,
                                              int32_t page_size, std::span<const uint8_t> tree, bool context,
                                              bool flat, int32_t drafted) {
  std::vector<std::vector<int32_t>> rows;
  size_t bit = 0;
  for (size_t r = 0; r < q_len.size(); ++r) {
    const int32_t drafts = q_len[r] * (drafted + 1), before = kv_len[r] - drafts;
    ASSAY_CHECK(before >= 0, "request {} has {} drafts and {} keys", r, drafts, kv_len[r]);
    for (int32_t i = 0; i < q_len[r]; ++i) {
      bit += flat ? static_cast<size_t>(before) : 0;
      std::vector<int32_t>& row = rows.emplace_back();
      for (int32_t key = 0; context && key < before; ++key) row.push_back(slot_of(pages[r], page_size, key));
      for (int32_t draft = 0; draft < drafts; ++draft)
        if (tree[bit++] != 0) row.push_back(slot_of(pages[r], page_size, before + draft));
    }
  }
  return rows;
}

}  // namespace assay
