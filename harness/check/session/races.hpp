// SPDX-License-Identifier: Apache-2.0
// Races, found without looking into a kernel: the same call again and again beside disturbances, outputs and
// workspace poisoned anew each time, and whatever comes out asked of whoever judged it before. A kernel that
// is right under every order of its threads cannot differ, so there are no false alarms; a race that no
// disturbance brings out stays unseen.
#pragma once

#include <cstdint>
#include <functional>

#include "harness/check/session/session.hpp"
#include "harness/device/disturber.hpp"

namespace assay {

// Why outputs are not what they should be; empty when they are.
using JudgeOutputs = std::function<Objection(Snapshot)>;

// Other values in the inputs, on the host and the device, and when asked again those of before. False, and
// nothing done, where there are none to be had.
using TurnValues = std::function<bool()>;

struct RaceSearch {
  int64_t repetitions = 0;
  uint64_t seed = 0;
  // Called now and then, before the next few repetitions, with what the undisturbed call took (0: not known
  // yet); may be empty.
  std::function<void(double call_s)> going_on;
};
// Calls between two of going_on(), at most; those on other values come on top.
constexpr int64_t kRacesInARow = 8;

// Repeats a call of a kernel that has run; a few repetitions are undisturbed. Check "race": names the
// repetition, the disturbance, and what differed. The session's memory is as lay() left it, poison and all.
Objection find_races(Session&, const Disturber&, const RaceSearch&, const JudgeOutputs&, const TurnValues&);

}  // namespace assay
