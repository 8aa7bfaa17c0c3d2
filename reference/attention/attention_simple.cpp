// SPDX-License-Identifier: Apache-2.0
// The definition of what assay calls attention: loops over rows, heads and keys, and every rule written
// once, in the order of the table in reference/README.md. Nothing here is clever or fast. A new rule is
// written here first, gets a hand-computed case in hand_cases_*.hpp, and only then a faster form elsewhere.
#include <cmath>
#include <limits>
#include <vector>

#include "reference/attention/attention.hpp"
#include "reference/attention/operands.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Where a row stands: as it says itself, or the last row at the last key (bottom-right aligned).
int64_t row_at(const Problem& p, RowId id) {
  if (!p.positions.empty()) return p.positions[id.request][id.row];
  const int64_t first = p.first_key.empty() ? 0 : p.first_key[id.request];
  return first + p.requests[id.request].context_len() + id.row;
}

// Where a key stands: one behind the other from the first, but a draft of a tree where its row says, and the
// drafts of steps before on that row's branch one before the other.
int64_t key_at(const Problem& p, int request, int64_t j) {
  const int64_t rows = p.requests[request].q_len;
  const int64_t context = p.requests[request].kv_len - rows * (p.drafted + 1);
  if (p.mask == ASSAY_MASK_TREE && !p.positions.empty() && j >= context)
    return p.positions[request][(j - context) % rows] - (p.drafted - (j - context) / rows);
  return (p.first_key.empty() ? 0 : p.first_key[request]) + j;
}

// Does row i see key j? Base mask, window and chunk must all agree.
bool sees(const Problem& p, const OperandReader& operands, RowId id, int64_t j) {
  // What all rows of a tree see; negative with more rows than keys.
  const int64_t context =
      p.requests[id.request].kv_len - int64_t{p.requests[id.request].q_len} * (p.drafted + 1);
  const int64_t position = row_at(p, id), at = key_at(p, id.request, j);
  switch (static_cast<assay_mask>(p.mask)) {
    case ASSAY_MASK_CAUSAL:
      if (at > position) return false;
      break;
    case ASSAY_MASK_FULL:   // bidirectional encoder: every key
    case ASSAY_MASK_CROSS:  // kv_len is the encoder's length: every key
      break;
    case ASSAY_MASK_TREE:
      // The prefix is visible to every draft token; among the drafts the matrix decides, diagonal included.
      if (j >= context && !operands.tree_visible(id.request, id.row, int32_t(j - context))) return false;
      break;
  }
  // Window: at most window_left keys before the position and window_right after it, both inclusive.
  if (p.window_left >= 0 && at < position - p.window_left) return false;
  if (p.window_right >= 0 && at > position + p.window_right) return false;
  // Chunk: only the position's own block of `chunk` tokens, and nothing after the position (so a position
  // before the first key, in no chunk, sees nothing and is never divided).
  if (p.chunk > 0 && (at > position || at / p.chunk != position / p.chunk)) return false;
  // One part of a split: positions stay, the other keys do not count.
  if (!p.only_keys.empty() && (j < p.only_keys[id.request].begin || j >= p.only_keys[id.request].end))
    return false;
  return true;
}

double score(const Problem& p, const OperandReader& operands, RowId id, int32_t head, int64_t j,
             const std::vector<double>& q, const std::vector<double>& k) {
  // 1. Scaled dot product of the stored operands.
  double dot = 0;
  for (int32_t d = 0; d < p.head_dim_qk; ++d) dot += q[d] * k[d];
  double s = double(p.softmax_scale) * dot;
  // 2. Soft cap.
  if (p.softcap > 0) s = double(p.softcap) * std::tanh(s / double(p.softcap));
  // 3. Position bias, after the cap, only for keys at or before the position.
  const int64_t distance = row_at(p, id) - key_at(p, id.request, j);
  if (p.alibi == ASSAY_ALIBI_LINEAR && distance >= 0) s -= operands.alibi_slope(head) * double(distance);
  if (p.alibi == ASSAY_ALIBI_SQRT && distance >= 0)
    s -= operands.alibi_slope(head) * std::sqrt(double(distance));
  return s;
}

}  // namespace

AttentionResult attention_simple(const Problem& p, const HostOperands& host, const std::vector<RowId>& rows) {
  const OperandReader operands(p, host);
  AttentionResult result;
  result.rows = rows;
  result.heads_q = p.heads_q;
  result.head_dim_v = p.head_dim_v;
  result.o.assign(rows.size() * p.heads_q * p.head_dim_v, 0.0);
  result.lse.assign(rows.size() * p.heads_q, -kInf);

  std::vector<double> q(p.head_dim_qk), k(p.head_dim_qk), v(p.head_dim_v);
  for (size_t n = 0; n < rows.size(); ++n) {
    for (int32_t head = 0; head < p.heads_q; ++head) {
      const int32_t kv_head = head / p.group();
      const int request = rows[n].request;
      operands.q(rows[n], head, q.data());

      std::vector<double> scores(p.requests[request].kv_len, -kInf);
      // A sink takes part in the softmax as a logit without a value.
      double largest = p.sinks ? operands.sink(head) : -kInf;
      for (int32_t j = 0; j < p.requests[request].kv_len; ++j) {
        if (!sees(p, operands, rows[n], j)) continue;
        operands.k(request, j, kv_head, k.data());
        scores[j] = score(p, operands, rows[n], head, j, q, k);
        largest = std::max(largest, scores[j]);
      }
      // Nothing visible and no sink: O stays 0 and LSE -inf.
      if (largest == -kInf) continue;

      double sum = p.sinks ? std::exp(operands.sink(head) - largest) : 0.0;
      double* o = &result.o[(n * p.heads_q + head) * p.head_dim_v];
      for (int32_t j = 0; j < p.requests[request].kv_len; ++j) {
        if (scores[j] == -kInf) continue;
        const double weight = std::exp(scores[j] - largest);
        sum += weight;
        operands.v(request, j, kv_head, v.data());
        for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] += weight * v[d];
      }
      for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] /= sum;
      result.lse[n * p.heads_q + head] = largest + std::log(sum);
    }
  }
  return result;
}

}  // namespace assay
