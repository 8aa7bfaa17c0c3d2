// SPDX-License-Identifier: Apache-2.0
// Kernels that attack the process around them, or the clock: does each cost its own row, do those beside it
// pass, is each cheat caught or does its row show what an honest call takes? The library says in the
// descriptions of its kernels what their rows must say (harness/run/testing/hostile_table.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/base/json_fields.hpp"

namespace assay {

struct HostileScore {
  int64_t hostile = 0, held = 0;              // kernels, and those whose row says what it must
  int64_t beside = 0, beside_passed = 0;      // healthy kernels that ran among them
  int64_t cheats = 0, caught = 0, shown = 0;  // timed: wrong or implausible, or with an honest time
  std::vector<std::string> missed;            // a line each
  bool complete = false;
  bool holds() const { return complete && missed.empty(); }
};

// Sweeps over one small case, in workers: to be called before anything foreign is loaded here.
// InfrastructureError when no worker can load the library, InputError when its kernels expect nothing.
HostileScore score_hostile(const std::string& library, const std::atomic<bool>& stop);
std::string hostile_text(const HostileScore&);  // a paragraph, the missed ones in it

template <>
struct JsonFields<HostileScore> {
  using T = HostileScore;
  static constexpr std::string_view name = "score of the hostile kernels";
  static constexpr auto list = std::tuple(
      JsonField("hostile", &T::hostile), JsonField("held", &T::held), JsonField("beside", &T::beside),
      JsonField("beside_passed", &T::beside_passed), JsonField("cheats", &T::cheats),
      JsonField("caught", &T::caught), JsonField("shown", &T::shown), JsonField("missed", &T::missed),
      JsonField("complete", &T::complete));
};

}  // namespace assay
