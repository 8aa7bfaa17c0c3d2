// SPDX-License-Identifier: Apache-2.0
// Names chosen by globs, as `--kernel` takes them: `*` any text, `?` one character, `[ab]` one of these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay {

// Whether the whole name fits the glob (fnmatch(3) without flags).
bool fits_glob(std::string_view name, const std::string& glob);
// Whether one of the globs fits. Where nothing was asked for (no globs), every name is meant.
bool chosen_by(std::string_view name, const std::vector<std::string>& globs);

}  // namespace assay
