// SPDX-License-Identifier: Apache-2.0
// What a serving step's kernels read, made from lengths, page tables and drafts: the plain statement of the
// metadata ops (enum assay_op of the C header says what each is and what stands behind the live part). Lists
// here are exactly as long as the batch makes them. Everything is done token by token; nothing is clever.
// dcp_lengths and local_batches have files of their own. A new one: a function here.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace assay {

using Lengths = std::span<const int32_t>;  // tokens, one per request
// Per request the block of each page of its keys, ceil(kv_len / page_size) of them at least.
using Pages = std::vector<std::vector<int32_t>>;

std::vector<int32_t> cumulative(Lengths);  // [n + 1] from 0

// Where key j of a request lies: block * page_size + slot.
int32_t slot_of(const std::vector<int32_t>& pages, int32_t page_size, int32_t key);

struct ExpandedPages {
  std::vector<int32_t> cu_kv;    // [R + 1]
  std::vector<int32_t> indices;  // [sum of kv_len] slots
};
ExpandedPages expand_pages(Lengths kv_len, const Pages&, int32_t page_size);

// Groups in this order: decode (at most `threshold` rows), extend (more, with context), prefill.
inline constexpr int kBatchGroups = 3;
struct BatchGroup3 {
  std::vector<int32_t> requests, cu_q, cu_kv;
  int32_t rows = 0, largest_q = 0, smallest_q = 0, largest_kv = 0;
};
std::vector<BatchGroup3> split_batch(Lengths q_len, Lengths kv_len, int32_t threshold);

struct ContextSteps {
  int32_t tokens = 0;  // of a request in one step; 0 without context
  struct Step {
    std::vector<int32_t> starts, lengths, cu_kv, request;  // [R], [R], [R + 1], [tokens gathered]
  };
  std::vector<Step> steps;
};
ContextSteps chunk_metadata(Lengths q_len, Lengths kv_len, int32_t token_budget);

struct WindowKeys {
  std::vector<int32_t> lengths, starts, cu_kv, request;  // [R], [R], [R + 1], [keys]
};
// Keys from one before the first that a row sees on; window_left -1: all.
WindowKeys window_metadata(Lengths q_len, Lengths kv_len, int32_t window_left);

struct DecodeMetadata {
  std::vector<int32_t> lengths, cu_q, cu_kv;  // [R], [R + 1], [R + 1]
  Pages pages;                                // [R] of a request's own keys
};
// A row of a table as it stands in memory: the slots of a request's keys or, without `slots`, the blocks of
// their pages. Those of `encoder` tokens (none: empty) come first; blocks of own keys begin behind whole
// pages.
struct TableRows {
  std::function<int32_t(size_t request, int64_t entry)> at;
  bool slots = false;
  Lengths encoder;
};
DecodeMetadata decode_metadata(Lengths q_len, Lengths context, const TableRows&, int32_t page_size);

struct CascadeMetadata {
  int32_t prefix = 0;                 // tokens, whole pages
  std::vector<int32_t> prefix_pages;  // of the first request with keys
  std::vector<int32_t> suffix;        // [R] tokens
  Pages pages;                        // [R] behind the prefix
};
CascadeMetadata cascade_metadata(Lengths kv_len, const Pages&, int32_t page_size, int32_t prefix_tokens);

// Whether it pays to attend to a shared prefix as one request: the rule of enum assay_op, for attention
// without bias, window and chunks.
struct CascadeShape {
  int32_t heads_q = 1, heads_kv = 1;
  int32_t workers = 1;  // blocks that run at once
};
bool cascade_pays(int32_t prefix, Lengths q_len, const CascadeShape&);

// Per row the slots of what it sees: its drafts by `tree` (q_len x drafts bits per request, request after
// request; flat: q_len x kv_len, those of the drafts last), with `context` all keys before them first. Drafts
// are the last q_len * (drafted + 1) keys.
std::vector<std::vector<int32_t>> tree_tables(Lengths q_len, Lengths kv_len, const Pages&, int32_t page_size,
                                              std::span<const uint8_t> tree, bool context, bool flat = false,
                                              int32_t drafted = 0);

}  // namespace assay
