// SPDX-License-Identifier: Apache-2.0
// A CUDA library from the header alone, without the kit: attention over a cache of pages in bf16, fp8 (e4m3)
// or int8, a scale per head or for all, layouts nhd and hnd, a warp per row and head; and the table of a GPU,
// whose times are then the host's. Lengths and tables are read on the device.
#include <assay/assay_arithmetic.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdio>

namespace {

constexpr int kPerLane = 8;  // dimensions of a lane: up to 256 in all

struct Call {  // what travels to the device
  assay_tensor q, k, v, o, lse, cu_q, kv_len, table, k_scale, v_scale;
  int k_kind, v_kind;
  float k_host, v_host;
  int requests, group, dim_qk, dim_v, page, window, slot_axis;  // nhd: slots on axis 1, heads on 2; hnd: 2, 1
  float softmax_scale;
};

__device__ int number(const assay_tensor& t, int64_t i, int64_t j = 0) {
  return static_cast<const int32_t*>(t.data)[i * t.stride[0] + j * t.stride[1]];
}
__device__ float load(const assay_tensor& t, int64_t at) {
  if (t.format == ASSAY_BF16) return __bfloat162float(static_cast<const __nv_bfloat16*>(t.data)[at]);
  if (t.format == ASSAY_INT8) return static_cast<const int8_t*>(t.data)[at];
  return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(t.data)[at]);
}
__device__ float scale(const assay_tensor& t, int kind, float host, int head) {
  if (kind == ASSAY_SCALE_NONE) return 1;
  if (kind == ASSAY_SCALE_HOST) return host;
  return static_cast<const float*>(t.data)[kind == ASSAY_SCALE_HEAD ? head * t.stride[0] : 0];
}

__global__ void attend(const __grid_constant__ Call a) {
  const int row = blockIdx.x, head = blockIdx.y, lane = threadIdx.x, kv_head = head / a.group;
  int request = 0;
  while (request < a.requests && number(a.cu_q, request + 1) <= row) ++request;
  if (request == a.requests) return;  // of no request: its o stays
  const int first = number(a.cu_q, request), rows = number(a.cu_q, request + 1) - first;
  const int position = number(a.kv_len, request) - rows + row - first;
  const int oldest = a.window < 0 ? 0 : max(0, position - a.window);
  const float k_scale = scale(a.k_scale, a.k_kind, a.k_host, kv_head) * a.softmax_scale;
  const float v_scale = scale(a.v_scale, a.v_kind, a.v_host, kv_head);
  float q[kPerLane], o[kPerLane] = {}, top = -INFINITY, sum = 0;
  for (int i = 0; i < kPerLane; ++i) {
    const int d = lane + 32 * i;
    q[i] = d < a.dim_qk ? load(a.q, row * a.q.stride[0] + head * a.q.stride[1] + d * a.q.stride[2]) : 0;
  }
  const auto place = [&](const assay_tensor& t, int64_t block, int slot) {
    return block * t.stride[0] + slot * t.stride[a.slot_axis] + kv_head * t.stride[3 - a.slot_axis];
  };
  for (int j = oldest; j <= position; ++j) {
    const int64_t block = number(a.table, request, j / a.page);
    const int64_t k = place(a.k, block, j % a.page), v = place(a.v, block, j % a.page);
    float s = 0;
    for (int i = 0; i < kPerLane; ++i)
      if (const int d = lane + 32 * i; d < a.dim_qk) s += q[i] * load(a.k, k + d * a.k.stride[3]);
    for (int other = 16; other > 0; other /= 2) s += __shfl_xor_sync(0xffffffff, s, other);
    s *= k_scale;
    const float higher = fmaxf(top, s), old = expf(top - higher), weight = expf(s - higher);
    top = higher, sum = sum * old + weight;
    for (int i = 0; i < kPerLane; ++i)
      if (const int d = lane + 32 * i; d < a.dim_v)
        o[i] = o[i] * old + weight * load(a.v, v + d * a.v.stride[3]);
  }
  for (int i = 0; i < kPerLane; ++i)
    if (const int d = lane + 32 * i; d < a.dim_v)
      static_cast<__nv_bfloat16*>(a.o.data)[row * a.o.stride[0] + head * a.o.stride[1] + d * a.o.stride[2]] =
          __float2bfloat16(sum > 0 ? v_scale * o[i] / sum : 0);
  if (lane == 0)
    static_cast<float*>(a.lse.data)[row * a.lse.stride[0] + head * a.lse.stride[1]] =
        sum > 0 ? top + logf(sum) : -INFINITY;
}

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  const auto known = [](int format, int kind) {
    return (format == ASSAY_BF16 || format == ASSAY_FP8_E4M3 || format == ASSAY_INT8) &&
           (kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_TENSOR || kind == ASSAY_SCALE_HOST ||
            kind == ASSAY_SCALE_HEAD);
  };
  const bool formats = p->q_format == ASSAY_BF16 && p->o_format == ASSAY_BF16 &&
                       known(p->k_format, p->k_scale_kind) && known(p->v_format, p->v_scale_kind);
  const bool plain = p->mask == ASSAY_MASK_CAUSAL && p->window_right < 0 && !p->chunk && !p->alibi &&
                     !(p->softcap > 0) && !p->has_sinks && !p->first_key && !p->positions && !p->drafted &&
                     p->layout <= ASSAY_LAYOUT_HND && p->table == ASSAY_TABLE_BLOCK;
  if (formats && plain && p->head_dim_qk <= 32 * kPerLane && p->head_dim_v <= 32 * kPerLane) return ASSAY_OK;
  return std::snprintf(why, size, "required more than causal attention of bf16 over plain pages, missing it"),
         ASSAY_UNSUPPORTED;
}

int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* a) {
  return assay_like_fp32(a, 32);  // the products of a dot product are dealt to 32 lanes
}

int text_of(cudaError_t status, char* error, size_t size) {
  if (status == cudaSuccess) return ASSAY_OK;
  return std::snprintf(error, size, "%s", cudaGetErrorString(status)), ASSAY_FAILED;
}

int run(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
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
                  t->k_scale,
                  t->v_scale,
                  p->k_scale_kind,
                  p->v_scale_kind,
                  p->k_scale_host,
                  p->v_scale_host,
                  p->requests,
                  p->heads_q / p->heads_kv,
                  p->head_dim_qk,
                  p->head_dim_v,
                  p->page_size,
                  p->window_left,
                  p->layout == ASSAY_LAYOUT_NHD ? 1 : 2,
                  p->softmax_scale};
  const dim3 grid(static_cast<unsigned>(p->total_q), static_cast<unsigned>(p->heads_q));
  attend<<<grid, 32, 0, static_cast<cudaStream_t>(stream)>>>(call);
  return text_of(cudaGetLastError(), error, size);
}

// The table: what a GPU needs of it. Whoever wants graphs, events and measured limits links the kit.
int32_t count() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}
int info(int32_t device, assay_device* d, char* error, size_t size) {
  cudaDeviceProp p;
  if (const int status = text_of(cudaGetDeviceProperties(&p, device), error, size)) return status;
  std::snprintf(d->name, sizeof d->name, "%.127s", p.name);
  std::snprintf(d->arch, sizeof d->arch, "sm_%d%d", p.major, p.minor);
  d->multiprocessors = p.multiProcessorCount, d->cache_bytes = p.l2CacheSize;
  d->memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  return ASSAY_OK;
}
int use(int32_t device, char* error, size_t size) { return text_of(cudaSetDevice(device), error, size); }
int allocate(int64_t bytes, void** to, char* error, size_t size) {
  const cudaError_t status = cudaMalloc(to, static_cast<size_t>(bytes));
  return status == cudaErrorMemoryAllocation ? ASSAY_OUT_OF_MEMORY : text_of(status, error, size);
}
int release(void* p, char* error, size_t size) { return text_of(cudaFree(p), error, size); }
int copy_there(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  return text_of(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice), error, size);
}
int copy_back(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  return text_of(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost), error, size);
}
int wait(char* error, size_t size) { return text_of(cudaDeviceSynchronize(), error, size); }
int bandwidth(int32_t, int64_t, double*, char*, size_t) { return ASSAY_UNSUPPORTED; }
int rate(int32_t, double*, char*, size_t) { return ASSAY_UNSUPPORTED; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  static assay_kernel kernel;
  kernel.struct_size = sizeof kernel;
  kernel.name = "paged_bare_cuda", kernel.description = "a warp per row and head", kernel.arch = "sm_80";
  kernel.op = ASSAY_OP_PAGED, kernel.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT;
  kernel.supports = supports, kernel.arithmetic = arithmetic, kernel.run = run;
  static const assay_kernel* kernels[] = {&kernel};
  static assay_backend table;  // what is not named stays null: no graphs, no calibration, the host's times
  table.struct_size = sizeof table, table.abi_version = ASSAY_ABI_VERSION, table.name = "bare_cuda";
  table.kernel_count = 1, table.kernels = kernels;
  table.device_count = count, table.device_info = info, table.use_device = use;
  table.allocate = allocate, table.release = release, table.copy_to_device = copy_there,
  table.copy_to_host = copy_back;
  table.synchronize = wait, table.measure_bandwidth = bandwidth, table.measure_matrix_rate = rate;
  return version == ASSAY_ABI_VERSION ? &table : nullptr;
}
