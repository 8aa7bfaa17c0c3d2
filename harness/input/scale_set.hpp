// SPDX-License-Identifier: Apache-2.0
// Quantisation scales of one operand, chosen from its values the way serving systems calibrate: the
// largest magnitude of each unit (tensor, head, request x head, token x head, channel) meets the largest
// code. A new granularity: how units are numbered in `unit`, its tensor shape in harness/ops/layouts.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/input/inputs.hpp"
#include "harness/input/value_source.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {

class ScaleSet {
 public:
  // Reads all values of the operand once (in parallel) unless its scale needs none of them.
  ScaleSet(const Problem&, const ValueSource&, Side);

  // Encodes one row of values (head_dim long) into codes of the operand's format. Returns the scale of the
  // row where it has one of its own (TOKEN_HEAD), else the common one; channels have no single scale: 1.
  // `values` is scaled in place. `token` is the row for q, the position for k and v.
  float encode_row(int request, int32_t token, int32_t head, double* values, std::byte* codes) const;

  float host_value() const { return kind_ == ASSAY_SCALE_HOST ? units_[0] : 1.0f; }
  // Writes the scale tensor, for every kind but TOKEN_HEAD, whose entries go where their rows go. `requests`:
  // whose scales the rows of a REQUEST_HEAD tensor are.
  void write(const TensorLayout&, std::byte* payload, const std::vector<RequestOrigin>& requests) const;

 private:
  size_t unit(int request, int32_t head) const;
  float token_scale(int request, int32_t token, int32_t head, const double* values) const;
  float scale_for(double largest) const;

  const Problem& p_;
  const ValueSource& source_;
  Side side_;
  int32_t kind_, format_, heads_, dims_;
  double max_code_ = 1;
  std::vector<float> units_;
};

}  // namespace assay
