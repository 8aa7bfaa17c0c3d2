// SPDX-License-Identifier: Apache-2.0
// One rank of a group: a process that loads the library of the kernel under test, joins the group, and runs
// the kernel on operands in shared memory as often as it is asked (rank_group.hpp asks).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace assay {

struct RankArguments {
  std::string backend;  // path of the library
  int32_t device = 0;
};
// `rank LIBRARY DEVICE`; nothing when these are other arguments.
std::optional<RankArguments> rank_arguments(int argc, const char* const* argv);

// Serves until the connection closes; the exit code.
int rank_main(const RankArguments&, int fd);

}  // namespace assay
