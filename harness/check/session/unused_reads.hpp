// SPDX-License-Identifier: Apache-2.0
// Which unused memory a kernel reads: one operand after the other gets contents of its own while all others
// keep theirs, and then ever smaller parts of it, until one place is left that the result follows. For
// kernels whose results were seen to follow what nobody may read.
#pragma once

#include <functional>
#include <string>

#include "harness/check/session/session.hpp"

namespace assay {

// Whether a run's outputs show what was read.
using ShowsReading = std::function<bool(Snapshot)>;

// "k block 3 slot 5 head 0 dim 0 (behind the last key of request 1), and v"; "what the workspace held before
// the call"; empty where nothing is found (a kernel may read several together). Memory holds `usual` but for
// what is tried, which holds `other`. Runs the kernel some 20 times at most, and leaves unused memory
// poisoned anew.
std::string unused_reads(Session&, Inputs&, Poison usual, Poison other, const ShowsReading&);

}  // namespace assay
