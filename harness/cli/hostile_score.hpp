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
nlohmann::json hostile_json(const HostileScore&);

}  // namespace assay
