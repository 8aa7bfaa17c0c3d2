// SPDX-License-Identifier: Apache-2.0
// What the entries of the portable kernels share.
#include "kernels/portable/entry.hpp"

#include <algorithm>
#include <cstdio>

#include "kernels/common/fill_struct.hpp"
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

bool make_call(const assay_problem* p, const assay_tensors* t, Call* call, char* error, size_t size,
               bool lse_optional) {
  if (!assay_kernels::make_operands(p, t, &call->op, error, size, lse_optional)) return false;
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

int32_t dims_of(const assay_problem& p) { return portable_dims(std::max(p.head_dim_qk, p.head_dim_v)); }

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

int one_block_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m = fp32_arithmetic(*p, 128);
  m.row_sum_chain = 7 + tiles_of(*p, 128);
  m.order_declared = 1;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

int rows_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
                  char* why, size_t size) {
  return assay_kernels::supports_data_op(p, self->op, why, size);
}

}  // namespace assay_gpu
