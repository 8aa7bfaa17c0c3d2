// SPDX-License-Identifier: Apache-2.0
// The worker's side: loads one backend, uses one of its devices, and answers requests, one JSON object
// per line on the socket. The messages:
//
//   to the worker                                         answers
//   (start)                        ready {backend, path, device, device_count, calibration, clock, no_times,
//                                  kernels}, or failed {message}, or no_device {message}
//   {do: limits}                   limits {..., missing}
//   {do: supports, scenarios}      supports {answers: [[{kernel, status, why}]]}
//   {do: arithmetic, scenario}     arithmetic {answers}
//   {do: case, scenario, place,    starting {stage, kernel, allow_s} and row {row}, then done,
//    kernels: [{name, modes}],     or device_lost {message} and the end
//    rows_budget, graphs, rule,
//    limits}
//
// A stage is announced before it begins, with the seconds of work it may take beyond the time limit; if
// the process dies, the parent knows where.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/measure/measure.hpp"

namespace assay {

// What the worker is told by its command line.
struct WorkerArguments {
  std::string backend;  // path of the library
  int32_t device = 0;
  std::vector<std::string> calibrations;  // files; the first made on a device like this one is used
};
// `worker LIBRARY [--device N] [--calibration FILE]...`; nothing when these are other arguments.
std::optional<WorkerArguments> worker_arguments(int argc, const char* const* argv);

// Serves until the socket closes. Returns the exit code of the process (0, or 1 when the backend could
// not be loaded; the reason went through the socket).
int worker_main(const WorkerArguments&, int fd);

nlohmann::json rule_json(const StoppingRule&);
StoppingRule rule_from_json(const nlohmann::json&);
nlohmann::json limits_json(const Limits&);
Limits limits_from_json(const nlohmann::json&);

}  // namespace assay
