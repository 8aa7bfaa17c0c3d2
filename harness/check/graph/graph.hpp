// SPDX-License-Identifier: Apache-2.0
// Graphs (--graphs): a call captured at the shape of the case and replayed after lengths, tables and values
// were changed in place, as serving systems do it. The replay must give what a call at that shape gives,
// although everything the host decided was decided for another one, and although workspace, outputs and the
// parts of the buffers that the smaller shape does not use hold what was left there.
#pragma once

#include <string>
#include <vector>

#include "harness/check/relations/relations.hpp"
#include "harness/check/relations/relations_derive.hpp"

namespace assay {

struct GraphShape {
  std::string name;  // for reasons: "requests in reverse"
  DerivedCall call;
};
// Shapes a graph captured for `p` must serve, first that of `p` itself: the requests in reverse order (some
// longer, some shorter than captured), contexts halved, the second half of the requests as padding of length
// 0 and of length 1. A shape equal to an earlier one is left out. The physical pages of all are from one
// pool, so that their caches have one geometry.
std::vector<GraphShape> graph_shapes(const Problem& p);

// The reason why a replay is wrong, in one line, or empty. A kernel that promises REPEATABLE gives the bits
// of an eager call at the captured shape, and with BATCH_INVARIANT at every shape. Outputs must be what the
// op's expectation says, for the coarser of the arithmetics declared for both shapes; where bounds are dear,
// bits of an eager call are proof enough. Whatever the op must leave alone at a shape, rows of padding among
// it, must hold what it held. Needs a kernel for which graph_refusal() is empty.
std::string check_graph(const Backend&, const assay_kernel&, const assay_device&, const Problem&,
                        const assay_arithmetic&, double row_key_budget, RelationResult&);

}  // namespace assay
