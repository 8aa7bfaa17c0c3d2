// SPDX-License-Identifier: Apache-2.0
// Checks over all rows of the outputs that need no reference, each answering with one line that says what is
// wrong and where, or with an empty string. A new way of being wrong is a function here and a call in the
// judge.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/check/verdict.hpp"

namespace assay {

// O and LSE of one run on the host; the tensors are views into the raw copies.
struct Outputs {
  std::vector<std::byte> o_raw, lse_raw;
  assay_tensor o{}, lse{};
};

std::string one_line(std::string text);

// NaN or infinity in O, NaN or +inf in the LSE.
std::string not_finite(const Problem&, const Outputs&);
// Equality of every element, bit for bit (padding of strided outputs left out).
bool same_bits(const Problem&, const Outputs&, const Outputs&);
std::string first_difference(const Problem&, const Outputs&, const Outputs&);
// kExact: O rounded to the output format must match exactly; +0 and -0 are one.
std::string inexact(const Problem&, const Outputs&, const std::vector<double>& exact_o);
// The worse of O and LSE, in words.
std::string out_of_bounds(const ErrorStats& o, const ErrorStats& lse);
// Verdict::check of that: "tier R", "lse D"; empty when nothing is bad.
std::string deciding_check(const ErrorStats& o, const ErrorStats& lse);
// Elements whose accepted interval is empty: then the tiers contradict each other, and nothing is proven.
std::string contradicting_bounds(const ErrorStats& o, const ErrorStats& lse);
// A declaration from which no bound follows (unknown formats, empty blocks, negative errors).
std::string impossible_arithmetic(const assay_arithmetic&);
// The same of a building block, which declares its exponential and its scaling only.
std::string impossible_block_arithmetic(const assay_arithmetic&);

// Elements that still hold the poison of the outputs after every run. The poisons differ between runs, so
// no written value can be mistaken for them.
class Unwritten {
 public:
  Unwritten(const Problem&, const assay_tensors& shapes);
  void after_run(const Outputs& got, const Outputs& poison);
  std::string reason() const;

 private:
  const Problem& problem_;
  std::vector<uint8_t> o_, lse_;  // 1 = held poison after every run so far
};

}  // namespace assay
