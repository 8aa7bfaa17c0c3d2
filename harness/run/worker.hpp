// SPDX-License-Identifier: Apache-2.0
// The worker's side: loads one backend, uses one of its devices, and answers requests, one JSON object
// per line on the socket (messages.hpp). A request it cannot read is a bug of the parent and ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace assay {

// What the worker is told by its command line.
struct WorkerArguments {
  std::string backend;  // path of the library
  int32_t device = 0;
  std::vector<std::string> calibrations;  // files; the first made on a device like this one is used
  int32_t threads = 0;                    // of OpenMP; 0: as the environment has it
};
// `worker LIBRARY [--device N] [--threads N] [--calibration FILE]...`; nothing when these are other
// arguments.
std::optional<WorkerArguments> worker_arguments(int argc, const char* const* argv);

// Serves until the socket closes, in a child of this process, which keeps it (keeper.hpp). Returns the exit
// code of the process (0, or 1 when the backend could not be loaded; the reason went through the socket). The
// process must have one thread when it is called.
int worker_main(const WorkerArguments&, int fd);

}  // namespace assay
