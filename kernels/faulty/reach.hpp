// SPDX-License-Identifier: Apache-2.0
// When a problem reaches a planted fault: the vocabulary the predicates of the fault tables are written in.
// Only the C problem is known here, no strides, page numbers, draft trees or values: where the truth depends
// on those, a predicate says yes when it can be so. It must never say no wrongly (faults_test.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/abi/assay_kernel.h"

namespace assay_faulty::reach {

// What every fault kernel's arithmetic shares (bases.hpp), and the parts its keys are split into.
inline constexpr int32_t kTile = 64, kParts = 4;

// A row and the keys it may see before a draft tree thins them out.
struct RowView {
  int32_t request, row, q_len, kv_len;
  int64_t position, begin, end;  // begin >= end: sees nothing
  bool tree;
  int64_t context() const { return int64_t{kv_len} - q_len; }
  bool empty() const { return begin >= end; }
  // The key is visible for certain, a draft of a tree only perhaps.
  bool sees(int64_t key) const { return begin <= key && key < end; }
};

RowView row_view(const assay_problem&, int32_t request, int32_t row);

template <typename F>
bool any_request(const assay_problem& p, F holds) {
  for (int32_t r = 0; r < p.requests; ++r)
    if (p.q_len[r] > 0 && holds(r, p.q_len[r], p.kv_len[r])) return true;
  return false;
}

// Whether some row of some request has the property.
template <typename F>
bool any_row(const assay_problem& p, F holds) {
  return any_request(p, [&](int32_t r, int32_t q_len, int32_t) {
    for (int32_t i = 0; i < q_len; ++i)
      if (holds(row_view(p, r, i))) return true;
    return false;
  });
}

inline bool paged(const assay_problem& p) { return p.op == ASSAY_OP_PAGED; }
inline int32_t group(const assay_problem& p) { return p.heads_q / p.heads_kv; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Causality applies under the causal mask, and within chunks.
inline bool causal(const assay_problem& p) { return p.mask == ASSAY_MASK_CAUSAL || p.chunk > 0; }
inline bool fp8_e4m3(int32_t format) { return format == ASSAY_FP8_E4M3 || format == ASSAY_FP8_E4M3FNUZ; }
inline bool quantized(int32_t format) { return format >= ASSAY_FP8_E4M3 && format <= ASSAY_INT8; }

bool any_visible(const assay_problem&);        // some row sees some key
int64_t tiles_seen(const RowView&);            // tiles that hold a visible key
int32_t part_of(const RowView&, int64_t key);  // which of kParts even parts
int32_t parts_seen(const RowView&);            // parts that hold a visible key
// Tiles that some row of a request needs are met by all its rows, which mask lanes in them.
bool masks_lanes(const RowView&);
bool several_parts(const assay_problem&);  // some row has two parts to merge
bool rescales(const assay_problem&);       // some row sees two tiles of one part
float default_scale(int32_t head_dim);     // 1 / sqrt, rounded once

}  // namespace assay_faulty::reach
