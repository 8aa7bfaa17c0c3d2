// SPDX-License-Identifier: Apache-2.0
// Sums and prefix sums of a batch, the mask rules, shared-prefix ownership, and the C view. The mask
// rules here size work and choose rows; results are judged by reference/ alone, which states them
// again on its own. A new mask: visible() and, when it stays an interval, visible_range().
#include "harness/problem/problem.hpp"

#include <algorithm>
#include <bit>

namespace assay {
namespace {

// Division that rounds toward minus infinity: positions are negative when q_len > kv_len.
int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

template <class Length>
std::vector<int32_t> cumulative(const std::vector<Request>& requests, Length length) {
  std::vector<int32_t> sums(requests.size() + 1, 0);
  for (size_t r = 0; r < requests.size(); ++r) sums[r + 1] = sums[r] + length(requests[r]);
  return sums;
}

}  // namespace

bool is_attention(int32_t op) { return op == ASSAY_OP_PREFILL || op == ASSAY_OP_PAGED; }
bool attends(int32_t op) { return is_attention(op) || op == ASSAY_OP_DECODE_SPLITKV; }
bool has_cache(int32_t op) {
  return op == ASSAY_OP_PAGED || op == ASSAY_OP_CACHE_WRITE || op == ASSAY_OP_CACHE_GATHER ||
         op == ASSAY_OP_DECODE_SPLITKV;
}

int64_t Problem::total_q() const {
  int64_t sum = 0;
  for (const Request& r : requests) sum += r.q_len;
  return sum;
}

int64_t Problem::total_kv() const {
  int64_t sum = 0;
  for (const Request& r : requests) sum += r.kv_len;
  return sum;
}

int64_t Problem::rows() const { return total_q() + padded_rows; }

int32_t Problem::max_q_len() const {
  int32_t largest = 0;
  for (const Request& r : requests) largest = std::max(largest, r.q_len);
  return largest;
}

int32_t Problem::max_kv_len() const {
  int32_t largest = 0;
  for (const Request& r : requests) largest = std::max(largest, r.kv_len);
  return largest;
}

std::vector<int32_t> Problem::q_lens() const {
  std::vector<int32_t> lens;
  for (const Request& r : requests) lens.push_back(r.q_len);
  return lens;
}

std::vector<int32_t> Problem::kv_lens() const {
  std::vector<int32_t> lens;
  for (const Request& r : requests) lens.push_back(r.kv_len);
  return lens;
}

std::vector<int32_t> Problem::cu_q() const {
  return cumulative(requests, [](const Request& r) { return r.q_len; });
}

std::vector<int32_t> Problem::cu_kv() const {
  return cumulative(requests, [](const Request& r) { return r.kv_len; });
}

std::vector<int64_t> Problem::tree_indptr() const {
  std::vector<int64_t> sums(requests.size() + 1, 0);
  for (size_t r = 0; r < requests.size(); ++r)
    sums[r + 1] = sums[r] + int64_t{requests[r].q_len} * requests[r].q_len;
  return sums;
}

bool answer_is_known(InputRecipe recipe) {
  return recipe == InputRecipe::kExact || recipe == InputRecipe::kIncidence || recipe == InputRecipe::kDyadic;
}

int32_t answer_dims(InputRecipe recipe, int64_t max_kv_len) {
  if (!answer_is_known(recipe)) return 0;
  const int32_t bits = std::max(
      1, static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, max_kv_len) - 1))));
  // One dimension for each bit, one constant for every three bits, and the level of a dyadic key.
  return bits + (bits + kBitsPerConstant - 1) / kBitsPerConstant + (recipe == InputRecipe::kDyadic ? 1 : 0);
}

int64_t row_position(const Problem& p, int request, int32_t row) {
  if (!p.positions.empty()) return p.positions[request][row];
  return (p.first_key.empty() ? int64_t{0} : p.first_key[request]) + p.requests[request].context_len() + row;
}

namespace {

// Draft keys stand where their rows stand.
bool drafts_by_row(const Problem& p) { return p.mask == ASSAY_MASK_TREE && !p.positions.empty(); }

}  // namespace

int64_t key_position(const Problem& p, int request, int32_t key) {
  const int32_t context = p.requests[request].context_len();
  if (drafts_by_row(p) && key >= context) return p.positions[request][key - context];
  return (p.first_key.empty() ? int64_t{0} : p.first_key[request]) + key;
}

bool visible(const Problem& p, int request, int32_t row, int32_t key) {
  const Request& r = p.requests[request];
  if (key < 0 || key >= r.kv_len) return false;
  if (!p.only_keys.empty() && (key < p.only_keys[request].begin || key >= p.only_keys[request].end))
    return false;
  const int64_t position = row_position(p, request, row), at = key_position(p, request, key);
  if (p.mask == ASSAY_MASK_CAUSAL && at > position) return false;
  if (p.window_left >= 0 && at < position - p.window_left) return false;
  if (p.window_right >= 0 && at > position + p.window_right) return false;
  if (p.chunk > 0 && (at > position || floor_div(at, p.chunk) != floor_div(position, p.chunk))) return false;
  if (p.mask == ASSAY_MASK_TREE && key >= r.context_len()) {
    int64_t first = 0;
    for (int i = 0; i < request; ++i) first += int64_t{p.requests[i].q_len} * p.requests[i].q_len;
    return p.tree_mask[first + int64_t{row} * r.q_len + (key - r.context_len())] != 0;
  }
  return true;
}

KeyRange visible_range(const Problem& p, int request, int32_t row) {
  const Request& r = p.requests[request];
  // Counted from the first key.
  const int64_t first = p.first_key.empty() ? 0 : p.first_key[request];
  const int64_t position = row_position(p, request, row) - first;
  int64_t begin = 0, end = r.kv_len;
  if (p.mask == ASSAY_MASK_CAUSAL || p.chunk > 0) end = std::min(end, position + 1);
  if (p.window_left >= 0) begin = std::max(begin, position - p.window_left);
  if (p.window_right >= 0) end = std::min(end, position + p.window_right + 1);
  if (p.chunk > 0) {
    const int64_t chunk_begin = floor_div(position + first, p.chunk) * p.chunk - first;
    begin = std::max(begin, chunk_begin);
    end = std::min(end, chunk_begin + p.chunk);
  }
  if (drafts_by_row(p)) begin = std::min<int64_t>(begin, std::max(0, r.context_len())), end = r.kv_len;
  if (!p.only_keys.empty()) {
    begin = std::max<int64_t>(begin, p.only_keys[request].begin);
    end = std::min<int64_t>(end, p.only_keys[request].end);
  }
  if (begin >= end) return {};
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

KeyRange part_keys(const Problem& p, int32_t kv_len, int32_t part) {
  const auto cut = [&](int64_t at) {
    const int64_t pages = (int64_t{kv_len} + p.page_size - 1) / p.page_size;
    const int64_t key = p.part_tokens > 0 ? at * p.part_tokens : pages * at / p.states * p.page_size;
    return static_cast<int32_t>(std::min<int64_t>(key, kv_len));
  };
  return {cut(part), cut(part + 1)};
}

Problem part_of(const Problem& p, int32_t part) {
  Problem d = p;
  d.op = ASSAY_OP_PAGED;
  for (const Request& r : p.requests) d.only_keys.push_back(part_keys(p, r.kv_len, part));
  return d;
}

int token_owner(const Problem& p, int request, int32_t position) {
  while (p.requests[request].shared_with >= 0 && position < p.requests[request].shared_tokens)
    request = p.requests[request].shared_with;
  return request;
}

ProblemView::ProblemView(const Problem& p, float q_scale_host, float k_scale_host, float v_scale_host)
    : q_len_(p.q_lens()), kv_len_(p.kv_lens()), first_key_(p.first_key) {
  for (const std::vector<int32_t>& rows : p.positions)
    positions_.insert(positions_.end(), rows.begin(), rows.end());
  const bool paged = has_cache(p.op);
  c_.struct_size = sizeof(c_);
  c_.op = p.op;
  c_.mask = p.mask;
  c_.heads_q = p.heads_q;
  c_.heads_kv = p.heads_kv;
  c_.head_dim_qk = p.head_dim_qk;
  c_.head_dim_v = p.head_dim_v;
  c_.q_format = p.q_format;
  c_.k_format = p.k_format;
  c_.v_format = p.v_format;
  c_.o_format = p.o_format;
  c_.q_scale_kind = p.q_scale;
  c_.k_scale_kind = p.k_scale;
  c_.v_scale_kind = p.v_scale;
  c_.q_scale_host = p.q_scale == ASSAY_SCALE_HOST ? q_scale_host : 1.0f;
  c_.k_scale_host = p.k_scale == ASSAY_SCALE_HOST ? k_scale_host : 1.0f;
  c_.v_scale_host = p.v_scale == ASSAY_SCALE_HOST ? v_scale_host : 1.0f;
  c_.softmax_scale = p.softmax_scale;
  c_.softcap = p.softcap;
  c_.window_left = p.window_left;
  c_.window_right = p.window_right;
  c_.chunk = p.chunk;
  c_.alibi = p.alibi;
  c_.has_sinks = p.sinks ? 1 : 0;
  // Storage fields mean nothing outside the paged op; neutral values keep two equal cases equal.
  c_.layout = paged ? p.layout : ASSAY_LAYOUT_NHD;
  c_.page_size = paged ? p.page_size : 0;
  c_.table = paged ? p.table : ASSAY_TABLE_NONE;
  c_.requests = static_cast<int32_t>(p.requests.size());
  c_.max_q_len = p.max_q_len();
  c_.max_kv_len = p.max_kv_len();
  c_.total_q = p.total_q();
  c_.total_kv = p.total_kv();
  c_.q_len = q_len_.data();
  c_.kv_len = kv_len_.data();
  c_.first_key = p.first_key.empty() ? nullptr : first_key_.data();
  c_.positions = p.positions.empty() ? nullptr : positions_.data();
  c_.rows = p.rows();
  const bool parts = p.op == ASSAY_OP_DECODE_SPLITKV;
  c_.states = parts || p.op == ASSAY_OP_MERGE_STATES ? p.states : 0;
  c_.part_tokens = parts ? p.part_tokens : 0;
  c_.source_format = attends(p.op) ? int32_t{ASSAY_FORMAT_NONE} : p.source_format;
}

}  // namespace assay
