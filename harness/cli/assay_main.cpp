// SPDX-License-Identifier: Apache-2.0
// The program. `assay worker LIBRARY` is how it starts itself as a worker (not for users),
// `assay rank LIBRARY DEVICE` how a worker starts a rank; everything else is the command line.
#include <csignal>

#include "harness/base/memory.hpp"
#include "harness/cli/commands.hpp"
#include "harness/run/rank.hpp"
#include "harness/run/worker.hpp"
#include "harness/run/worker_process.hpp"
#include "harness/scenario/lengths.hpp"
#include "harness/scenario/suite.hpp"

int main(int argc, char** argv) {
  assay::keep_freed_memory();
  // Worker and command line alike draw lengths from the shipped traces.
  assay::add_trace_folder(assay::scenario_folder() + "/traces");
  if (const auto worker = assay::worker_arguments(argc, argv))
    return assay::worker_main(*worker, assay::kWorkerFd);
  if (const auto rank = assay::rank_arguments(argc, argv)) return assay::rank_main(*rank, assay::kWorkerFd);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is told like a full disk
  return assay::cli_main(argc, argv);
}
