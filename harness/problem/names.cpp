// SPDX-License-Identifier: Apache-2.0
// The one table per enumeration that gives every enumerator its spelling. Everything that prints or
// parses a name looks here, so a new enumerator needs one line here and nothing elsewhere. Tables
// keep the order of the C header, because messages list accepted names in table order.
#include "harness/problem/names.hpp"

#include "harness/problem/problem.hpp"

namespace assay {
namespace {

constexpr Name kFormats[] = {{"fp32", ASSAY_FP32},
                             {"bf16", ASSAY_BF16},
                             {"fp16", ASSAY_FP16},
                             {"fp8_e4m3", ASSAY_FP8_E4M3},
                             {"fp8_e5m2", ASSAY_FP8_E5M2},
                             {"fp8_e4m3fnuz", ASSAY_FP8_E4M3FNUZ},
                             {"fp8_e5m2fnuz", ASSAY_FP8_E5M2FNUZ},
                             {"int8", ASSAY_INT8},
                             {"uint8", ASSAY_UINT8},
                             {"int32", ASSAY_INT32},
                             {"int64", ASSAY_INT64}};
constexpr Name kMasks[] = {{"causal", ASSAY_MASK_CAUSAL},
                           {"full", ASSAY_MASK_FULL},
                           {"cross", ASSAY_MASK_CROSS},
                           {"tree", ASSAY_MASK_TREE}};
constexpr Name kAlibi[] = {
    {"none", ASSAY_ALIBI_NONE}, {"linear", ASSAY_ALIBI_LINEAR}, {"sqrt", ASSAY_ALIBI_SQRT}};
constexpr Name kScales[] = {{"none", ASSAY_SCALE_NONE},
                            {"tensor", ASSAY_SCALE_TENSOR},
                            {"host", ASSAY_SCALE_HOST},
                            {"head", ASSAY_SCALE_HEAD},
                            {"request_head", ASSAY_SCALE_REQUEST_HEAD},
                            {"token_head", ASSAY_SCALE_TOKEN_HEAD},
                            {"channel", ASSAY_SCALE_CHANNEL}};
constexpr Name kLayouts[] = {{"nhd", ASSAY_LAYOUT_NHD},
                             {"hnd", ASSAY_LAYOUT_HND},
                             {"x", ASSAY_LAYOUT_X},
                             {"shuffled", ASSAY_LAYOUT_SHUFFLED},
                             {"mla", ASSAY_LAYOUT_MLA}};
constexpr Name kTables[] = {{"none", ASSAY_TABLE_NONE},
                            {"block", ASSAY_TABLE_BLOCK},
                            {"csr", ASSAY_TABLE_CSR},
                            {"token", ASSAY_TABLE_TOKEN}};
constexpr Name kRelations[] = {{"pages", kRelatePages},     {"order", kRelateOrder},
                               {"alone", kRelateAlone},     {"split", kRelateSplit},
                               {"chunked", kRelateChunked}, {"window", kRelateWindow},
                               {"sink", kRelateSink},       {"strides", kRelateStrides}};

}  // namespace

std::span<const Name> format_names() { return kFormats; }
std::span<const Name> mask_names() { return kMasks; }
std::span<const Name> alibi_names() { return kAlibi; }
std::span<const Name> scale_names() { return kScales; }
std::span<const Name> layout_names() { return kLayouts; }
std::span<const Name> table_names() { return kTables; }
std::span<const Name> relation_names() { return kRelations; }

std::string_view name_of(std::span<const Name> names, int32_t value) {
  for (const Name& name : names)
    if (name.value == value) return name.text;
  return "?";
}

std::optional<int32_t> value_of(std::span<const Name> names, std::string_view text) {
  for (const Name& name : names)
    if (name.text == text) return name.value;
  return std::nullopt;
}

std::string accepted(std::span<const Name> names) {
  std::string list;
  for (const Name& name : names) {
    if (!list.empty()) list += ", ";
    list += name.text;
  }
  return list;
}

int format_bytes(int32_t format) {
  switch (static_cast<assay_format>(format)) {
    case ASSAY_INT64:
      return 8;
    case ASSAY_FP32:
    case ASSAY_INT32:
      return 4;
    case ASSAY_BF16:
    case ASSAY_FP16:
      return 2;
    case ASSAY_FP8_E4M3:
    case ASSAY_FP8_E5M2:
    case ASSAY_FP8_E4M3FNUZ:
    case ASSAY_FP8_E5M2FNUZ:
    case ASSAY_INT8:
    case ASSAY_UINT8:
      return 1;
    case ASSAY_FORMAT_NONE:
      break;
  }
  return 0;
}

bool format_is_float16(int32_t format) { return format == ASSAY_BF16 || format == ASSAY_FP16; }

bool format_is_fp8(int32_t format) {
  return format == ASSAY_FP8_E4M3 || format == ASSAY_FP8_E5M2 || format == ASSAY_FP8_E4M3FNUZ ||
         format == ASSAY_FP8_E5M2FNUZ;
}

bool format_is_quantized(int32_t format) { return format_is_fp8(format) || format == ASSAY_INT8; }

}  // namespace assay
