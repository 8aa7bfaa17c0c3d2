// SPDX-License-Identifier: Apache-2.0
// Timed rows of a step on several ranks: one of the group, whose time is that of the rank that took longest,
// whose work is that of the step and whose limits are those of all devices together; and with --stages one of
// each rank, kernel KERNEL:rankN, with its own time, device and share of the work.
#pragma once

#include "harness/check/verdict.hpp"
#include "harness/run/rank_group.hpp"
#include "harness/run/timed_row.hpp"

namespace assay {

// Of each rank: the arithmetic over the context and the bytes of K and V by the keys that it holds, an even
// part of everything else; all tokens, of which it has a part of the heads.
std::vector<Work> work_of_ranks(const Problem&, const Work& whole);

// Says the rows of a mode for the case of `checked`, the row of the group that the judge judged last; what
// the last call left is judged again. Values do not change between calls. False where the group ended.
bool time_ranks(const TimedCase&, RankGroup&, Judge&, const std::string& mode, bool each_rank,
                const Row& checked);

}  // namespace assay
