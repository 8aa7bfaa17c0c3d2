// SPDX-License-Identifier: Apache-2.0
// Findings in words, and declarations from which no bound follows. Each function answers with one line, or
// with an empty string.
#pragma once

#include <string>
#include <vector>

#include "harness/check/verdict.hpp"

namespace assay {

std::string one_line(std::string text);

// A known answer: O rounded to the output format must match exactly in all rows; +0 and -0 are one.
std::string inexact(const Problem&, const assay_tensor& o, const std::vector<double>& exact_o);
// The worse of values and marks, which are called as said ("O" and "LSE").
std::string out_of_bounds(const char* value, const ErrorStats& values, const char* mark,
                          const ErrorStats& marks);
// What is said of the values beside wrong marks that explain them: "; O right in all 448".
std::string beside_marks(const char* value, const ErrorStats& values);
// Verdict::check of that: "tier R", "lse D"; empty when nothing is bad.
std::string deciding_check(const ErrorStats& o, const ErrorStats& lse);
// Elements whose accepted interval is empty: then the tiers contradict each other, and nothing is proven.
std::string contradicting_bounds(const ErrorStats& o, const ErrorStats& lse);
// Elements of which the bounds say nothing: then nothing is proven either.
std::string unbounded_elements(const ErrorStats& values, const ErrorStats& marks);
// A declaration from which no bound follows (unknown formats, empty blocks, negative errors).
std::string impossible_arithmetic(const assay_arithmetic&);
// The same of a data op, which declares its exponential and its scaling only.
std::string impossible_block_arithmetic(const assay_arithmetic&);

}  // namespace assay
