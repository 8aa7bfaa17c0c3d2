// SPDX-License-Identifier: Apache-2.0
// Stages by which a step of two sources (assay_problem::two_sources), or of fewer heads than its kernels
// work on, becomes one that other stages know. A pipeline that begins with them has their
// places behind all others.
#pragma once

#include "kernels/common/stages.hpp"

namespace assay_kernels {

inline constexpr StagePlace kJoinQ = {"q_heads", {}, Role::kJoin}, kJoinK = {"k_join", {}, Role::kJoin},
                            kTakeO = {"o_heads", {}, Role::kJoin};

// Stage "q_heads" (layout MLA): Q as one tensor with at least `heads` heads, those of the step so often each
// and side by side; where heads have scales, those too. Stage "k_join" (other layouts): new keys with their
// rope part behind them. From here on the step has one source and that many heads, and where they are more,
// an O of its own in the workspace. No stage where nothing is to do.
void join_sources(Calls&, int32_t heads);
inline void join_sources(Calls& c) { join_sources(c, c.problem().heads_q); }

// Stage "o_heads": of the heads that join_sources() made the first of each kind, to `o` of the step. No stage
// where it made none.
void take_heads(Calls&, const assay_tensor& o, int32_t heads);

}  // namespace assay_kernels
