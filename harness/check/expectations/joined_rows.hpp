// SPDX-License-Identifier: Apache-2.0
// Rows that come in two tensors, as one: latent rows of a step and their rope, halves of a head's projection
// and what all heads share. The judge's attention reads them so, and explain's halves of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "harness/abi/assay_problem.h"
#include "harness/problem/names.hpp"

namespace assay {

// [rows, heads, dims of both], dense; its memory is the caller's to give.
inline assay_tensor joined_rows(const assay_tensor& first, const assay_tensor& rest) {
  assay_tensor t = first;
  t.shape[2] += rest.shape[2];
  t.stride[2] = 1, t.stride[1] = t.shape[2], t.stride[0] = t.shape[1] * t.shape[2];
  return t;
}
inline int64_t joined_bytes(const assay_tensor& joined) {
  return joined.shape[0] * joined.stride[0] * format_bytes(joined.format);
}

// Writes joined_bytes() to `to`: `rest` behind the dimensions of `first`, of one head for all where it has
// one. Elements are read from the given memory, wherever the tensors themselves say that they lie.
inline void join_rows(const assay_tensor& first, const std::byte* first_data, const assay_tensor& rest,
                      const std::byte* rest_data, std::byte* to) {
  const assay_tensor t = joined_rows(first, rest);
  const auto bytes = static_cast<int64_t>(format_bytes(t.format));
  for (int64_t row = 0; row < t.shape[0]; ++row)
    for (int64_t head = 0; head < t.shape[1]; ++head)
      for (int64_t d = 0; d < t.shape[2]; ++d, to += bytes) {
        const bool in_first = d < first.shape[2];
        const assay_tensor& from = in_first ? first : rest;
        const int64_t h = in_first || rest.shape[1] > 1 ? head : 0, own = in_first ? d : d - first.shape[2];
        const int64_t at = row * from.stride[0] + h * from.stride[1] + own * from.stride[2];
        std::memcpy(to, (in_first ? first_data : rest_data) + at * bytes, static_cast<size_t>(bytes));
      }
}

}  // namespace assay
