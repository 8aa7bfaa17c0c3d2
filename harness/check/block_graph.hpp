// SPDX-License-Identifier: Apache-2.0
// Replays of a captured building block: what check_graph() does for ops that are no attention.
#pragma once

#include <string>

#include "harness/check/relations_graph.hpp"

namespace assay {

// As check_graph(). Every element is compared with the reference at every shape, and every byte that the op
// must leave alone at that shape, rows of padding among them, with what was there before.
std::string check_block_graph(const Backend&, const assay_kernel&, const assay_device&, const Problem&,
                              const assay_arithmetic& fallback, RelationResult&);

}  // namespace assay
