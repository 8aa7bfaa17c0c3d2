// SPDX-License-Identifier: Apache-2.0
// What a kernel says of itself for a problem: asked again at any time it says the same. One that is judged by
// one answer and known by another would have bounds that hold only while somebody looks.
#pragma once

#include <string>

#include "harness/device/backend.hpp"

namespace assay {

struct Said {
  bool declares = false;  // an arithmetic of its own
  assay_arithmetic arithmetic{};
  WorkspaceSize workspace;
};
Said what_it_says(const Backend&, const assay_kernel&, const assay_problem*);
// In what `now` is another answer than `before`, one line; "" where it is the same.
std::string otherwise(const Said& before, const Said& now);
// The arithmetic as one line: "none" where nothing is declared, "defaults", or every member that is not what
// it is by default, "tile_keys=64 exp_relative_error=2.4e-07 ...". Two declarations have one line only if
// they are the same (names of instructions by their first 64 characters).
std::string declaration_text(const Said&);

}  // namespace assay
