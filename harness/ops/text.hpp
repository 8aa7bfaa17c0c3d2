// SPDX-License-Identifier: Apache-2.0
// Words for what an op reads and writes, for the descriptions ("assay describe LINE").
#pragma once

#include <string>

#include "harness/problem/problem.hpp"

namespace assay {

std::string quantization_text(int32_t format, int32_t scale);  // "int8, scale per head"
std::string kv_text(const Problem&);                           // "K bf16; V the front of K"
std::string attention_text(const Problem&);                    // heads, formats, scores: three lines

}  // namespace assay
