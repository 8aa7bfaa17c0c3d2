// SPDX-License-Identifier: Apache-2.0
// The arithmetic model of the online kernels: what the error bounds are derived from. One model covers a
// whole problem, so where a batch mixes paths each field takes the coarser of them.
#include <algorithm>

#include "kernels/common/fill_struct.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/online/engine.hpp"

namespace assay_cpu {

int online_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  Isa isa;
  if (!active_isa(&isa, nullptr, 0)) return ASSAY_INVALID_ARGUMENT;
  const int group = p->heads_q / p->heads_kv;
  bool blocks = false, streams = false, splittable = false, whole = false;
  int32_t splits = 1, longest_unsplit = 0;
  for (int r = 0; r < p->requests; ++r) {
    const int64_t rows = static_cast<int64_t>(p->q_len[r]) * group;
    if (rows == 0) continue;
    (rows <= kStreamRows ? streams : blocks) = true;
    (rows <= kSplitRows ? splittable : whole) = true;
    if (rows <= kSplitRows)
      splits = std::max(splits, (p->kv_len[r] + kPartitionKeys - 1) / kPartitionKeys);
    else
      longest_unsplit = std::max(longest_unsplit, p->kv_len[r]);
  }
  // The model takes all requests as split alike, into parts of at most 2 max_kv_len / splits keys. Where a
  // request of many rows is not, two parts of up to max_kv_len keys cover both kinds: the chain over all keys
  // is longer than a partition's chain and the merge together.
  if (longest_unsplit > kPartitionKeys) splits = std::min(splits, 2);
  const bool tiles = isa == Isa::kAmx && uses_bf16_tiles(*p);
  // Lanes of a dot product while streaming; block products are one chain per element (1). TDPBF16PS sums 16
  // pairs in two chains and adds their sum to the accumulator, each step rounded to nearest: shorter than
  // one chain over all products, so a chain is the safe declaration.
  const int lanes[] = {4, 8, 16, 16};

  assay_arithmetic m{};
  m.qk = {ASSAY_ACC_FMA, blocks || tiles ? 1 : lanes[static_cast<int>(isa)], 0, 23};
  m.pv = {ASSAY_ACC_FMA, 1, 0, 23};
  // Steps of the running maximum, the shortest in use; they end at multiples of their size.
  const int stream_step = tiles ? kTileStreamKeys : kStreamKeys;
  const int step = streams ? stream_step : kChunkKeys;
  m.tile_keys = step;
  m.splits = splits;
  // Longest chain of a row sum: columns per lane in one step, its reduction, one add per step, one per split.
  const int width = lanes[static_cast<int>(isa)];
  const int32_t keys = longest_unsplit > 0 ? p->max_kv_len : std::min(p->max_kv_len, kPartitionKeys);
  m.row_sum_chain = kChunkKeys / width + 4 + (keys + step - 1) / step + 1 + splits;
  m.p_format = tiles ? ASSAY_BF16 : ASSAY_FP32;
  m.row_sum_from_rounded_p = 0;
  // One order for all requests, and P rounded before any scale of V joins it: then it can be replayed.
  const bool one_cut = p->max_kv_len <= kPartitionKeys || !(splittable && whole);
  const bool scaled_p = tiles && p->v_scale_kind == ASSAY_SCALE_TOKEN_HEAD;
  m.order_declared = blocks != streams && one_cut && !scaled_p;
  if (m.order_declared && splits > 1) m.split_keys = kPartitionKeys;
  m.dequant_format = ASSAY_FORMAT_NONE;
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  // Measured over the whole range by math_test.cpp, in units of 2^-24: 3.1 and 4.2.
  m.exp_relative_error = 4 * 0x1p-24;
  m.tanh_relative_error = 6 * 0x1p-24;
  m.exp_instruction = exp2_instruction(isa), m.tanh_instruction = tanh_instruction(isa);
  const bool folded = p->q_scale_kind == ASSAY_SCALE_CHANNEL || p->k_scale_kind == ASSAY_SCALE_CHANNEL;
  m.q_rounding = folded ? 2 * 0x1p-24 : 0;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

}  // namespace assay_cpu
