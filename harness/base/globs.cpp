// SPDX-License-Identifier: Apache-2.0
#include "harness/base/globs.hpp"

#include <fnmatch.h>

#include <algorithm>

namespace assay {

bool fits_glob(std::string_view name, const std::string& glob) {
  return fnmatch(glob.c_str(), std::string(name).c_str(), 0) == 0;
}

bool chosen_by(std::string_view name, const std::vector<std::string>& globs) {
  return globs.empty() || std::any_of(globs.begin(), globs.end(),
                                      [&](const std::string& glob) { return fits_glob(name, glob); });
}

}  // namespace assay
