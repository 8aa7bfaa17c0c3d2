// SPDX-License-Identifier: Apache-2.0
// Sums and prefix sums of a batch, the mask rules and shared-prefix ownership. The mask
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
int64_t Problem::key_rows() const {
  return (mask == ASSAY_MASK_CROSS ? total_kv() : total_q()) + padded_rows;
}

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
    sums[r + 1] = sums[r] + int64_t{requests[r].q_len} * drafts(requests[r]);
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

// Draft keys stand where their rows stand, those of earlier steps as far before.
bool drafts_by_row(const Problem& p) { return p.mask == ASSAY_MASK_TREE && !p.positions.empty(); }

}  // namespace

int64_t key_position(const Problem& p, int request, int32_t key) {
  const Request& r = p.requests[request];
  if (const int32_t draft = key - p.first_draft(r); drafts_by_row(p) && draft >= 0)
    return p.positions[request][draft % r.q_len] - (p.drafted - draft / r.q_len);
  return (p.first_key.empty() ? int64_t{0} : p.first_key[request]) + key;
}

bool visible(const Problem& p, int request, int32_t row, int32_t key) {
  const Request& r = p.requests[request];
  if (key < 0 || key >= r.kv_len) return false;
  if (!p.only_keys.empty() && (key < p.only_keys[request].begin || key >= p.only_keys[request].end))
    return false;
  const int64_t position = row_position(p, request, row), at = key_position(p, request, key);
  if (p.window_left >= 0 && at < position - p.window_left) return false;
  if (p.window_right >= 0 && at > position + p.window_right) return false;
  if (p.chunk > 0 && (at > position || floor_div(at, p.chunk) != floor_div(position, p.chunk))) return false;
  switch (static_cast<assay_mask>(p.mask)) {
    case ASSAY_MASK_CAUSAL:
      return at <= position;
    case ASSAY_MASK_FULL:
    case ASSAY_MASK_CROSS:
      return true;
    case ASSAY_MASK_TREE: {
      if (key < p.first_draft(r)) return true;
      int64_t first = 0;
      for (int i = 0; i < request; ++i) first += int64_t{p.requests[i].q_len} * p.drafts(p.requests[i]);
      return p.tree_mask[first + int64_t{row} * p.drafts(r) + (key - p.first_draft(r))] != 0;
    }
  }
  return false;
}

KeyRange visible_range(const Problem& p, int request, int32_t row) {
  const Request& r = p.requests[request];
  // Counted from the first key.
  const int64_t first = p.first_key.empty() ? 0 : p.first_key[request];
  const int64_t position = row_position(p, request, row) - first;
  int64_t begin = 0, end = r.kv_len;
  switch (static_cast<assay_mask>(p.mask)) {
    case ASSAY_MASK_CAUSAL:
      end = std::min(end, position + 1);
      break;
    case ASSAY_MASK_FULL:
    case ASSAY_MASK_CROSS:
    case ASSAY_MASK_TREE:
      break;
  }
  if (p.chunk > 0) end = std::min(end, position + 1);
  if (p.window_left >= 0) begin = std::max(begin, position - p.window_left);
  if (p.window_right >= 0) end = std::min(end, position + p.window_right + 1);
  if (p.chunk > 0) {
    const int64_t chunk_begin = floor_div(position + first, p.chunk) * p.chunk - first;
    begin = std::max(begin, chunk_begin);
    end = std::min(end, chunk_begin + p.chunk);
  }
  if (drafts_by_row(p)) begin = std::min<int64_t>(begin, std::max(0, p.first_draft(r))), end = r.kv_len;
  if (!p.only_keys.empty()) {
    begin = std::max<int64_t>(begin, p.only_keys[request].begin);
    end = std::min<int64_t>(end, p.only_keys[request].end);
  }
  if (begin >= end) return {};
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

int token_owner(const Problem& p, int request, int32_t position) {
  while (p.requests[request].shared_with >= 0 && position < p.requests[request].shared_tokens)
    request = p.requests[request].shared_with;
  return request;
}

}  // namespace assay
