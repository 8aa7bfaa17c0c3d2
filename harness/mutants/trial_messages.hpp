// SPDX-License-Identifier: Apache-2.0
// What the processes of a campaign say, one JSON object per line, told apart by the key "said". Before each
// kernel call they say what is about to run, so that the parent knows what a process died of.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "harness/base/json_fields.hpp"
#include "harness/mutants/score.hpp"

namespace assay {

struct AboutToRun {
  int task = 0;  // index of the fault, number of the legal pair
  std::string line;
};
struct FaultDone {
  int fault = 0;
  FaultTrial trial;
};
// A fault on the peers' inputs.
struct PeersDone {
  int fault = 0;
  PeerMarks peers{};
};
// Largest and median error over its bound.
struct ErrorRatios {
  double largest = 0, median = 0;
};
struct LegalDone {
  int variant = 0, pair = 0;
  std::string line, outcome, check, reason;
  std::optional<ErrorRatios> o, lse;  // where elements were compared
  std::vector<PeerHealth> peers;      // their rules on it, by peer; empty: they were not asked
};
using TrialMessage = std::variant<AboutToRun, FaultDone, PeersDone, LegalDone>;
using SayTrial = std::function<void(const TrialMessage&)>;

template <>
struct JsonCodec<PeerMarks> {
  static nlohmann::json encode(const PeerMarks& marks) {
    nlohmann::json list = nlohmann::json::array();
    for (const PeerMark mark : marks) list.push_back(static_cast<int>(mark));
    return list;
  }
  static void decode(const nlohmann::json& j, PeerMarks& marks, const JsonPlace& at) {
    if (!j.is_array() || j.size() != marks.size()) json_mistyped(at, j, "a mark for each peer");
    for (size_t i = 0; i < marks.size(); ++i)
      marks[i] = static_cast<PeerMark>(whole_of(j[i], 0, static_cast<int>(PeerMark::kKilled), at));
  }
};
template <>
struct JsonFields<AboutToRun> {
  static constexpr std::string_view name = "running";
  static constexpr auto list =
      std::tuple(JsonField("task", &AboutToRun::task), JsonField("line", &AboutToRun::line));
};
template <>
struct JsonFields<FaultTrial> {
  using T = FaultTrial;
  static constexpr std::string_view name = "trial of a fault";
  static constexpr auto list =
      std::tuple(JsonField("done", &T::done), JsonField("lines", &T::lines), JsonField("killed", &T::killed),
                 JsonField("o_rejected", &T::o_rejected), JsonField("check", &T::check),
                 JsonField("reason", &T::reason), JsonField("line", &T::line), JsonField("peers", &T::peers));
};
template <>
struct JsonFields<FaultDone> {
  static constexpr std::string_view name = "fault";
  static constexpr auto list =
      std::tuple(JsonField("fault", &FaultDone::fault), JsonField("trial", &FaultDone::trial));
};
template <>
struct JsonFields<PeersDone> {
  static constexpr std::string_view name = "peers";
  static constexpr auto list =
      std::tuple(JsonField("fault", &PeersDone::fault), JsonField("peers", &PeersDone::peers));
};
template <>
struct JsonFields<ErrorRatios> {
  static constexpr std::string_view name = "ratios";
  static constexpr auto list =
      std::tuple(JsonField("largest", &ErrorRatios::largest), JsonField("median", &ErrorRatios::median));
};
template <>
struct JsonFields<PeerHealth> {
  static constexpr std::string_view name = "health of a peer";
  static constexpr auto list =
      std::tuple(JsonField("cases", &PeerHealth::cases), JsonField("rejected", &PeerHealth::rejected));
};
template <>
struct JsonFields<LegalDone> {
  using T = LegalDone;
  static constexpr std::string_view name = "legal";
  static constexpr auto list = std::tuple(
      JsonField("variant", &T::variant), JsonField("pair", &T::pair), JsonField("line", &T::line),
      JsonField("outcome", &T::outcome), JsonField("check", &T::check), JsonField("reason", &T::reason),
      JsonField("o", &T::o), JsonField("lse", &T::lse), JsonSome("peers", &T::peers));
};

}  // namespace assay
