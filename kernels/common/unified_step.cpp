// SPDX-License-Identifier: Apache-2.0
// The plainest step: every new key into the cache, then one attention of all rows over it. What a pipeline of
// more stages is measured against.
#include "kernels/common/step_stages.hpp"

namespace assay_kernels {
namespace {

void add_calls(Calls& c) {
  add_write(c);
  const assay_problem& p = c.problem();
  if (p.total_q == 0) return;
  StageCall& attend = c.add("attend", requests_text(p, 0, p.requests, "all requests"));
  take_cache(c, attend, 0, p.requests);
  take_rows(c, attend, everything(c));
  attend.tensors.tree_mask = c.tensors().tree_mask, attend.tensors.tree_indptr = c.tensors().tree_indptr;
  attend.tensors.positions = c.tensors().positions;
  attend.problem.drafted = p.drafted;
  attend.tensors.cu_q = c.tensors().cu_q;
  attend.tensors.o = c.tensors().o;
  ask_no_lse(c, attend);
}

constexpr StagePlace kPlaces[] = {{"write", {ASSAY_OP_CACHE_WRITE}}, {"attend", {ASSAY_OP_PAGED}}};

}  // namespace

constinit const Pipeline kUnifiedStep = {
    .description = "new keys into the cache, then attention of all rows over it",
    .places = kPlaces,
    .add_calls = add_calls,
    .promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH,
    .takes = kTakesCross | kTakesFull,
};

}  // namespace assay_kernels
