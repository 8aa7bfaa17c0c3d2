// SPDX-License-Identifier: Apache-2.0
// Entries of the kernels for few rows (split.hpp): every feature, fp32, keys cut into parts: even ones, ones
// of 256 keys, or those the op names, which are the results then.
#include <algorithm>

#include "kernels/common/fill_struct.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {
namespace {

constexpr int32_t kPartKeys = 256;  // of paged_split256_gpu

// kFixed: parts of kPartKeys keys, whose results are merged even where there is only one, so that a request's
// bits do not depend on how long its neighbours are. Otherwise as many even parts as fill the device.
template <bool kFixed>
int32_t split_parts(const assay_problem& p) {
  if (kFixed) return std::max<int32_t>(1, (p.max_kv_len + kPartKeys - 1) / kPartKeys);
  return even_parts(p, split_rows(dims_of(p), true), dims_of(p) > 256 ? 1 : 3, 64);
}
template <bool kFixed>
bool merges(int32_t parts) {
  return kFixed || parts > 1;
}

template <bool kFixed>
int64_t split_workspace(const assay_kernel*, const assay_problem* p) {
  const int32_t parts = split_parts<kFixed>(*p);
  return merges<kFixed>(parts) ? partial_bytes(*p, parts) : 0;
}

assay_arithmetic arithmetic_of_parts(const assay_problem& p) {
  const int32_t tile = split_tile(dims_of(p));
  assay_arithmetic m = fp32_arithmetic(p, tile);
  m.pv.block = split_groups(dims_of(p));
  // A thread adds at most two keys of a tile to its sum; then lanes and warps add theirs.
  m.row_sum_chain = 2 * tiles_of(p, tile) + 10;
  return m;
}

template <bool kFixed>
int split_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m = arithmetic_of_parts(*p);
  m.splits = split_parts<kFixed>(*p);
  if (kFixed)
    m.split_keys = kPartKeys, m.order_declared = 1;
  else  // Even parts of what the rows of a block see. Of a tree its bits decide that; wide heads have blocks
        // of other sizes where elements are gathered, which of one new token all see the same.
    m.item_rows = split_rows(dims_of(*p), true),
    m.order_declared = p->mask != ASSAY_MASK_TREE && (dims_of(*p) <= 256 || p->max_q_len <= 1);
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

template <bool kFixed>
int split_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
              void* stream, char* error, size_t size) {
  return run_call(self, p, t, error, size, [&](Call& call) {
    call.splits = split_parts<kFixed>(*p);
    call.split_keys = kFixed ? kPartKeys : 0;
    const bool merge = merges<kFixed>(call.splits);
    if (merge && !place_parts(*t, &call, error, size)) return static_cast<int>(ASSAY_INVALID_ARGUMENT);
    const auto on = static_cast<gpu::Stream>(stream);
    if (const int bad = answer(launch_split(call, on), "split kernel", error, size); bad != ASSAY_OK)
      return bad;
    return merge ? answer(merge_parts(call, on), "merge", error, size) : static_cast<int>(ASSAY_OK);
  });
}

// The parts are the caller's results: no workspace, no merge.
int parts_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m = arithmetic_of_parts(*p);
  m.order_declared = 1;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

int parts_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
              void* stream, char* error, size_t size) {
  return run_call(self, p, t, error, size, [&](Call& call) {
    call.splits = p->states;
    return answer(launch_split(call, static_cast<gpu::Stream>(stream)), "split kernel", error, size);
  });
}

template <bool kFixed>
constexpr assay_kernel split_kernel(const char* name, const char* description) {
  assay_kernel k =
      entry(ASSAY_OP_PAGED, kFixed ? uint32_t{ASSAY_PROMISE_BATCH_INVARIANT} : 0, name, description);
  k.supports = every_supports<false>, k.arithmetic = split_arithmetic<kFixed>;
  k.workspace_bytes = split_workspace<kFixed>, k.run = split_run<kFixed>;
  return k;
}

constexpr assay_kernel parts_kernel(const char* name, const char* description) {
  assay_kernel k = entry(ASSAY_OP_DECODE_SPLITKV, ASSAY_PROMISE_BATCH_INVARIANT, name, description);
  k.supports = every_supports<false>, k.arithmetic = parts_arithmetic, k.run = parts_run;
  return k;
}

constexpr assay_kernel kPagedSplit = split_kernel<false>(
    "paged_splitkv_gpu", "paged attention of few rows, fp32, as many parts of the keys as fill the device");
constexpr assay_kernel kDecodeSplit =
    parts_kernel("decode_splitkv_gpu", "partial results of decode, fp32, the kernel of paged_splitkv_gpu");
constexpr assay_kernel kPagedSplit256 = split_kernel<true>(
    "paged_split256_gpu", "paged attention of few rows, fp32, parts of 256 keys, batch invariant");

}  // namespace

std::vector<const assay_kernel*> split_kernels() { return {&kPagedSplit, &kPagedSplit256, &kDecodeSplit}; }

}  // namespace assay_gpu
