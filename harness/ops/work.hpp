// SPDX-License-Identifier: Apache-2.0
// Useful work of a case, counted exactly from the mask: what a perfect kernel could not avoid. Padded
// tiles, masked pairs and cache slots that no row sees are not work, so a kernel that skips them shows a
// higher rate. What an op adds up stands in its description; the parts it adds up are here.
#pragma once

#include <cstdint>

#include "harness/problem/problem.hpp"

namespace assay {

// What TFLOP/s and GB/s divide by. Bytes: every operand byte once (pages shared by requests once, MLA's V as
// part of K, keys no row sees not at all, table entries of every page of a request).
struct Work {
  double flops = 0;           // 2 (d_qk + d_v) per visible (row, key, query head)
  double kv_bytes = 0;        // visible K and V bytes with their scales, each once
  double total_bytes = 0;     // plus Q, O, LSE, tables
  int64_t tokens = 0;         // sum of q_len
  int64_t visible_pairs = 0;  // row x key, one head
};
Work work_of(const Problem&);

// How much arithmetic a case is, before anything of it has run: what selections by size compare (--largest of
// a run, --cost of mutants). A property of the line, not of a clock, so that every machine selects the same.
// Of attention: (row, key) pairs x query heads x (d_qk + d_v); of the other ops 0. Pairs are those of
// visible_range(), so drafts under a tree mask count as if each saw the others: a suite is measured before
// every run that selects by size.
double multiply_adds(const Problem&);

// Parts of the above, for descriptions.
// Of ops on lists: every element of every operand once.
Work list_work(const Problem&);
// Of attention that writes O and LSE `results` times per head.
Work attention_work(const Problem&, double results);
double attention_multiply_adds(const Problem&);
// Cached rows of K and V with their scales, each of p.total_q() once; of a latent cache K alone.
double cached_row_bytes(const Problem&);
// The same rows as they come (dense_k, dense_v, of two sources together one latent row), with their slots.
double new_row_bytes(const Problem&);
// Bytes of a scale tensor; tokens: how many tokens a per-token granularity has values for.
double scale_bytes(int32_t kind, double heads, double dim, double requests, double tokens);

}  // namespace assay
