// SPDX-License-Identifier: Apache-2.0
// Speed of the CPU backend beside its measured limits: read bandwidth and multiply-add rates, paged decode
// (bytes of K and V per second) and prefill (FLOP per second; causal counts visible pairs only).
// With OMP_NUM_THREADS=1 the CPU column is the work itself, whatever else the machine does.
//   cpu_bench --benchmark_filter=decode
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace {

const assay_backend& backend() { return *assay_backend_open(ASSAY_ABI_VERSION); }

const assay_kernel* find_kernel(const std::string& name) {
  for (int i = 0; i < backend().kernel_count; ++i)
    if (name == backend().kernels[i]->name) return backend().kernels[i];
  return nullptr;
}

int element_size(int32_t format) { return format == ASSAY_FP32 ? 4 : format <= ASSAY_FP16 ? 2 : 1; }

// One call with dense operands; values are a short repeating ramp of small normal numbers.
class Call {
 public:
  Call(int32_t op, int32_t format, int32_t mask, int requests, int q_len, int kv_len, int heads_q,
       int heads_kv, int dim, int page)
      : q_len_(requests, q_len), kv_len_(requests, kv_len) {
    p_.struct_size = sizeof p_, p_.op = op, p_.mask = mask;
    p_.heads_q = heads_q, p_.heads_kv = heads_kv, p_.head_dim_qk = p_.head_dim_v = dim;
    p_.q_format = element_size(format) == 1 ? ASSAY_BF16 : format;
    p_.k_format = p_.v_format = format, p_.o_format = p_.q_format;
    p_.softmax_scale = 0.088f, p_.window_left = p_.window_right = -1;
    p_.layout = ASSAY_LAYOUT_NHD, p_.page_size = page,
    p_.table = op == ASSAY_OP_PAGED ? ASSAY_TABLE_BLOCK : 0;
    p_.requests = requests, p_.max_q_len = q_len, p_.max_kv_len = kv_len;
    p_.total_q = int64_t{requests} * q_len, p_.total_kv = int64_t{requests} * kv_len;
    p_.q_len = q_len_.data(), p_.kv_len = kv_len_.data();
    t_.struct_size = sizeof t_;
    t_.q = make(p_.q_format, {p_.total_q, heads_q, dim}, true);
    t_.o = make(p_.o_format, {p_.total_q, heads_q, dim}, false);
    t_.lse = make(ASSAY_FP32, {p_.total_q, heads_q}, false);
    std::vector<int32_t> cu_q, cu_kv;
    for (int r = 0; r <= requests; ++r) cu_q.push_back(r * q_len), cu_kv.push_back(r * kv_len);
    t_.cu_q = ints(cu_q, {requests + 1});
    if (op == ASSAY_OP_PREFILL) {
      t_.k = make(format, {p_.total_kv, heads_kv, dim}, true),
      t_.v = make(format, {p_.total_kv, heads_kv, dim}, true);
      t_.cu_kv = ints(cu_kv, {requests + 1});
    } else {
      const int64_t per_request = (kv_len + page - 1) / page, blocks = requests * per_request;
      t_.k = make(format, {blocks, page, heads_kv, dim}, true),
      t_.v = make(format, {blocks, page, heads_kv, dim}, true);
      std::vector<int32_t> table(blocks);
      // A fixed permutation: neighbours in a request are far apart in memory.
      for (int64_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i * 7919 % blocks);
      t_.block_table = ints(table, {requests, per_request});
    }
  }
  ~Call() {
    for (void* block : blocks_) backend().release(block, nullptr, 0);
  }
  bool run(const assay_kernel& kernel, std::string* error) {
    if (t_.workspace.data == nullptr)
      t_.workspace = make(
          ASSAY_UINT8, {kernel.workspace_bytes != nullptr ? kernel.workspace_bytes(&kernel, &p_) : 0}, false);
    char text[256] = "";
    const bool ok = kernel.run(&kernel, &p_, &t_, nullptr, nullptr, text, sizeof text) == ASSAY_OK;
    *error = text;
    return ok;
  }

 private:
  assay_tensor make(int32_t format, std::vector<int64_t> shape, bool values) {
    assay_tensor t{};
    t.format = format, t.rank = static_cast<int32_t>(shape.size());
    int64_t count = 1;
    for (int i = t.rank - 1; i >= 0; --i) t.shape[i] = shape[i], t.stride[i] = count, count *= shape[i];
    const int64_t bytes = count * (format == ASSAY_UINT8 ? 1 : element_size(format));
    if (backend().allocate(bytes, &t.data, nullptr, 0) != ASSAY_OK) return t;
    blocks_.push_back(t.data);
    memset(t.data, 0, bytes);
    if (!values) return t;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t x = static_cast<uint32_t>(i * 2654435761u >> 24);
      const float value = (static_cast<float>(x) - 127.5f) / 100.0f;
      uint32_t bits;
      memcpy(&bits, &value, 4);
      if (element_size(format) == 4)
        memcpy(static_cast<char*>(t.data) + 4 * i, &bits, 4);
      else if (element_size(format) == 2)
        static_cast<uint16_t*>(t.data)[i] =
            format == ASSAY_BF16 ? bits >> 16 : 0x3000 + (x << 15) + (x & 0xff);
      else
        static_cast<uint8_t*>(t.data)[i] = (x & 0x80) | (x & 0x3f);
    }
    return t;
  }
  assay_tensor ints(const std::vector<int32_t>& values, std::vector<int64_t> shape) {
    assay_tensor t = make(ASSAY_FP32, shape, false);
    t.format = ASSAY_INT32;
    memcpy(t.data, values.data(), values.size() * 4);
    return t;
  }

  std::vector<int32_t> q_len_, kv_len_;
  assay_problem p_{};
  assay_tensors t_{};
  std::vector<void*> blocks_;
};

void read_bandwidth(benchmark::State& state) {
  double best = 0;
  for (auto _ : state) {
    double rate = 0;
    backend().measure_bandwidth(0, 512 << 20, &rate, nullptr, 0);
    best = std::max(best, rate);
  }
  state.counters["GB/s"] = best * 1e-9;
}
BENCHMARK(read_bandwidth)->Iterations(2)->UseRealTime()->Unit(benchmark::kMillisecond);

void matrix_rate(benchmark::State& state, int32_t format) {
  double best = 0;
  for (auto _ : state) {
    double rate = 0;
    backend().measure_matrix_rate(format, &rate, nullptr, 0);
    best = std::max(best, rate);
  }
  state.counters["GFLOP/s"] = best * 1e-9;
}
BENCHMARK_CAPTURE(matrix_rate, fp32, ASSAY_FP32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(matrix_rate, bf16, ASSAY_BF16)->UseRealTime()->Unit(benchmark::kMillisecond);

// 32 requests x 4,096 tokens, 32/8 heads of 128: 512 MiB of K and V in bf16.
// `cached`: one request of 256 tokens, so that the arithmetic alone is seen.
void decode(benchmark::State& state, int32_t format, int heads_q, bool cached) {
  const int requests = cached ? 1 : 32, tokens = cached ? 256 : 4096;
  Call call(ASSAY_OP_PAGED, format, ASSAY_MASK_CAUSAL, requests, 1, tokens, heads_q, 8, 128, 16);
  const assay_kernel& kernel = *find_kernel("paged_online_cpu");
  std::string error;
  for (auto _ : state)
    if (!call.run(kernel, &error)) state.SkipWithError(error.c_str());
  const double bytes = 2.0 * requests * tokens * 8 * 128 * element_size(format);
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(decode, bf16, ASSAY_BF16, 32, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, bf16_cached, ASSAY_BF16, 32, true)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, bf16_group8, ASSAY_BF16, 64, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, bf16_group8_cached, ASSAY_BF16, 64, true)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, fp8_e4m3, ASSAY_FP8_E4M3, 32, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, fp8_e4m3_cached, ASSAY_FP8_E4M3, 32, true)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, int8, ASSAY_INT8, 32, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, int8_cached, ASSAY_INT8, 32, true)->UseRealTime()->Unit(benchmark::kMillisecond);

void prefill(benchmark::State& state, int32_t format, int32_t mask) {
  const int n = static_cast<int>(state.range(0));
  Call call(ASSAY_OP_PREFILL, format, mask, 1, n, n, 16, 16, 128, 0);
  const assay_kernel& kernel = *find_kernel("prefill_online_cpu");
  std::string error;
  for (auto _ : state)
    if (!call.run(kernel, &error)) state.SkipWithError(error.c_str());
  const double pairs = mask == ASSAY_MASK_CAUSAL ? 0.5 * n * (n + 1.0) : 1.0 * n * n;
  state.counters["GFLOP/s"] =
      benchmark::Counter(4e-9 * 16 * 128 * pairs, benchmark::Counter::kIsIterationInvariantRate);
}
#define ASSAY_PREFILL(name, format, mask)        \
  BENCHMARK_CAPTURE(prefill, name, format, mask) \
      ->Arg(1024)                                \
      ->Arg(4096)                                \
      ->UseRealTime()                            \
      ->Unit(benchmark::kMillisecond)
ASSAY_PREFILL(fp32_causal, ASSAY_FP32, ASSAY_MASK_CAUSAL);
ASSAY_PREFILL(fp32_full, ASSAY_FP32, ASSAY_MASK_FULL);
ASSAY_PREFILL(bf16_causal, ASSAY_BF16, ASSAY_MASK_CAUSAL);
ASSAY_PREFILL(bf16_full, ASSAY_BF16, ASSAY_MASK_FULL);

}  // namespace
