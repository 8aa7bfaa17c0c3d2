// SPDX-License-Identifier: Apache-2.0
// Stage "correct" of steps on several ranks: the parts that this rank made, [ranks, heads, T] of O and LSE
// one after the other by whose heads they are, become addends: O exp(LSE - LSE of the row over all ranks), 0
// where a part saw no key, whatever its O. partial_lse [ranks that made it, ranks, heads, T]; `states`: this
// rank, whose total LSE goes to lse [heads, T].
#include <cmath>
#include <limits>

#include "kernels/common/stage_list.hpp"
#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {
namespace {

int run(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char*,
        size_t) {
  const auto* part = static_cast<const float*>(t->partial_o.data);
  const auto* lse = static_cast<const float*>(t->partial_lse.data);
  auto* out = static_cast<float*>(t->o.data);
  auto* total = static_cast<float*>(t->lse.data);
  const int64_t ranks = t->partial_lse.shape[0], each = t->partial_lse.shape[2] * t->partial_lse.shape[3],
                all = ranks * each;
#pragma omp parallel for schedule(static)
  for (int64_t unit = 0; unit < all; ++unit) {
    float top = -std::numeric_limits<float>::infinity();
    for (int64_t s = 0; s < ranks; ++s) top = std::fmax(top, lse[s * all + unit]);
    double sum = 0;
    for (int64_t s = 0; s < ranks && top > -std::numeric_limits<float>::infinity(); ++s)
      sum += std::exp(double{lse[s * all + unit]} - top);
    const float own = lse[p->states * all + unit];
    const auto weight = static_cast<float>(sum > 0 ? std::exp(double{own} - top) / sum : 0.0);
    for (int64_t d = 0; d < p->head_dim_v; ++d)
      out[unit * p->head_dim_v + d] = weight > 0 ? weight * part[unit * p->head_dim_v + d] : 0.0f;
    if (unit / each == p->states)
      total[unit % each] = sum > 0 ? static_cast<float>(top + std::log(sum)) : top;
  }
  return ASSAY_OK;
}

}  // namespace

constinit const assay_kernel kLseCorrect = [] {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = "lse_correct_cpu", k.arch = "x86-64";
  k.description = "parts of this rank as addends of all ranks' sum";
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH;
  k.supports = assay_kernels::supports_all, k.run = run;
  return k;
}();

}  // namespace assay_cpu
