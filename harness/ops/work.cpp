// SPDX-License-Identifier: Apache-2.0
// See work.hpp. To account for a new operand of attention: one line at the end of attention_work().
#include "harness/ops/work.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "harness/ops/op.hpp"
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
    const int32_t end = tree ? std::min(all.end, std::max(p.first_draft(r), all.begin)) : all.end;
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

double table_bytes(const Problem& p) {
  const auto requests = static_cast<double>(p.requests.size());
  double bytes = 4 * (requests + 1) + 4 * requests;  // cu_q, kv_len
  if (!op_of(p).has_cache) return bytes + 4 * (requests + 1);
  double pages = 0;
  for (const auto& of_request : p.pages) pages += static_cast<double>(of_request.size());
  switch (static_cast<assay_table>(p.table)) {
    case ASSAY_TABLE_CSR:
      return bytes + 4 * (requests + 1) + 4 * pages + 4 * requests;
    case ASSAY_TABLE_TOKEN:
      return bytes + 4 * static_cast<double>(p.total_kv());
    case ASSAY_TABLE_BLOCK:
      return bytes + 4 * pages;
    case ASSAY_TABLE_NONE:
      break;
  }
  return bytes;
}

}  // namespace

double scale_bytes(int32_t kind, double heads, double dim, double requests, double tokens) {
  switch (static_cast<assay_scale>(kind)) {
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
    case ASSAY_SCALE_NONE:
    case ASSAY_SCALE_HOST:  // by value
      break;
  }
  return 0;
}

double cached_row_bytes(const Problem& p) {
  const auto rows = static_cast<double>(p.key_rows() - p.padded_rows),
             requests = static_cast<double>(p.requests.size());
  const double hkv = p.heads_kv, dqk = p.head_dim_qk, dv = p.head_dim_v;
  double bytes =
      rows * hkv * dqk * format_bytes(p.k_format) + scale_bytes(p.k_scale, hkv, dqk, requests, rows);
  if (p.layout != ASSAY_LAYOUT_MLA)
    bytes += rows * hkv * dv * format_bytes(p.v_format) + scale_bytes(p.v_scale, hkv, dv, requests, rows);
  return bytes;
}

double new_row_bytes(const Problem& p) {
  const int source = format_bytes(p.source_format == ASSAY_FORMAT_NONE ? p.k_format : p.source_format);
  const double dims = double{1} * p.head_dim_qk + (p.layout == ASSAY_LAYOUT_MLA ? 0 : p.head_dim_v);
  const double slot = 8;
  return static_cast<double>(p.key_rows() - p.padded_rows) * (p.heads_kv * dims * source + slot);
}

Work list_work(const Problem& p) {
  Work w;
  w.tokens = p.total_q();
  for (const OperandUse& use : op_of(p).operands) {
    const TensorLayout t = use.layout(p);
    if (t.rank > 0) w.total_bytes += static_cast<double>(t.elements()) * format_bytes(t.format);
  }
  return w;
}

Work attention_work(const Problem& p, double results) {
  Work w;
  const bool paged = op_of(p).has_cache;
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
  total_bytes += results * hq * (dv * format_bytes(p.o_format) + 4);
  if (p.alibi != ASSAY_ALIBI_NONE) total_bytes += 4 * hq;
  if (p.sinks) total_bytes += 4 * hq;
  if (p.mask == ASSAY_MASK_TREE) total_bytes += static_cast<double>(p.tree_mask.size()) + 8 * (requests + 1);
  w.total_bytes = total_bytes;
  return w;
}

double attention_multiply_adds(const Problem& p) {
  double pairs = 0;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
    for (int32_t row = 0; row < p.requests[r].q_len; ++row) {
      const KeyRange range = visible_range(p, r, row);
      pairs += std::max(0, range.end - range.begin);
    }
  return pairs * p.heads_q * (p.head_dim_qk + p.head_dim_v);
}

Work work_of(const Problem& p) { return op_of(p).work(p); }

double multiply_adds(const Problem& p) {
  const Op& op = op_of(p);
  return op.multiply_adds == nullptr ? 0 : op.multiply_adds(p);
}

}  // namespace assay
