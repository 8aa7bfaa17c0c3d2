// SPDX-License-Identifier: Apache-2.0
// The prefill of multi-head latent attention with its heads unfolded (scenarios/SEED_COVERAGE.md, 001;
// 192/128 dimensions in the models that have it): new keys as they came, all requests in one causal call,
// then the context in chunks that are gathered from the cache, attended without a mask and merged one after
// the other. Keys whose rope part comes by itself, once for all heads, are joined with it first. Requests may
// come in any order, and those without context have chunks without keys.
#include "kernels/common/chunked_context.hpp"
#include "kernels/common/join_stages.hpp"
#include "kernels/common/step_stages.hpp"

namespace assay_kernels {
namespace {

void add_calls(Calls& c) {
  const assay_problem& p = c.problem();
  only_causal(p, true);
  if (p.layout == ASSAY_LAYOUT_MLA) refuse("latent keys", "keys with their heads unfolded");
  if (!plain(p.q_format)) refuse("quantised Q", "fp32 bf16 fp16");
  if (p.total_q == 0) return;
  join_sources(c);
  add_write(c);
  attend_all_in_chunks(c);
}

constexpr StagePlace kWrite[] = {{"write", {ASSAY_OP_CACHE_WRITE}}}, kOwn[] = {kJoinK};
constexpr auto kPlaces = all_places(kWrite, kNewPlaces, kChunkPlaces, kOwn);

}  // namespace

constinit const Pipeline kMlaPrefill = {
    .description = "prefill of latent attention: new keys, and context in chunks",
    .places = kPlaces,
    .add_calls = add_calls,
    .promises = ASSAY_PROMISE_REPEATABLE,
    .takes = kTakesPairs,
};

}  // namespace assay_kernels
