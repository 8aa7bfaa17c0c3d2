// SPDX-License-Identifier: Apache-2.0
// Attention in double precision, the judge of every kernel. Two implementations: `attention_simple`
// states every rule once in three loops and is slow; `attention_fast` (Eigen, OpenMP) is tested
// against it. Both read the *stored* operands (codes times scales), so a quantised cache is not an
// error source here.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

struct RowId {
  int32_t request = 0;
  int32_t row = 0;  // 0 <= row < q_len
  bool operator==(const RowId&) const = default;
};

// Host operands with the host scale values (used for scale kind HOST).
struct HostOperands {
  const assay_tensors* tensors = nullptr;  // data pointers are host memory
  float q_scale_host = 1, k_scale_host = 1, v_scale_host = 1;
  // Of a step, per request: 1 where its rows see its new keys, the last q_len ones, as rows of dense_k and
  // dense_v and not in the cache; twice the format more that keys in the cache were gathered to. Null: 0.
  const std::vector<uint8_t>* dense_new_keys = nullptr;
};

// Which rows are judged. Keys are never sampled: every selected row uses all its keys.
struct RowSelection {
  std::vector<RowId> rows;  // ascending (request, row)
  int64_t total_rows = 0;
  bool sampled() const { return static_cast<int64_t>(rows.size()) < total_rows; }
};
// All rows while the work (sum over rows of visible keys x heads_q) stays below `budget`; otherwise
// edges (first and last row of each of the first/last/longest/shortest requests; rows whose position
// or visible range meets a window, chunk, page, tile (64, 128, 256) or 256-token split edge, +-1; rows with
// no visible key) and then seeded random rows until the budget is used.
RowSelection select_rows(const Problem&, double budget_row_keys);

// Results for n selected rows. o [n, heads_q, head_dim_v], lse [n, heads_q] (natural log, -inf for a row
// that sees nothing and has no sink; then o = 0).
struct AttentionResult {
  std::vector<RowId> rows;
  int32_t heads_q = 0, head_dim_v = 0;
  std::vector<double> o;
  std::vector<double> lse;
  double o_at(int64_t n, int32_t head, int32_t dim) const {
    return o[(n * heads_q + head) * head_dim_v + dim];
  }
  double lse_at(int64_t n, int32_t head) const { return lse[n * heads_q + head]; }
};

AttentionResult attention_simple(const Problem&, const HostOperands&, const std::vector<RowId>&);
AttentionResult attention_fast(const Problem&, const HostOperands&, const std::vector<RowId>&);

// The same for many rows at the price of one KV head: blocks of neighbouring rows are attended in the query
// heads of a single KV head each, drawn by the problem's seed. `kv_head` gets that of every row; the other
// heads of a row hold nothing.
AttentionResult attention_in_turn(const Problem&, const HostOperands&, const std::vector<RowId>&,
                                  std::vector<int32_t>* kv_head);

// The stored operands of one request and KV head, dequantised: k [kv_len, head_dim_qk], v [kv_len,
// head_dim_v], row-major, gathered through the page table where there is one. Unquantised formats: exact.
struct DenseKv {
  std::vector<double> k, v;
};
DenseKv gather_kv(const Problem&, const HostOperands&, int request, int32_t kv_head);
// q [heads_q, head_dim_qk] of one row, dequantised.
std::vector<double> gather_q(const Problem&, const HostOperands&, RowId);

}  // namespace assay
