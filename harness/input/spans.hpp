// SPDX-License-Identifier: Apache-2.0
// How much is written at once (runs of elements that lie side by side, the size from which work is shared
// among threads), and what may be written at all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

// Work below this many elements stays on one thread: waking others costs more, above all on a busy machine.
inline constexpr int64_t kParallelElements = 1 << 16;

// The request that a packed row is of, where `first` holds the first row of each and their number.
inline int request_of_row(std::span<const int32_t> first, int64_t row) {
  return static_cast<int>(std::upper_bound(first.begin(), first.end(), row) - first.begin()) - 1;
}

// `count` codes of `bytes` bytes each, side by side, to places `stride` codes apart.
inline void spread(const std::byte* codes, int bytes, int64_t count, int64_t stride, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * stride * bytes, codes + i * bytes, bytes);
}

// The most elements that lie side by side along the last logical axis (dim) of a cache row: the whole
// row, x elements of a packed K, or 1.
template <class Offset>
int32_t contiguous_run(const Offset& offset, int32_t dims) {
  int32_t run = 1;
  while (run < dims && offset(run) == offset(0) + run) ++run;
  return run;
}

// Values beyond the largest number of a format become that number: with an infinite operand nothing is true
// of any kernel. Codes are left alone, they end at their last one.
inline void keep_finite(int32_t format, std::span<double> values) {
  if (format_is_quantized(format)) return;
  const double most = format_info(format).max_finite;
  for (double& x : values) x = std::clamp(x, -most, most);
}
// The same of values that come in one format and are stored in another: 65,504, the last number of fp16, is
// 65,536 in bf16.
inline void keep_finite(int32_t format, int32_t stored, std::span<double> values) {
  keep_finite(format, values);
  if (format_is_quantized(stored)) return;
  const double most = format_info(stored).max_finite;
  double within = round_to(format, most);
  if (within > most) within = most * (1 - 2 * format_info(format).unit_roundoff);
  for (double& x : values) x = std::clamp(x, -within, within);
}

}  // namespace assay
