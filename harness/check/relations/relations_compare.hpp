// SPDX-License-Identifier: Apache-2.0
// Two results of one answer side by side: first difference in bits, and distance against what the bounds
// allow. Rows are matched through where their values come from. The distance asks nothing of the reference
// but the half-widths, so it also holds a reference to its word that two problems have one answer.
#pragma once

#include <string>
#include <vector>

#include "harness/check/relations/relations_run.hpp"

namespace assay {

// All rows of `b` that `a` also has, counted in *rows: the first difference, or empty.
std::string difference(const Problem&, const RelationRun& a, const RelationRun& b, int64_t* rows);

// Largest |difference| over the slack of both results (half-widths and roundings), O and LSE.
struct Agreement {
  double ratio = 0;
  std::string where;
  void add(double x, double y, double slack, RowId of, int32_t head, int32_t dim);
};
// For those of `rows` (of the whole problem) that both runs have; both must be bounded.
Agreement agreement(const Problem&, const std::vector<RowId>& rows, const RelationRun& a,
                    const RelationRun& b);
// The same for a run with sinks of no weight and one without sinks. Left out are rows all of whose logits are
// so low that such a sink weighs something beside them.
Agreement sink_agreement(const Problem&, const std::vector<RowId>& rows, const RelationRun& low,
                         const RelationRun& none);
// Two parts of the context, merged by their LSE in double, against the whole.
Agreement merged_agreement(const Problem&, const std::vector<RowId>& rows, const RelationRun& whole,
                           const RelationRun& front, const RelationRun& back);

}  // namespace assay
