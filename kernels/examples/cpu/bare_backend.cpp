// SPDX-License-Identifier: Apache-2.0
// A library from the header alone, without the kit: prefill of fp32 in two passes, declared, and the table of
// a CPU. Whoever has memory of a device instead answers 0 for host_memory and fills allocate, copies and
// synchronize with that.
#include <assay/assay_kernel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static const float& at(const assay_tensor& t, int64_t i, int64_t j, int64_t d = 0) {
  return static_cast<const float*>(
      t.data)[i * t.stride[0] + j * t.stride[1] + d * (t.rank > 2 ? t.stride[2] : 0)];
}
static int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*,
                    char* why, size_t size) {
  const bool fp32 = p->q_format == ASSAY_FP32 && p->k_format == ASSAY_FP32 && p->v_format == ASSAY_FP32 &&
                    p->o_format == ASSAY_FP32;
  const bool plain = p->mask == ASSAY_MASK_CAUSAL && p->window_left < 0 && p->window_right < 0 && !p->chunk &&
                     !p->alibi && !(p->softcap > 0) && !p->has_sinks && !p->first_key && !p->positions;
  if (fp32 && plain) return ASSAY_OK;
  return std::snprintf(why, size, "required more than causal attention of fp32, missing it"),
         ASSAY_UNSUPPORTED;
}
static int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* a) {
  a->exp_relative_error = a->log_absolute_error = 1.0 / (1 << 23);  // of the C library
  return ASSAY_OK;
}
static int run(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char*,
               size_t) {
  const auto* first_row = static_cast<const int32_t*>(t->cu_q.data);
  const auto* first_key = static_cast<const int32_t*>(t->cu_kv.data);
  for (int32_t r = 0; r < p->requests; ++r) {
    const int64_t row0 = first_row[r * t->cu_q.stride[0]],
                  rows = first_row[(r + 1) * t->cu_q.stride[0]] - row0;
    const int64_t key0 = first_key[r * t->cu_kv.stride[0]],
                  keys = first_key[(r + 1) * t->cu_kv.stride[0]] - key0;
    for (int64_t i = 0; i < rows; ++i)
      for (int32_t h = 0; h < p->heads_q; ++h) {
        const int32_t kv = h / (p->heads_q / p->heads_kv);
        const int64_t seen = std::max<int64_t>(0, keys - rows + i + 1);
        const auto score = [&](int64_t j) {
          float s = 0;
          for (int32_t d = 0; d < p->head_dim_qk; ++d)
            s += at(t->q, row0 + i, h, d) * at(t->k, key0 + j, kv, d);
          return s * p->softmax_scale;
        };
        float top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < seen; ++j) top = std::max(top, score(j));
        for (int64_t j = 0; j < seen; ++j) sum += std::exp(score(j) - top);
        for (int32_t d = 0; d < p->head_dim_v; ++d) {
          float o = 0;
          for (int64_t j = 0; j < seen; ++j) o += std::exp(score(j) - top) * at(t->v, key0 + j, kv, d);
          const_cast<float&>(at(t->o, row0 + i, h, d)) = seen > 0 ? o / sum : 0;
        }
        const_cast<float&>(at(t->lse, row0 + i, h)) = seen > 0 ? top + std::log(sum) : -INFINITY;
      }
  }
  return ASSAY_OK;
}

// The table: what a CPU needs of it.
static int32_t count() { return 1; }
static int info(int32_t, assay_device* d, char*, size_t) {
  std::snprintf(d->name, sizeof d->name, "a CPU");  // d came with its struct_size and is zero but for that
  std::snprintf(d->arch, sizeof d->arch, "x86-64");
  return ASSAY_OK;
}
static int use(int32_t, char*, size_t) { return ASSAY_OK; }
static int allocate(int64_t bytes, void** to, char*, size_t) {
  *to = std::malloc(static_cast<size_t>(bytes));
  return *to != nullptr ? ASSAY_OK : ASSAY_OUT_OF_MEMORY;
}
static int release(void* p, char*, size_t) { return std::free(p), ASSAY_OK; }
static int copy(void* to, const void* from, int64_t bytes, char*, size_t) {
  return std::memcpy(to, from, static_cast<size_t>(bytes)), ASSAY_OK;
}
static int wait(char*, size_t) { return ASSAY_OK; }
static int bandwidth(int32_t, int64_t, double*, char*, size_t) { return ASSAY_UNSUPPORTED; }
static int rate(int32_t, double*, char*, size_t) { return ASSAY_UNSUPPORTED; }

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  static assay_kernel kernel;
  kernel.struct_size = sizeof kernel;
  kernel.name = "prefill_bare_cpu", kernel.description = "two passes, fp32", kernel.arch = "x86-64";
  kernel.op = ASSAY_OP_PREFILL, kernel.promises = ASSAY_PROMISE_REPEATABLE;
  kernel.supports = supports, kernel.arithmetic = arithmetic, kernel.run = run;
  static const assay_kernel* kernels[] = {&kernel};
  static assay_backend table;  // what is not named stays null: a CPU needs none of it
  table.struct_size = sizeof table, table.abi_version = ASSAY_ABI_VERSION, table.name = "bare";
  table.kernel_count = 1, table.kernels = kernels, table.host_memory = 1;
  table.device_count = count, table.device_info = info, table.use_device = use;
  table.allocate = allocate, table.release = release, table.copy_to_device = table.copy_to_host = copy;
  table.synchronize = wait, table.measure_bandwidth = bandwidth, table.measure_matrix_rate = rate;
  return version == ASSAY_ABI_VERSION ? &table : nullptr;
}
