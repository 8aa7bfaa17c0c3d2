// SPDX-License-Identifier: Apache-2.0
// See said.hpp. Members are compared, not what lies between them, which a kernel that assigns a whole struct
// may leave as it likes; and names by their text, not by where it stands. A member that is missing here does
// not compile.
#include "harness/check/session/said.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "harness/check/expectations/reasons.hpp"

namespace assay {
namespace {

auto members(const assay_accumulator& of) {
  const auto& [kind, block, fraction_bits, mantissa_bits] = of;
  return std::make_tuple(kind, block, fraction_bits, mantissa_bits);
}

// In the struct's order.
#define ASSAY_ARITHMETIC_MEMBERS                                                                            \
  struct_size, qk, pv, promote_pv, tile_keys, tile_reverse, splits, row_sum_chain, p_format, p_truncated,   \
      row_sum_from_rounded_p, dequant_format, partial_format, partial_lse_format, rescale_lag_log2,         \
      p_offset_log2, exp_relative_error, tanh_relative_error, q_rounding, order_declared, split_keys,       \
      sink_first, p_int8_tile_max, dequant_replayed, exp_poly_every, exp_poly_relative_error,               \
      scaling_relative_error, qk_instruction, pv_instruction, exp_instruction, tanh_instruction,            \
      tanh_absolute_error, log_absolute_error, log_relative_error, bias_form, row_sum, q_rounding_absolute, \
      q_replayed_format, q_replayed_factor, p_roundings, partial_roundings, split_interleaved, splits_vary, \
      promote_every, dense_new_keys, item_rows, shares, share_tiles, share_turns, q_replayed_scales,        \
      rescale_inexact, chained_requests, weights_lse_format, merge_lse_format
#define ASSAY_AS_TEXT(...) #__VA_ARGS__
#define ASSAY_NAMES(members) ASSAY_AS_TEXT(members)

template <class T>
auto comparable(const T& member) {
  if constexpr (std::is_same_v<T, assay_accumulator>)
    return members(member);
  else if constexpr (std::is_same_v<T, const char*>)
    return std::string_view(member != nullptr ? member : "");
  else
    return member;
}
template <class... T>
auto all_comparable(const T&... member) {
  return std::make_tuple(comparable(member)...);
}
auto members(const assay_arithmetic& of) {
  const auto& [ASSAY_ARITHMETIC_MEMBERS] = of;
  return all_comparable(ASSAY_ARITHMETIC_MEMBERS);
}

// An accumulator's parts as "0/16/25/23"; a name as far as a row has room for it.
template <class T>
std::string value_text(const T& value) {
  constexpr size_t kLongestName = 64;
  if constexpr (std::is_arithmetic_v<T>)
    return fmt::format("{}", value);
  else if constexpr (std::is_same_v<T, std::string_view>)
    return std::string(value.substr(0, kLongestName));
  else
    return std::apply([](const auto&... part) { return fmt::format("{}/{}/{}/{}", part...); }, value);
}

}  // namespace

std::string declaration_text(const Said& said) {
  if (!said.declares) return "none";
  std::string all;
  std::string_view names = ASSAY_NAMES(ASSAY_ARITHMETIC_MEMBERS);
  const auto add = [&](const auto& value, const auto& usual) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 2));
    if (value != usual) all += fmt::format("{}{}={}", all.empty() ? "" : " ", name, value_text(value));
  };
  std::apply(
      [&](const auto&... value) {
        std::apply([&](const auto&... usual) { (add(value, usual), ...); },
                   members(assay_default_arithmetic()));
      },
      members(said.arithmetic));
  return all.empty() ? "defaults" : one_line(all);
}

Said what_it_says(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem) {
  Said said;
  said.arithmetic = assay_default_arithmetic();
  said.declares = call_arithmetic(backend, kernel, problem, said.arithmetic);
  said.workspace = call_workspace(kernel, problem);
  return said;
}

std::string otherwise(const Said& before, const Said& now) {
  if (before.declares != now.declares || members(before.arithmetic) != members(now.arithmetic))
    return "declares another arithmetic when it is asked again";
  if (before.workspace.bytes != now.workspace.bytes)
    return fmt::format("workspace_bytes says {}, and {} when it is asked again", before.workspace.bytes,
                       now.workspace.bytes);
  if (before.workspace.zeroed_bytes != now.workspace.zeroed_bytes)
    return fmt::format("workspace_zeroed_bytes says {}, and {} when it is asked again",
                       before.workspace.zeroed_bytes, now.workspace.zeroed_bytes);
  return "";
}

}  // namespace assay
