// SPDX-License-Identifier: Apache-2.0
// What the processes of a campaign say, one JSON object per line, told apart by the key "said". Before each
// kernel call they say what is about to run, so that the parent knows what a process died of.
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "harness/base/json_fields.hpp"

namespace assay::campaign {

struct Judging {
  uint64_t line = 0;  // of the campaign
  int suspect = 0;    // of the line
  std::string text, kernel, library;
};
struct Judged {
  std::string kernel, outcome, check, reason;
  bool useless = false;               // Verdict::useless
  double largest = 0, unrounded = 0;  // of O: ErrorStats::max_ratio and max_unrounded
};
// A line that cannot be built, for this reason: it counts nowhere.
struct Unbuilt {
  std::string reason;
};
struct LineDone {
  uint64_t line = 0;
};
// What was said against a kernel that is taken to be right. `line` is as small as it could be made, `first`
// the line that was drawn.
struct Alarm {
  std::string line, first, kernel, library, outcome, check, reason;
  bool operator==(const Alarm&) const = default;
};
using Message = std::variant<Judging, Judged, Unbuilt, LineDone, Alarm>;
using Say = std::function<void(const Message&)>;

}  // namespace assay::campaign

namespace assay {

template <>
struct JsonFields<campaign::Judging> {
  using T = campaign::Judging;
  static constexpr std::string_view name = "judging";
  static constexpr auto list =
      std::tuple(JsonField("line", &T::line), JsonField("suspect", &T::suspect), JsonField("text", &T::text),
                 JsonField("kernel", &T::kernel), JsonField("library", &T::library));
};
template <>
struct JsonFields<campaign::Judged> {
  using T = campaign::Judged;
  static constexpr std::string_view name = "judged";
  static constexpr auto list = std::tuple(
      JsonField("kernel", &T::kernel), JsonField("outcome", &T::outcome), JsonField("check", &T::check),
      JsonField("reason", &T::reason), JsonField("useless", &T::useless), JsonField("largest", &T::largest),
      JsonField("unrounded", &T::unrounded));
};
template <>
struct JsonFields<campaign::Unbuilt> {
  static constexpr std::string_view name = "unbuilt";
  static constexpr auto list = std::tuple(JsonField("reason", &campaign::Unbuilt::reason));
};
template <>
struct JsonFields<campaign::LineDone> {
  static constexpr std::string_view name = "line";
  static constexpr auto list = std::tuple(JsonField("line", &campaign::LineDone::line));
};
template <>
struct JsonFields<campaign::Alarm> {
  using T = campaign::Alarm;
  static constexpr std::string_view name = "alarm";
  static constexpr auto list =
      std::tuple(JsonField("line", &T::line), JsonField("first", &T::first), JsonField("kernel", &T::kernel),
                 JsonField("library", &T::library), JsonField("outcome", &T::outcome),
                 JsonField("check", &T::check), JsonField("reason", &T::reason));
};

}  // namespace assay
