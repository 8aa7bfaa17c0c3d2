// SPDX-License-Identifier: Apache-2.0
// Finds out by experiment how a matrix instruction adds: which products are added together, how many bits
// survive their alignment, how many the accumulator keeps, and where it rounds or cuts. The experiments are
// sums whose exact value is tiny because large terms cancel (method: Fasi et al., PeerJ CS 330; Xie et al.,
// arXiv 2511.10909). The result must then explain random dot products bit for bit, or says that it does not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/calibrate/step_model.hpp"

namespace assay {

// Runs many dot products on the device; same length as asked, in order.
using RunProducts = std::function<std::vector<float>(const std::vector<Dot>&)>;

struct ProductsFindings {
  // What the bounds take. FMA: every product is added in fp32, rounded to nearest; INT32: exact.
  assay_accumulator accumulator{};
  std::vector<std::vector<int32_t>> groups;  // as BlockModel; FMA: chains
  Order order = Order::kWithC;
  // The format's own range ends before the bits do: F is at least fraction_bits.
  bool fraction_bits_at_least = false;
  // The format's range hides which products are added together: one group of all is assumed.
  bool groups_hidden = false;
  // "toward zero", "to nearest", "down", or "not visible"; `last`: of the sum with c where c comes last.
  std::string alignment, rounding, last;
  bool keeps_subnormal_operands = false, keeps_subnormal_accumulator = false;
  // Random dot products computed on the device, and how many of them the findings explain to the bit. 0 of 0
  // for FMA, whose order is not looked for.
  int64_t tried = 0, explained = 0;
};

// `format` of the operands, `products` per instruction. InfrastructureError when the instruction does not
// even add small whole numbers; whatever `run` throws.
ProductsFindings find_products(int32_t format, int32_t products, const RunProducts& run, uint64_t seed = 1);

}  // namespace assay
