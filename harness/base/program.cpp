// SPDX-License-Identifier: Apache-2.0
// See program.hpp.
#include "harness/base/program.hpp"

#include "harness/base/error.hpp"

namespace assay {

std::filesystem::path program_path() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw InfrastructureError("cannot find the place of the program: " + error.message());
  return path;
}

}  // namespace assay
