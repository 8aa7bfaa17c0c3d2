// SPDX-License-Identifier: Apache-2.0
// See field_values.hpp.
#include "harness/scenario/field_values.hpp"

#include "harness/problem/names.hpp"
#include "harness/scenario/limits.hpp"

namespace assay {
namespace {

template <typename Keep>
std::vector<Name> filtered(std::span<const Name> names, Keep keep) {
  std::vector<Name> out;
  for (const Name& name : names)
    if (keep(name.value)) out.push_back(name);
  return out;
}

}  // namespace

const std::vector<Name>& operand_formats() {
  static const std::vector<Name> names = filtered(format_names(), [](int32_t f) {
    return f == ASSAY_FP32 || format_is_float16(f) || format_is_quantized(f);
  });
  return names;
}
const std::vector<Name>& output_formats() {
  static const std::vector<Name> names =
      filtered(format_names(), [](int32_t f) { return f == ASSAY_FP32 || format_is_float16(f); });
  return names;
}
const std::vector<Name>& source_formats() {
  static const std::vector<Name> names = [] {
    std::vector<Name> list = output_formats();
    list.push_back({"codes", ASSAY_FORMAT_NONE});
    return list;
  }();
  return names;
}
const std::vector<Name>& paged_tables() {
  static const std::vector<Name> names =
      filtered(table_names(), [](int32_t t) { return t != ASSAY_TABLE_NONE; });
  return names;
}
const std::vector<Name>& granularities() {
  static const std::vector<Name> names =
      filtered(scale_names(), [](int32_t s) { return s != ASSAY_SCALE_NONE; });
  return names;
}

int32_t parse_name(Slice s, std::string_view what, std::span<const Name> names) {
  if (const auto value = value_of(names, s.text)) return *value;
  std::vector<std::string_view> candidates;
  for (const Name& name : names) candidates.push_back(name.text);
  throw TextError(s.offset, fmt::format("{}: unknown value \"{}\"{}; accepted: {}", what, s.text,
                                        did_you_mean(s.text, candidates), accepted(names)));
}

Quantization parse_quantization(Slice s, std::string_view what) {
  const size_t colon = s.text.find(':');
  Quantization out;
  out.format = parse_name(s.sub(0, colon), what, operand_formats());
  out.scale = format_is_quantized(out.format) ? ASSAY_SCALE_TENSOR : ASSAY_SCALE_NONE;
  if (colon == std::string_view::npos) return out;
  if (!format_is_quantized(out.format))
    throw TextError(s.offset + colon,
                    fmt::format("{}: {} values carry no scale; leave out \"{}\" or take one of the "
                                "fp8 formats or int8",
                                what, s.text.substr(0, colon), s.text.substr(colon)));
  out.scale = parse_name(s.sub(colon + 1), fmt::format("{}: scale", what), granularities());
  return out;
}

void print_quantization(const Quantization& q, std::string& out) {
  out += name_of(format_names(), q.format);
  if (q.scale == ASSAY_SCALE_NONE || q.scale == ASSAY_SCALE_TENSOR) return;
  out += ':';
  out += name_of(scale_names(), q.scale);
}

void parse_pair(Slice s, std::string_view what, int64_t high, int32_t& first, int32_t& second) {
  const size_t slash = s.text.find('/');
  first = static_cast<int32_t>(parse_integer(s.sub(0, slash), what, 1, high));
  second = first;
  if (slash != std::string_view::npos)
    second = static_cast<int32_t>(parse_integer(s.sub(slash + 1), what, 1, high));
}

void print_pair(int32_t first, int32_t second, std::string& out) {
  append_integer(out, first);
  if (second == first) return;
  out += '/';
  append_integer(out, second);
}

int32_t parse_window_side(Slice s, std::string_view what) {
  return static_cast<int32_t>(parse_count(s, what, -1, kMaxTokens));
}

int32_t parse_position(Slice s, std::string_view what, bool depth) {
  if (s.text == "none") return kNoPositions;
  if (s.text == "drawn") return kDrawnPositions;
  if (depth && s.text == "depth") return kDepthPositions;
  return static_cast<int32_t>(parse_count(s, what, 0, kMaxTokens));
}

void print_position(int32_t value, std::string& out) {
  if (value >= 0) return append_count(out, value);
  out += value == kNoPositions ? "none" : value == kDrawnPositions ? "drawn" : "depth";
}

std::string parse_bits(Slice v, std::string_view what) {
  if (v.text == "drawn") return "";
  for (size_t i = 0; i < v.text.size(); ++i) {
    const bool between = i > 0 && i + 1 < v.text.size() && v.text[i - 1] != '/';
    if (v.text[i] != '0' && v.text[i] != '1' && !(v.text[i] == '/' && between))
      throw TextError(v.offset + i,
                      fmt::format("{}: unexpected \"{}\"; accepted: drawn, or rows of 0 and 1 joined by /",
                                  what, v.text.substr(i, 1)));
  }
  return std::string(v.text);
}

double parse_magnitude(Slice s, std::string_view what, bool zero) {
  const double value = parse_real(s, what);
  if ((zero && value == 0) || (value >= kMinMagnitude && value <= kMaxMagnitude)) return value;
  throw TextError(s.offset,
                  fmt::format("{}: {} is out of range; expected {}a number from {} to {}", what, s.text,
                              zero ? "0 (off) or " : "auto or ", kMinMagnitude, kMaxMagnitude));
}

}  // namespace assay
