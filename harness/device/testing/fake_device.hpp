// SPDX-License-Identifier: Apache-2.0
// The device behind the fake backend: host memory under another name, several devices on demand, graphs that
// are kept calls, and one matrix instruction to calibrate.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "harness/abi/assay_kernel.h"

// A graph is the calls themselves, kept: what the host said at capture stays, the memory is read anew.
struct assay_graph {
  struct Call {
    const assay_kernel* kernel;
    assay_problem problem;
    assay_tensors tensors;
    assay_plan* plan;
  };
  std::vector<Call> calls;
};

namespace assay_fake {

// Of the device in use: kernels do their work twice.
inline bool slow_device = false;

inline void fail_text(char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
}

// One past the last byte of a view.
inline char* end_of(const assay_tensor& t, int bytes) {
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return static_cast<char*>(t.data) + (last + 1) * bytes;
}
inline int bytes_of(int32_t format) { return format == ASSAY_FP32 ? 4 : 2; }

inline bool packed(const assay_tensor& q) { return q.stride[0] == q.shape[1] * q.shape[2]; }

// cu_q and kv_len, one after the other.
inline void copy_lengths(const assay_problem& p, const assay_tensors& ts, int32_t* to) {
  for (int r = 0; r <= p.requests; ++r) to[r] = static_cast<const int32_t*>(ts.cu_q.data)[r];
  for (int r = 0; r < p.requests; ++r)
    to[p.requests + 1 + r] = static_cast<const int32_t*>(ts.kv_len.data)[r * ts.kv_len.stride[0]];
}
// The tensors with the lengths a refresh kept.
inline assay_tensors with_lengths(const assay_problem& p, assay_tensors ts, int32_t* kept) {
  ts.cu_q.data = kept;
  ts.kv_len.data = kept + p.requests + 1;
  ts.kv_len.stride[0] = 1;
  return ts;
}

// What kernels left for the calls behind them, as the runtime of a GPU would keep it.
inline bool device_gone = false, error_pending = false;
inline int gone(char* error, size_t size) {
  if (!device_gone) return ASSAY_OK;
  return fail_text(error, size, "the fake device is gone"), ASSAY_FAILED;
}

// ASSAY_FAKE_DEVICES of them, one by default; the last of several is slow.
inline int32_t device_count() {
  const char* text = std::getenv("ASSAY_FAKE_DEVICES");
  return text != nullptr ? std::atoi(text) : 1;
}
inline bool no_device(int32_t device, char* error, size_t size) {
  if (device >= 0 && device < device_count()) return false;
  fail_text(error, size, "the fake backend has fewer devices");
  return true;
}
inline int device_info(int32_t device, assay_device* info, char* error, size_t size) {
  if (no_device(device, error, size)) return ASSAY_INVALID_ARGUMENT;
  *info = assay_device{};
  if (device_count() > 1) std::snprintf(info->uuid, sizeof(info->uuid), "FAKE-%d", device);
  info->struct_size = sizeof(*info);
  std::snprintf(info->name, sizeof(info->name), "fake device");
  std::snprintf(info->arch, sizeof(info->arch), "fake");
  info->multiprocessors = 1;
  info->memory_bytes = int64_t{1} << 34;
  info->cache_bytes = 1 << 20;
  return ASSAY_OK;
}
inline int use_device(int32_t device, char* error, size_t size) {
  if (no_device(device, error, size)) return ASSAY_INVALID_ARGUMENT;
  slow_device = device > 0 && device + 1 == device_count();
  return ASSAY_OK;
}
inline int allocate(int64_t bytes, void** pointer, char* error, size_t size) {
  if (const int bad = gone(error, size)) return bad;
  *pointer = std::malloc(static_cast<size_t>(bytes));
  if (*pointer == nullptr) return fail_text(error, size, "malloc failed"), ASSAY_OUT_OF_MEMORY;
  return ASSAY_OK;
}
inline int release(void* pointer, char*, size_t) { return std::free(pointer), ASSAY_OK; }
inline int copy(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  if (const int bad = gone(error, size)) return bad;
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return ASSAY_OK;
}
inline int synchronize(char* error, size_t size) {
  if (std::exchange(error_pending, false))
    return fail_text(error, size, "an error was left behind"), ASSAY_FAILED;
  return gone(error, size);
}
// What is being captured, or null, and the stream it is captured on.
inline assay_graph* capturing = nullptr;
inline int begin_capture(void** stream, char* error, size_t size) {
  if (capturing != nullptr) return fail_text(error, size, "a capture is under way already"), ASSAY_FAILED;
  *stream = capturing = new assay_graph;
  return ASSAY_OK;
}
inline int end_capture(assay_graph** graph, char* error, size_t size) {
  if (capturing == nullptr) return fail_text(error, size, "no capture is under way"), ASSAY_FAILED;
  if (graph != nullptr)
    *graph = capturing;
  else
    delete capturing;
  capturing = nullptr;
  return ASSAY_OK;
}
// Whether a call belongs into the capture under way; kept there then.
inline bool recorded(const assay_kernel* kernel, const assay_problem* problem, const assay_tensors* tensors,
                     assay_plan* plan, void* stream) {
  if (capturing == nullptr || stream != capturing) return false;
  capturing->calls.push_back({kernel, *problem, *tensors, plan});
  return true;
}
inline int replay(assay_graph* g, char* error, size_t size) {
  for (const assay_graph::Call& c : g->calls)
    if (const int bad = c.kernel->run(c.kernel, &c.problem, &c.tensors, c.plan, nullptr, error, size))
      return bad;
  return ASSAY_OK;
}
inline int time_replay(assay_graph* g, int64_t, double* microseconds, char* error, size_t size) {
  const auto start = std::chrono::steady_clock::now();
  const int status = replay(g, error, size);
  *microseconds = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  return status;
}
inline void free_graph(assay_graph* g) { delete g; }

// One matrix instruction of eight products, added one after the other in fp32.
inline constexpr int kProducts = 8;
inline constexpr assay_instruction kInstruction = {
    sizeof(assay_instruction), "fake products", ASSAY_INSTRUCTION_PRODUCTS, ASSAY_BF16, kProducts, 0};
inline int instructions(const assay_instruction* const** list, int32_t* count, char*, size_t) {
  static const assay_instruction* const all[] = {&kInstruction};
  *list = all, *count = 1;
  return ASSAY_OK;
}
inline int run_products(const assay_instruction*, int64_t count, const float* a, const float* b,
                        const float* c, float* d, char*, size_t) {
  for (int64_t i = 0; i < count; ++i) {
    d[i] = c[i];
    for (int k = 0; k < kProducts; ++k) d[i] = std::fma(a[i * kProducts + k], b[i * kProducts + k], d[i]);
  }
  return ASSAY_OK;
}
inline int run_function(const assay_instruction*, uint32_t, int64_t, float*, char* error, size_t size) {
  return fail_text(error, size, "the fake backend has no functions"), ASSAY_INVALID_ARGUMENT;
}
inline int measure_rate(const assay_instruction*, double* flops, char*, size_t) {
  return *flops = 2e11, ASSAY_OK;
}

// Keeps what a call has written; `back`: and leaves what was kept before in its place.
inline void exchange_kept(void* data, char* last, bool back) {
  static std::vector<char> kept;
  char* const first = static_cast<char*>(data);
  std::vector<char> now(first, last);
  if (back && kept.size() == now.size()) std::copy(kept.begin(), kept.end(), first);
  kept = std::move(now);
}

// The fake has no hardware to measure; round figures keep percentages finite in the tests that use it.
inline int measure_bandwidth(int32_t, int64_t, double* rate, char*, size_t) { return *rate = 1e10, ASSAY_OK; }
inline int measure_matrix_rate(int32_t, double* rate, char*, size_t) { return *rate = 1e11, ASSAY_OK; }

}  // namespace assay_fake
