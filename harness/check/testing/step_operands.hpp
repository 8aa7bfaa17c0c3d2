// SPDX-License-Identifier: Apache-2.0
// How whole steps that are wrong in one way read their operands: one element at indexes, as a number.
#pragma once

#include "harness/abi/assay_kernel.h"
#include "kernels/common/formats.hpp"

namespace step_operands {

template <class... Index>
int64_t offset(const assay_tensor& t, Index... index) {
  int64_t sum = 0;
  int axis = 0;
  ((sum += int64_t{index} * t.stride[axis++]), ...);
  return sum;
}
template <class... Index>
float real(const assay_tensor& t, Index... index) {
  return assay_kernels::load_element(static_cast<const unsigned char*>(t.data), offset(t, index...),
                                     t.format);
}
template <class... Index>
int32_t whole(const assay_tensor& t, Index... index) {
  return static_cast<const int32_t*>(t.data)[offset(t, index...)];
}

}  // namespace step_operands
