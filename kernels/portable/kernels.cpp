// SPDX-License-Identifier: Apache-2.0
// What the portable attention kernels accept, promise and launch, and what every entry of the C table shares.
#include "kernels/portable/kernels.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/instances.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {

namespace {
constexpr int64_t kMostParts = 64;
constexpr int64_t kPartCost = 128;  // in keys; an estimate
}  // namespace

bool whole_chunks(const assay_kernels::KvView& v, int32_t dims) {
  const auto whole = [](int64_t stride) { return stride % 8 == 0; };
  const bool packed = v.dim_pack != INT32_MAX;
  return v.dim_inner == 1 &&
         (!packed || (v.dim_pack % 8 == 0 && 64 % v.dim_pack == 0 && whole(v.dim_outer))) && dims % 8 == 0 &&
         reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(8 * v.element_bytes) == 0 &&
         whole(v.block_stride) && whole(v.head_stride) && whole(v.slot_outer) && whole(v.slot_inner);
}

bool make_call(const assay_problem* p, const assay_tensors* t, Call* call, char* error, size_t size) {
  if (!assay_kernels::make_operands(p, t, &call->op, error, size)) return false;
  call->kv_len = static_cast<const int32_t*>(t->kv_len.data);
  call->kv_len_stride = t->kv_len.stride[0];
  call->splits = 1;
  call->k_whole = whole_chunks(call->op.k, p->head_dim_qk);
  call->v_whole = whole_chunks(call->op.v, p->head_dim_v);
  return true;
}

int32_t even_parts(const assay_problem& p, int32_t tile_rows, int32_t resident, int32_t least_keys) {
  if (p.requests == 0 || p.total_q == 0) return 1;
  const int64_t group = p.heads_q / p.heads_kv;
  int64_t tiles = 0;
  for (int r = 0; r < p.requests; ++r) tiles += (p.q_len[r] * group + tile_rows - 1) / tile_rows;
  const int64_t blocks = std::max<int64_t>(1, tiles * p.heads_kv);
  const int64_t places = std::max<int64_t>(1, int64_t{resident} * multiprocessors);
  const int64_t most = std::clamp<int64_t>(p.max_kv_len / least_keys, 1, kMostParts);
  // Keys a place works through, one block after the other, with what starting and merging a part costs.
  const auto keys_of = [&](int64_t parts) {
    return (blocks * parts + places - 1) / places * ((p.max_kv_len + parts - 1) / parts + kPartCost);
  };
  int64_t best = 1;
  for (int64_t parts = 2; parts <= most; ++parts)
    if (keys_of(parts) < keys_of(best)) best = parts;
  return static_cast<int32_t>(best);
}

int64_t partial_bytes(const assay_problem& p, int32_t parts) {
  return int64_t{parts} * p.total_q * p.heads_q * (p.head_dim_v + 1) * static_cast<int64_t>(sizeof(float));
}

bool place_parts(const assay_tensors& t, Call* call, char* error, size_t size) {
  const assay_problem& p = call->op.p;
  const int64_t needed = partial_bytes(p, call->splits);
  if (t.workspace.data == nullptr || t.workspace.shape[0] < needed) {
    if (error != nullptr && size > 0)
      std::snprintf(error, size, "workspace of %lld bytes, needs %lld",
                    static_cast<long long>(t.workspace.data == nullptr ? 0 : t.workspace.shape[0]),
                    static_cast<long long>(needed));
    return false;
  }
  call->partial_o = static_cast<float*>(t.workspace.data);
  call->partial_lse = call->partial_o + int64_t{call->splits} * p.total_q * p.heads_q * p.head_dim_v;
  return true;
}

namespace {

constexpr int32_t kPartKeys = 256;  // of paged_split256_gpu

// kPositions: the kernel looks at first_key and positions.
template <bool kPositions>
int every_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                   const assay_device*, char* why, size_t size) {
  return assay_kernels::find_instance(p, self->op, why, size, kPositions) != nullptr ? ASSAY_OK
                                                                                     : ASSAY_UNSUPPORTED;
}

int32_t dims_of(const assay_problem& p) { return portable_dims(std::max(p.head_dim_qk, p.head_dim_v)); }

// fp32 throughout, tiles of `tile` keys from key 0 on, the running maximum of a row once per tile.
assay_arithmetic fp32_arithmetic(const assay_problem& p, int32_t tile) {
  assay_arithmetic m{};
  m.qk = m.pv = {ASSAY_ACC_FMA, 1, 0, 23};
  m.tile_keys = tile;
  m.splits = 1;
  m.p_format = ASSAY_FP32;
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  // CUDA's expf, exp2f and tanhf: at most 2 ulp, by the programming guide's table of the standard functions.
  m.exp_relative_error = 0x1p-22;
  m.tanh_relative_error = 0x1p-22;
  m.tanh_instruction = "tanhf";
  const bool folded = p.q_scale_kind == ASSAY_SCALE_CHANNEL || p.k_scale_kind == ASSAY_SCALE_CHANNEL;
  m.q_rounding = folded ? 2 * 0x1p-24 : 0;
  return m;
}

int32_t tiles_of(const assay_problem& p, int32_t tile) { return (p.max_kv_len + tile - 1) / tile; }

// What run() of every entry here begins with; `enqueue` gets the call when there is something to do.
template <class Enqueue>
int run_call(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, char* error,
             size_t size, const Enqueue& enqueue) {
  if (self->supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  Call call{};
  if (!make_call(p, t, &call, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  return enqueue(call);
}

int simple_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m = fp32_arithmetic(*p, 128);
  m.row_sum_chain = 7 + tiles_of(*p, 128);
  m.order_declared = 1;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

int simple_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
               void* stream, char* error, size_t size) {
  return run_call(self, p, t, error, size, [&](const Call& call) {
    return answer(launch_simple(call, static_cast<gpu::Stream>(stream)), "simple kernel", error, size);
  });
}

int tiled_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  const int32_t keys = tiled_keys(dims_of(*p));
  assay_arithmetic m = fp32_arithmetic(*p, keys);
  // A thread adds its keys of a tile (a sixteenth) to its sum, sixteen threads add theirs at the end.
  m.row_sum_chain = (keys / 16) * tiles_of(*p, keys) + 4;
  m.order_declared = 1;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

int tiled_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
              void* stream, char* error, size_t size) {
  return run_call(self, p, t, error, size, [&](const Call& call) {
    return answer(launch_tiled(call, static_cast<gpu::Stream>(stream)), "tiled kernel", error, size);
  });
}

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
  // A thread adds at most two keys of a tile to its sum; then lanes and warps add theirs.
  m.row_sum_chain = 2 * tiles_of(p, tile) + 10;
  return m;
}

template <bool kFixed>
int split_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m = arithmetic_of_parts(*p);
  m.splits = split_parts<kFixed>(*p);
  if (kFixed) m.split_keys = kPartKeys, m.order_declared = 1;
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

constexpr assay_kernel entry(int32_t op, uint32_t promises, const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = description, k.arch = "any";
  k.op = op, k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH | promises;
  return k;
}

constexpr assay_kernel simple_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k = entry(op, ASSAY_PROMISE_BATCH_INVARIANT, name, description);
  k.supports = every_supports<true>, k.arithmetic = simple_arithmetic, k.run = simple_run;
  return k;
}

constexpr assay_kernel tiled_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k = entry(op, ASSAY_PROMISE_BATCH_INVARIANT, name, description);
  k.supports = every_supports<false>, k.arithmetic = tiled_arithmetic, k.run = tiled_run;
  return k;
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

constexpr assay_kernel kPrefillSimple = simple_kernel(
    ASSAY_OP_PREFILL, "prefill_simple_gpu", "ragged prefill, a block per row and head, fp32, every feature");
constexpr assay_kernel kPagedSimple = simple_kernel(
    ASSAY_OP_PAGED, "paged_simple_gpu", "paged attention, a block per row and head, fp32, every feature");
constexpr assay_kernel kPrefillTiled = tiled_kernel(
    ASSAY_OP_PREFILL, "prefill_tiled_gpu", "ragged prefill, fp32, keys through shared memory for many rows");
constexpr assay_kernel kPagedTiled = tiled_kernel(
    ASSAY_OP_PAGED, "paged_tiled_gpu", "paged attention of many rows, fp32, keys through shared memory");
constexpr assay_kernel kPagedSplit = split_kernel<false>(
    "paged_splitkv_gpu", "paged attention of few rows, fp32, as many parts of the keys as fill the device");
constexpr assay_kernel kDecodeSplit =
    parts_kernel("decode_splitkv_gpu", "partial results of decode, fp32, the kernel of paged_splitkv_gpu");
constexpr assay_kernel kPagedSplit256 = split_kernel<true>(
    "paged_split256_gpu", "paged attention of few rows, fp32, parts of 256 keys, batch invariant");

}  // namespace

std::vector<const assay_kernel*> attention_kernels() {
  return {&kPrefillSimple, &kPagedSimple,   &kPrefillTiled, &kPagedTiled,
          &kPagedSplit,    &kPagedSplit256, &kDecodeSplit};
}

}  // namespace assay_gpu
