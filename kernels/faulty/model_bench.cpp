// SPDX-License-Identifier: Apache-2.0
// Speed of the model kernel per (row x head, key): what `assay mutants` has to pay for thousands of cases.
// One row-key of d = 128 is 256 multiply-adds, a few exponentials' worth of softmax and its share of loading
// a tile.
#include <benchmark/benchmark.h>

#include <string>

#include "harness/input/inputs.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/faulty/accumulate.hpp"
#include "kernels/faulty/model.hpp"

namespace {

using assay_faulty::Row;

const Row& variant(const std::string& name) {
  const assay_faulty::Table table = assay_faulty::legal_variants();
  for (int i = 0; i < table.count; ++i)
    if (name == table.rows[i].name) return table.rows[i];
  throw std::runtime_error("no variant " + name);
}

void attention(benchmark::State& state, const char* name, const char* line) {
  const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
  const assay::Inputs inputs = assay::build_inputs(problem);
  double row_keys = 0;
  for (size_t r = 0; r < problem.requests.size(); ++r)
    for (int32_t i = 0; i < problem.requests[r].q_len; ++i) {
      const assay::KeyRange keys = assay::visible_range(problem, static_cast<int>(r), i);
      row_keys += (keys.end - keys.begin) * problem.heads_q;
    }
  assay_faulty::State kept;
  char error[256];
  for (auto _ : state)
    if (run_model(variant(name), inputs.view->get(), &inputs.tensors, kept, error, sizeof error) != ASSAY_OK)
      state.SkipWithError(error);
  state.counters["row_key"] = benchmark::Counter(
      row_keys, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

constexpr const char* kPrefill = "prefill h=4/2 batch=1q256 seed=1";
constexpr const char* kDecode = "paged h=8/1 batch=8q1s1k seed=1";
constexpr const char* kFp8 = "paged h=8/1 q=fp8_e4m3 kv=fp8_e4m3 batch=8q1s1k seed=1";
BENCHMARK_CAPTURE(attention, prefill_lanes, "simt", kPrefill)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, prefill_block, "hopper", kPrefill)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, prefill_ex2, "hopper_tile128", kPrefill)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, decode_lanes, "simt", kDecode)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, decode_block, "hopper", kDecode)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, decode_split16, "split16", kDecode)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, decode_fp8, "fp8_two_level", kFp8)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, decode_dequant, "dequant", "paged h=8/1 kv=fp8_e4m3 batch=8q1s1k seed=1")
    ->Unit(benchmark::kMillisecond);

// The accumulators alone, multiply-adds per second.
void products(benchmark::State& state, assay_faulty::Accumulator unit) {
  constexpr int kDepth = 128, kWidth = 128;
  std::vector<float> a(kDepth), b(kDepth * kWidth), sum(kWidth, 0.0f);
  for (int i = 0; i < kDepth; ++i) a[i] = static_cast<float>(i % 7 - 3) + 0.5f;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 13) * 0.25f - 1.5f;
  std::vector<int16_t> ea(a.size()), eb(b.size());
  assay_faulty::exponents_of(a.data(), kDepth, -126, ea.data());
  assay_faulty::exponents_of(b.data(), kDepth * kWidth, -126, eb.data());
  for (auto _ : state) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    assay_faulty::accumulate(unit, a.data(), ea.data(), {b.data(), eb.data(), kWidth}, kDepth, 0, kWidth,
                             sum.data());
    benchmark::DoNotOptimize(sum.data());
  }
  state.counters["multiply_add"] = benchmark::Counter(
      kDepth * kWidth, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(products, lanes, assay_faulty::kSimt);
BENCHMARK_CAPTURE(products, hopper, assay_faulty::kHopper);
BENCHMARK_CAPTURE(products, ampere, assay_faulty::kAmpere);
BENCHMARK_CAPTURE(products, hopper_fp8, assay_faulty::kHopperFp8);

}  // namespace

BENCHMARK_MAIN();
