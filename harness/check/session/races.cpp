// SPDX-License-Identifier: Apache-2.0
// See races.hpp.
#include "harness/check/session/races.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "harness/base/error.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

// Stretches of equal poison: what it costs to bring the inputs to the device again is shared.
constexpr Poison kPoisons[] = {Poison::kNaN, Poison::kHigh, Poison::kLow};
constexpr int64_t kStretches = std::size(kPoisons);
constexpr double kAtLeastUs = 150, kTimes = 2;  // a disturbance: so many times the undisturbed call
constexpr uint64_t kTurnedEvery = 8;            // in the mean
// Other values bring all inputs to the device twice, which of a large cache takes as long as a hundred calls:
// so often at least, and then while it takes no more than this share of the time.
constexpr int kTurnedLeast = 2;
constexpr double kTurnedShare = 0.25;
constexpr uint64_t kLongestPauseUs = 300;  // before every fourth call: an idle device slows its clock

double us_since(Clock::time_point start) {
  return 1e6 * std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Objection find_races(Session& session, const Disturber& disturber, const RaceSearch& search,
                     const JudgeOutputs& judge, const TurnValues& turn) {
  const int64_t repetitions = search.repetitions;
  std::mt19937_64 random(search.seed);
  const int64_t stretch = std::max<int64_t>(2, (repetitions + kStretches - 1) / kStretches);
  std::optional<Snapshot> calm;  // what the first call of the stretch left
  double call_us = 0, turned_us = 0;
  int turned = 0;
  const auto begun = Clock::now();
  const auto may_turn = [&] { return turned < kTurnedLeast || turned_us < kTurnedShare * us_since(begun); };
  for (int64_t i = 0; i < repetitions; ++i) {
    if ((i % kRacesInARow == 0 || i == 1) && search.going_on) search.going_on(1e-6 * call_us);
    const bool first = i % stretch == 0;
    if (first)
      session.lay(kPoisons[i / stretch % std::size(kPoisons)]);
    else
      session.poison_outputs();
    // What a call leaves behind serves the next one by chance, unless it stands for other values.
    const bool drawn_to_turn = !first && random() % kTurnedEvery == 0;
    if (const auto start = Clock::now(); drawn_to_turn && may_turn() && turn()) {
      const CallResult between = session.run();
      turn();
      session.poison_outputs();
      ++turned, turned_us += us_since(start);
      if (!between.ok()) return {"race", "fails on other values between repetitions: " + between.error};
    }
    const int32_t kind = first ? -1 : disturber.kinds()[random() % disturber.kinds().size()];
    const uint64_t drawn = random(), pause = random() % 4 == 0 ? random() % kLongestPauseUs : 0;
    if (pause > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause));
    if (kind >= 0) disturber.begin(kind, drawn, std::max(kAtLeastUs, kTimes * call_us));
    const auto start = Clock::now();
    const CallResult result = session.run();
    if (first) call_us = us_since(start);
    const std::string place =
        fmt::format("in repetition {} of {}, {}: ", i + 1, repetitions, disturbance_text(kind));
    const auto where = [&](const std::string& what) { return Objection{"race", place + what}; };
    try {
      if (kind >= 0) disturber.end();
    } catch (const InfrastructureError& broken) {  // the device is, by the kernel
      throw InfrastructureError(place + broken.what());
    }
    if (!result.ok()) return where("fails: " + result.error);
    Snapshot now = session.outputs();
    if (!first && calm->changed_in(now).empty()) continue;
    if (const Objection wrong = judge(now)) return where(wrong.reason);
    if (first) calm.emplace(std::move(now));
  }
  if (Objection damage = session.damage()) return {"race", std::move(damage.reason)};
  session.lay(Poison::kNaN);
  return {};
}

}  // namespace assay
