// SPDX-License-Identifier: Apache-2.0
// Reads the operands of a case the way a kernel has to: through the tensors' strides, the cache layout,
// the page table in memory and the scale tensors. Values are code * scale, exact in double (24 + 24 bits).
// Problem::pages is never looked at, so a wrong table in memory is seen, not papered over. A new layout
// is one case in `k_row`/`v_row`, a new table kind one case in `physical`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/attention/attention.hpp"

namespace assay {

// Position of a row, and of a key, counted from the request's first key: what masks and biases compare.
// Keys stand at 0, 1, ..., but drafts of a tree where their rows stand, once rows have positions.
int64_t row_offset(const Problem&, RowId);
inline bool drafts_by_row(const Problem& p) { return p.mask == ASSAY_MASK_TREE && !p.positions.empty(); }
int64_t key_offset(const Problem&, int request, int64_t key);

class OperandReader {
 public:
  // Checks that the lengths in the tensors are those of the problem. Both must outlive the reader.
  OperandReader(const Problem&, const HostOperands&);

  // Where a key and its value live: block and slot of a paged cache; prefill: the packed row, slot 0; a new
  // key that is read as it came: its packed row, slot kDense.
  static constexpr int64_t kDense = -1;
  struct Place {
    int64_t block = 0;
    int64_t slot = 0;
  };
  Place place(int request, int32_t position) const;

  // Dequantised vectors: head_dim_qk, head_dim_qk and head_dim_v values.
  void q(RowId, int32_t head, double* out) const;
  // Q without its scales, of whatever kind.
  void q_codes(RowId, int32_t head, double* out) const;
  void k_at(int request, Place, int32_t kv_head, double* out) const;
  void v_at(int request, Place, int32_t kv_head, double* out) const;
  void k(int request, int32_t position, int32_t kv_head, double* out) const {
    k_at(request, place(request, position), kv_head, out);
  }
  void v(int request, int32_t position, int32_t kv_head, double* out) const {
    v_at(request, place(request, position), kv_head, out);
  }
  // Whether every K and V vector is one run of codes of a format that coded_rows.hpp decodes, under one
  // scale: then `coded` serves in place of k_at and v_at.
  bool has_coded() const;
  // Codes of keys begin..end-1 and the factor of each; keys without `wanted` get zeros.
  struct Coded {
    const std::byte *k, *v;
    double k_scale, v_scale;
  };
  void coded(int request, int32_t begin, int32_t end, int32_t kv_head, const uint8_t* wanted,
             Coded* out) const;
  int32_t coded_v_format() const;
  // Size of the scale on a vector of Q, K or V: |value| = code * this at most. 1 without one, the largest of
  // them where each channel has its own.
  double q_scale_size(RowId, int32_t head) const;
  double k_scale_size(int request, int32_t position, int32_t kv_head) const;
  // Of operands with a scale for each channel: that of dimension d.
  double q_channel_scale(int32_t head, int32_t d) const;
  double k_channel_scale(int32_t kv_head, int32_t d) const;
  double v_scale_size(int request, int32_t position, int32_t kv_head) const;
  // Hint that k and v are read soon: pages lie scattered, so no hardware prefetcher guesses them.
  void prefetch(Place, int32_t kv_head) const;

  double sink(int32_t head) const;         // natural-log logit; the problem must have sinks
  double alibi_slope(int32_t head) const;  // the problem must have ALiBi
  // Entry (row, draft key) of the request's tree matrix.
  bool tree_visible(int request, int32_t row, int32_t draft) const;

 private:
  // The elements of one vector: element d at base + (d / run) * outer + (d % run) * inner.
  struct Row {
    int64_t base = 0;
    int64_t run = 0;
    int64_t outer = 0;
    int64_t inner = 0;
  };
  Row k_row(Place, int32_t kv_head) const;
  Row v_row(Place, int32_t kv_head) const;
  bool mla() const { return problem_.op == ASSAY_OP_PAGED && problem_.layout == ASSAY_LAYOUT_MLA; }
  // Whole factor of a vector of Q; every kind but CHANNEL.
  double q_factor(RowId, int64_t row, int32_t head) const;
  double kv_factor(const assay_tensor& scale, int32_t kind, float host, int request, Place,
                   int32_t kv_head) const;
  void scale_kv(const assay_tensor& scale, int32_t kind, float host, int request, Place, int32_t kv_head,
                int32_t dim, double* values) const;

  const Problem& problem_;
  const HostOperands operands_;  // a copy: callers hand over temporaries
  const assay_tensors& t_;
  const std::vector<std::byte> zeros_;  // a vector nobody sees, in any format
};

}  // namespace assay
