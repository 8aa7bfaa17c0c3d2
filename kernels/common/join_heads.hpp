// SPDX-License-Identifier: Apache-2.0
// Stage kernels of no op, join_heads: what comes in two tensors side by side, and as many heads as the next
// stage wants. source [rows, h, a] and rope [rows, g, b], or none, become o [rows, H, a + b]: head i of o is
// head floor(i h / H) of source and head floor(i g / H) of rope. So H = 16 of h = 4 holds each head four
// times, H = 4 of h = 16 takes every fourth, and g = 1 is for all heads. Elements are copied as they are;
// rows from cu_q[requests] on stay.
#pragma once

#include "kernels/common/data_op_operands.hpp"

namespace assay_kernels {

struct JoinedHeads {
  RowsView source, rope, o;  // rope.data null: none
  int32_t source_heads, rope_heads, heads;
  int32_t source_dims, dims;
  int64_t rows;
  const int32_t* live_rows;  // see row_is_live()
};

// Shapes and strides are those of the tensors. False where they are no such three.
inline bool make_joined_heads(const assay_problem& p, const assay_tensors& t, JoinedHeads* out) {
  const auto view = [](const assay_tensor& x) {
    RowsView v{};
    v.data = static_cast<unsigned char*>(x.data), v.format = x.format;
    v.element_bytes = element_bytes(x.format);
    v.row = x.stride[0], v.head = x.stride[1], v.dim = x.stride[2];
    return v;
  };
  JoinedHeads j{};
  j.source = view(t.source), j.o = view(t.o);
  if (t.rope.data != nullptr) j.rope = view(t.rope);
  const bool parts = j.rope.data != nullptr;
  j.source_heads = static_cast<int32_t>(t.source.shape[1]);
  j.rope_heads = parts ? static_cast<int32_t>(t.rope.shape[1]) : 1;
  j.heads = static_cast<int32_t>(t.o.shape[1]);
  j.source_dims = static_cast<int32_t>(t.source.shape[2]);
  j.dims = static_cast<int32_t>(t.o.shape[2]);
  j.rows = t.o.shape[0];
  if (t.cu_q.data != nullptr)
    j.live_rows = static_cast<const int32_t*>(t.cu_q.data) + p.requests * t.cu_q.stride[0];
  *out = j;
  return t.source.rank == 3 && t.o.rank == 3 && t.source.shape[0] >= j.rows &&
         t.source.format == t.o.format && (!parts || t.rope.format == t.o.format) &&
         j.source_dims + (parts ? t.rope.shape[2] : 0) == j.dims;
}

// Dimension d of a row and head of o.
ASSAY_INLINE void join_element(const JoinedHeads& j, int64_t row, int32_t head, int32_t d) {
  const bool second = d >= j.source_dims;
  const RowsView& from = second ? j.rope : j.source;
  const int64_t own = head * static_cast<int64_t>(second ? j.rope_heads : j.source_heads) / j.heads;
  const int64_t at = row * from.row + own * from.head + (second ? d - j.source_dims : d) * from.dim;
  const int64_t to = row * j.o.row + head * j.o.head + d * j.o.dim;
  switch (j.o.element_bytes) {
    case 1:
      j.o.data[to] = from.data[at];
      break;
    case 2:
      reinterpret_cast<uint16_t*>(j.o.data)[to] = reinterpret_cast<const uint16_t*>(from.data)[at];
      break;
    default:
      reinterpret_cast<uint32_t*>(j.o.data)[to] = reinterpret_cast<const uint32_t*>(from.data)[at];
  }
}

}  // namespace assay_kernels
