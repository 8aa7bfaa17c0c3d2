// SPDX-License-Identifier: Apache-2.0
// Faults of what a kernel keeps between calls. The *_of_first_call ones are right in a fresh process: they
// need two calls that differ in what was kept. The museum's are graph captures, plan caches and counters; the
// mechanism here is the same without a GPU: a State behind the kernel's door.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

int visible_keys(const assay_problem* p) { return any_visible(*p); }
int sees_last_part(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return !v.empty() && part_of(v, v.end - 1) == kParts - 1; });
}
int merges_of_several_rows(const assay_problem* p) {
  return several_parts(*p) && (p->total_q > 1 || p->heads_q > 1);
}
int two_keys_in_tile(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return !v.empty() && (v.q_len > 1 || v.end - v.begin > 1); });
}
int long_beside_short(const assay_problem* p) { return p->max_q_len > 16 && any_visible(*p); }

constexpr Planter kState{"state", kWhole};
constexpr Planter kStateSplit{"state", kSplit};

const Row kRows[] = {
    kState("lengths_of_first_call", "the plan of the first call with as many requests serves all later ones",
           "FI-49 SG-09 SG-11 VL-28 TR-07", "state.previous_call", {.plan_from_first_call = true},
           visible_keys),
    kState("scale_of_first_call", "the softmax scale is missing in the key of the plan cache", "FI-19",
           "state.previous_call", {.scale_from_first_call = true}, visible_keys),
    kState("cap_of_first_call", "the soft cap is missing in the key of the variant cache", "FA-33",
           "state.previous_call", {.softcap_from_first_call = true}, visible_keys),
    kState("mask_of_first_call", "the mask of the first plan survives later ones", "FI-41",
           "state.previous_call", {.mask_from_first_call = true}, visible_keys),
    kState("strides_of_first_call", "strides are missing in the key of the launch cache", "FI-20",
           "state.previous_call", {.strides_from_first_call = true}, visible_keys),
    kStateSplit("counter_not_reset", "a tile counter is not reset: every second call merges one part too few",
                "FA-17 TR-06 FI-34", "state.previous_call", {.counter_not_reset = true}, sees_last_part),
    kStateSplit("workspace_not_cleared", "results are added to what the workspace holds", "SG-21 FI-32 VL-42",
                "merge.partial_stale", {.workspace_as_state = true}, visible_keys),
    kStateSplit("merge_unordered", "every second call merges with the weights of the row before",
                "FI-03 FI-05 AI-30", "race.unstable", {.merge_late = true}, merges_of_several_rows),
    kState("p_unordered", "every second call multiplies the first weight of a tile with the value after it",
           "TL-02 FI-06", "race.unstable", {.v_tile_late = true}, two_keys_in_tile),
    kState("lse_unstable", "every second call returns another LSE in the last bit", "FM-03", "race.unstable",
           {.unstable = true}, visible_keys),
    kState("tile_of_batch", "the tile follows the longest request, though batch invariance is promised",
           "VL-49", "batch.dependent", {.tile_of_batch = true}, long_beside_short),
};

}  // namespace

std::span<const Row> state_faults() { return kRows; }

}  // namespace assay_faulty
