// SPDX-License-Identifier: Apache-2.0
// What a data op may store where it scales: intervals before the rounding to the stored format, from
// the declared error of the fp32 operation (assay_arithmetic::scaling_relative_error). Rounding is monotone,
// so the codes allowed are those from round_to(low) to round_to(high). Derivation: BOUNDS.md, "Building
// blocks".
#pragma once

#include <cstdint>

#include "harness/abi/assay_kernel.h"

namespace assay {

struct Interval {
  double low = 0, high = 0;
  static Interval point(double x) { return {x, x}; }
};

// Largest code of a quantised format (int8: 127), which a dynamic scale maps the largest magnitude to.
double largest_code(int32_t format);

// x / scale and code * scale; the operands are fp32 values. error 0: the fp32 result, to the bit. A scale of
// a power of two is exact for every method that errs by 2^-23 at most.
Interval quotient(double x, double scale, double error);
Interval product(double code, double scale, double error);
// max|x| / largest_code(format), from the largest magnitude of a row that is not zero.
Interval dynamic_scale(double largest, int32_t format, double error);

// Element offset, from the view's data, of (block, slot, head, dim) in a cache tensor of that layout.
int64_t cache_element(const assay_tensor&, int32_t layout, bool is_v, int64_t block, int64_t slot,
                      int64_t head, int64_t dim);

}  // namespace assay
