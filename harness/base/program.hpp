// SPDX-License-Identifier: Apache-2.0
// Where this program lies: beside it are its backends, its catalogues and, near it, its scripts.
#pragma once

#include <filesystem>

namespace assay {

// Throws InfrastructureError when /proc does not say.
std::filesystem::path program_path();
inline std::filesystem::path program_folder() { return program_path().parent_path(); }

}  // namespace assay
