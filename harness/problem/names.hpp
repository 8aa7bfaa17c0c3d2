// SPDX-License-Identifier: Apache-2.0
// The spelling of every enumerator of the C header, in one table per enumeration: the scenario
// language, the row columns, the support matrix and error texts all take names from here (those of ops:
// harness/ops/op.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "harness/abi/assay_kernel.h"

namespace assay {

struct Name {
  std::string_view text;
  int32_t value;
};

std::span<const Name>
format_names();  // fp32 bf16 fp16 fp8_e4m3 fp8_e5m2 fp8_e4m3fnuz fp8_e5m2fnuz int8 (uint8 int32 int64)
std::span<const Name> mask_names();      // causal full cross tree
std::span<const Name> alibi_names();     // none linear sqrt
std::span<const Name> scale_names();     // none tensor host head request_head token_head channel
std::span<const Name> layout_names();    // nhd hnd x shuffled mla
std::span<const Name> table_names();     // none block csr token
std::span<const Name> relation_names();  // pages order alone split chunked window sink strides

// "?" when the value has no name (never throws: used in error texts).
std::string_view name_of(std::span<const Name> names, int32_t value);
std::optional<int32_t> value_of(std::span<const Name> names, std::string_view text);
// "causal, full, cross, tree": for messages that list what is accepted.
std::string accepted(std::span<const Name> names);

int format_bytes(int32_t format);          // bytes per element; 0 for NONE
bool format_is_float16(int32_t format);    // bf16 or fp16
bool format_is_fp8(int32_t format);        // one of the four
bool format_is_quantized(int32_t format);  // fp8 or int8: carries a scale

}  // namespace assay
