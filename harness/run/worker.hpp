// SPDX-License-Identifier: Apache-2.0
// The worker's side: loads one backend, uses one of its devices, and answers requests, one JSON object
// per line on the socket. The messages:
//
//   to the worker                                         answers
//   (start)                                               ready {backend, path, device, kernels} | failed
//   {message} {do: limits}                                          limits {..., missing} {do: supports,
//   scenarios: [LINE...]}                  supports {answers: [[{kernel, status, why}]]} {do: case, scenario,
//   place, kernels: [{name, modes}], rows_budget, rule, limits}
//                                                         starting {stage, kernel, allow_s} and row {row},
//                                                         then done, or device_lost {message} and the end
//
// A stage is announced before it begins, with the seconds of work it may take beyond the time limit; if
// the process dies, the parent knows where.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/measure/measure.hpp"

namespace assay {

// Serves until the socket closes. Returns the exit code of the process (0, or 1 when the backend could
// not be loaded; the reason went through the socket).
int worker_main(const std::string& backend_path, int fd);

nlohmann::json rule_json(const StoppingRule&);
StoppingRule rule_from_json(const nlohmann::json&);
nlohmann::json limits_json(const Limits&);
Limits limits_from_json(const nlohmann::json&);

}  // namespace assay
