// SPDX-License-Identifier: Apache-2.0
// A CUDA kernel to copy: paged attention of bf16, a warp per row and head, head dimensions up to 256. The
// host side is the helper library's: memory, streams, events, graphs, limits. Lengths are read on the device,
// so the call may be captured in a graph. The second entry is wrong on purpose: it does not rescale what it
// summed when the running maximum moves.
#include <assay/assay_arithmetic.h>
#include <cuda_bf16.h>

#include <assay/assay_kit.hpp>

namespace {

constexpr int kPerLane = 8;  // dimensions of a lane: up to 256 in all

struct Call {  // what travels to the device
  assay_tensor q, k, v, o, lse, cu_q, kv_len, table;
  int requests, heads_q, group, dim_qk, dim_v, page, window;
  float scale;
  bool rescales;
};

template <class T>
__device__ T& at(const assay_tensor& t, int64_t i, int64_t j = 0, int64_t k = 0, int64_t l = 0) {
  return static_cast<T*>(t.data)[i * t.stride[0] + j * t.stride[1] + k * t.stride[2] + l * t.stride[3]];
}

__global__ void attend(const __grid_constant__ Call a) {
  const int row = blockIdx.x, head = blockIdx.y, lane = threadIdx.x;
  int request = 0;
  while (request < a.requests && at<int32_t>(a.cu_q, request + 1) <= row) ++request;
  if (request == a.requests) return;  // a replayed graph may have fewer rows than it was captured with
  const int first_row = at<int32_t>(a.cu_q, request), length = at<int32_t>(a.kv_len, request);
  const int position = length - (at<int32_t>(a.cu_q, request + 1) - first_row) + row - first_row;
  const int kv_head = head / a.group, oldest = a.window < 0 ? 0 : max(0, position - a.window);
  float q[kPerLane], o[kPerLane] = {}, top = -INFINITY, sum = 0;
  for (int i = 0; i < kPerLane; ++i) {
    const int d = lane + 32 * i;
    q[i] = d < a.dim_qk ? __bfloat162float(at<__nv_bfloat16>(a.q, row, head, d)) * a.scale : 0;
  }
  for (int j = oldest; j <= position; ++j) {
    const int64_t block = at<int32_t>(a.table, request, j / a.page);
    const int slot = j % a.page;
    float s = 0;
    for (int i = 0; i < kPerLane; ++i)
      if (const int d = lane + 32 * i; d < a.dim_qk)
        s += q[i] * __bfloat162float(at<__nv_bfloat16>(a.k, block, slot, kv_head, d));
    for (int other = 16; other > 0; other /= 2) s += __shfl_xor_sync(0xffffffff, s, other);
    const float higher = fmaxf(top, s), old = expf(top - higher), weight = expf(s - higher);
    top = higher, sum = sum * old + weight;
    for (int i = 0; i < kPerLane; ++i)
      if (const int d = lane + 32 * i; d < a.dim_v)
        o[i] = o[i] * (a.rescales ? old : 1) +
               weight * __bfloat162float(at<__nv_bfloat16>(a.v, block, slot, kv_head, d));
  }
  for (int i = 0; i < kPerLane; ++i)
    if (const int d = lane + 32 * i; d < a.dim_v)
      at<__nv_bfloat16>(a.o, row, head, d) = __float2bfloat16(sum > 0 ? o[i] / sum : 0);
  if (lane == 0) at<float>(a.lse, row, head) = sum > 0 ? top + logf(sum) : -INFINITY;
}

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  const bool bf16 = p->q_format == ASSAY_BF16 && p->k_format == ASSAY_BF16 && p->v_format == ASSAY_BF16 &&
                    p->o_format == ASSAY_BF16;
  const bool plain = p->mask == ASSAY_MASK_CAUSAL && p->window_right < 0 && !p->chunk && !p->alibi &&
                     !(p->softcap > 0) && !p->has_sinks && p->layout == ASSAY_LAYOUT_NHD &&
                     p->table == ASSAY_TABLE_BLOCK && p->head_dim_qk <= 256 && p->head_dim_v <= 256 &&
                     !p->first_key && !p->positions;
  return bf16 && plain ? ASSAY_OK
                       : assay_kit::refuse(why, size,
                                           "supported: bf16, nhd, block table, causal, dimensions up to 256");
}

int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* a) {
  return assay_like_fp32(a, 32);  // the products of a dot product are dealt to 32 lanes
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (p->total_q == 0) return ASSAY_OK;
  const Call call{t->q,
                  t->k,
                  t->v,
                  t->o,
                  t->lse,
                  t->cu_q,
                  t->kv_len,
                  t->block_table,
                  p->requests,
                  p->heads_q,
                  p->heads_q / p->heads_kv,
                  p->head_dim_qk,
                  p->head_dim_v,
                  p->page_size,
                  p->window_left,
                  p->softmax_scale,
                  self->context == nullptr};
  const dim3 grid(static_cast<unsigned>(p->total_q), static_cast<unsigned>(p->heads_q));
  attend<<<grid, 32, 0, static_cast<cudaStream_t>(stream)>>>(call);
  return assay_kit::launched(cudaGetLastError(), error, size);
}

int no_rescale = 1;
constexpr uint32_t kPromises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH;
const assay_kernel kernels[] = {assay_kit::kernel("paged_example_cuda", ASSAY_OP_PAGED, "sm_80", supports,
                                                  run, arithmetic, nullptr, kPromises),
                                assay_kit::kernel("paged_unscaled_cuda", ASSAY_OP_PAGED, "sm_80", supports,
                                                  run, arithmetic, &no_rescale, kPromises)};

}  // namespace
ASSAY_EXPORT_BACKEND(assay_kit::cuda_backend("example", kernels, 2))
