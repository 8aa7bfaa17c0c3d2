// SPDX-License-Identifier: Apache-2.0
// Useful work of a case, counted exactly from the mask: what a perfect kernel could not avoid. Padded
// tiles, masked pairs and cache slots that no row sees are not work, so a kernel that skips them shows a
// higher rate. To account for a new operand: one line in `total_bytes` below.
#include <algorithm>
#include <bit>
#include <cmath>

#include "harness/measure/measure.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

struct Seen {
  int64_t pairs = 0;             // (row, key)
  std::vector<KeyRange> ranges;  // keys at least one row sees, disjoint and ascending
};

std::vector<KeyRange> merge_ranges(std::vector<KeyRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](KeyRange a, KeyRange b) { return a.begin < b.begin; });
  std::vector<KeyRange> merged;
  for (const KeyRange& r : ranges) {
    if (r.begin >= r.end) continue;
    if (!merged.empty() && r.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, r.end);
    else
      merged.push_back(r);
  }
  return merged;
}

Seen seen_keys(const Problem& p, int request) {
  const Request& r = p.requests[request];
  const bool tree = p.mask == ASSAY_MASK_TREE;
  Seen seen;
  std::vector<KeyRange> ranges;
  for (int32_t row = 0; row < r.q_len; ++row) {
    const KeyRange all = visible_range(p, request, row);
    // Under a tree mask only the keys before the drafts form an interval.
    const int32_t end = tree ? std::min(all.end, std::max(r.context_len(), all.begin)) : all.end;
    if (all.begin < end) {
      seen.pairs += end - all.begin;
      ranges.push_back({all.begin, end});
    }
    for (int32_t key = end; tree && key < all.end; ++key)
      if (visible(p, request, row, key)) {
        ++seen.pairs;
        ranges.push_back({key, key + 1});
      }
  }
  seen.ranges = merge_ranges(std::move(ranges));
  return seen;
}

// Physical cache slots, so that pages which several requests share count once.
class SlotSet {
 public:
  explicit SlotSet(const Problem& p)
      : problem_(p), bits_((static_cast<int64_t>(p.num_blocks) * p.page_size + 63) / 64) {}
  void add(int request, KeyRange range) {
    for (int32_t key = range.begin; key < range.end; ++key) {
      const Slot s = locate(problem_, request, key);
      const int64_t flat = static_cast<int64_t>(s.block) * problem_.page_size + s.slot;
      bits_[flat / 64] |= uint64_t{1} << (flat % 64);
    }
  }
  int64_t count() const {
    int64_t n = 0;
    for (uint64_t word : bits_) n += std::popcount(word);
    return n;
  }

 private:
  const Problem& problem_;
  std::vector<uint64_t> bits_;
};

// Bytes of a scale tensor; tokens: how many tokens a per-token granularity has values for.
double scale_bytes(int32_t kind, double heads, double dim, double requests, double tokens) {
  switch (kind) {
    case ASSAY_SCALE_TENSOR:
      return 4;
    case ASSAY_SCALE_HEAD:
      return 4 * heads;
    case ASSAY_SCALE_REQUEST_HEAD:
      return 4 * heads * requests;
    case ASSAY_SCALE_TOKEN_HEAD:
      return 4 * heads * tokens;
    case ASSAY_SCALE_CHANNEL:
      return 4 * heads * dim;
    default:
      return 0;  // none, or by value
  }
}

double table_bytes(const Problem& p) {
  const auto requests = static_cast<double>(p.requests.size());
  double bytes = 4 * (requests + 1) + 4 * requests;  // cu_q, kv_len
  if (p.op == ASSAY_OP_PREFILL) return bytes + 4 * (requests + 1);
  double pages = 0;
  for (const auto& of_request : p.pages) pages += static_cast<double>(of_request.size());
  switch (p.table) {
    case ASSAY_TABLE_CSR:
      return bytes + 4 * (requests + 1) + 4 * pages + 4 * requests;
    case ASSAY_TABLE_TOKEN:
      return bytes + 4 * static_cast<double>(p.total_kv());
    default:
      return bytes + 4 * pages;
  }
}

// Every byte a building block reads or writes, once; padded rows are no work.
Work block_work(const Problem& p) {
  Work w;
  w.tokens = p.total_q();
  const auto rows = static_cast<double>(w.tokens), requests = static_cast<double>(p.requests.size());
  const double hq = p.heads_q, hkv = p.heads_kv, dqk = p.head_dim_qk, dv = p.head_dim_v;
  const double source = format_bytes(p.source_format);
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  double cached =
      rows * hkv * dqk * format_bytes(p.k_format) + scale_bytes(p.k_scale, hkv, dqk, requests, rows);
  if (!latent)
    cached += rows * hkv * dv * format_bytes(p.v_format) + scale_bytes(p.v_scale, hkv, dv, requests, rows);
  const double dense = rows * hkv * (latent ? dqk : dqk + dv);
  switch (p.op) {
    case ASSAY_OP_MERGE_STATES:
      w.total_bytes =
          p.states * rows * hq * (dv * source + 4) + rows * hq * (dv * format_bytes(p.o_format) + 4);
      if (p.sinks) w.total_bytes += 4 * hq;
      break;
    case ASSAY_OP_CACHE_WRITE:
      w.kv_bytes = cached;
      w.total_bytes = cached + dense * source + 8 * rows;  // and the slots
      break;
    case ASSAY_OP_CACHE_GATHER:
      w.kv_bytes = cached;
      // token_to_batch, starts, and a table entry for each page of the chunks at least
      w.total_bytes = cached + dense * format_bytes(p.o_format) + 4 * rows + 8 * requests +
                      4 * (p.table == ASSAY_TABLE_TOKEN ? rows : std::ceil(rows / p.page_size));
      break;
    default:  // quantize_int8
      w.total_bytes = rows * hq * dqk * (source + 1) + scale_bytes(p.q_scale, hq, dqk, requests, rows);
  }
  return w;
}

// Rows times the parts in which they see a key; of a tree the whole range.
int64_t filled_parts(const Problem& p) {
  int64_t parts = 0;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r) {
    if (p.requests[r].q_len == 0) continue;
    const KeyRange seen = visible_range(p, r, 0);
    for (int32_t s = 0; s < p.states; ++s) {
      const KeyRange own = part_keys(p, p.requests[r].kv_len, s);
      parts += std::max(own.begin, seen.begin) < std::min(own.end, seen.end) ? 1 : 0;
    }
  }
  return parts;
}

}  // namespace

Work work_of(const Problem& p) {
  if (!attends(p.op)) return block_work(p);
  Work w;
  const bool paged = has_cache(p.op);
  const bool sharing = paged && std::any_of(p.requests.begin(), p.requests.end(), [](const Request& r) {
                         return r.shared_with >= 0 && r.shared_tokens > 0;
                       });
  int64_t seen_tokens = 0;
  if (sharing) {
    SlotSet slots(p);
    for (int r = 0; r < static_cast<int>(p.requests.size()); ++r) {
      const Seen seen = seen_keys(p, r);
      w.visible_pairs += seen.pairs;
      for (const KeyRange& range : seen.ranges) slots.add(r, range);
    }
    seen_tokens = slots.count();
  } else {
    for (int r = 0; r < static_cast<int>(p.requests.size()); ++r) {
      const Seen seen = seen_keys(p, r);
      w.visible_pairs += seen.pairs;
      for (const KeyRange& range : seen.ranges) seen_tokens += range.end - range.begin;
    }
  }

  w.tokens = p.total_q();
  const auto rows = static_cast<double>(w.tokens), keys = static_cast<double>(seen_tokens);
  const auto requests = static_cast<double>(p.requests.size());
  const double hq = p.heads_q, hkv = p.heads_kv, dqk = p.head_dim_qk, dv = p.head_dim_v;
  w.flops = 2 * (dqk + dv) * static_cast<double>(w.visible_pairs) * hq;

  const bool v_in_k = paged && p.layout == ASSAY_LAYOUT_MLA;
  if (seen_tokens > 0) {
    w.kv_bytes =
        keys * hkv * dqk * format_bytes(p.k_format) + scale_bytes(p.k_scale, hkv, dqk, requests, keys);
    if (!v_in_k)
      w.kv_bytes +=
          keys * hkv * dv * format_bytes(p.v_format) + scale_bytes(p.v_scale, hkv, dv, requests, keys);
  }
  double total_bytes = w.kv_bytes + table_bytes(p);
  total_bytes += rows * hq * dqk * format_bytes(p.q_format) + scale_bytes(p.q_scale, hq, dqk, requests, rows);
  // O and LSE, of every part that holds a key.
  double results = rows;
  if (p.op == ASSAY_OP_DECODE_SPLITKV) results = static_cast<double>(filled_parts(p));
  total_bytes += results * hq * (dv * format_bytes(p.o_format) + 4);
  if (p.alibi != ASSAY_ALIBI_NONE) total_bytes += 4 * hq;
  if (p.sinks) total_bytes += 4 * hq;
  if (p.mask == ASSAY_MASK_TREE) total_bytes += static_cast<double>(p.tree_mask.size()) + 8 * (requests + 1);
  w.total_bytes = total_bytes;
  return w;
}

}  // namespace assay
