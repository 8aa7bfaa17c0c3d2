// SPDX-License-Identifier: Apache-2.0
// Speed of the scenario language: cases per second of a suite that is expanded and printed (the goal is
// a million in under 5 s), of parsing one line, and of cover=3 over 14 axes of 6 values.
#include <benchmark/benchmark.h>

#include "harness/scenario/suite.hpp"

namespace {

constexpr const char* kMillion =
    "paged d=[16:160:16] h=8,16 q=bf16,fp16 page=8,16,32,64,128 cap=0,[10:40:10] mask=causal,full "
    "sinks=on,off "
    "batch=[1:25]q1s[1k:8k:*2] seed=[1:25]";

void BM_ExpandAndPrint(benchmark::State& state) {
  int64_t cases = 0;
  for (auto _ : state) {
    assay::Suite suite = assay::Suite::from_text(kMillion, {"bench", 1, 1});
    int64_t bytes = 0;
    int64_t count = 0;
    while (count < state.range(0)) {
      const auto c = suite.next();
      if (!c) break;
      bytes += static_cast<int64_t>(assay::print(c->scenario).size());
      ++count;
    }
    benchmark::DoNotOptimize(bytes);
    cases += count;
  }
  state.SetItemsProcessed(cases);
}
BENCHMARK(BM_ExpandAndPrint)->Arg(1000000)->Unit(benchmark::kMillisecond);

void BM_ParseLine(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(
        assay::parse_scenario("paged h=32/8 d=128 kv=fp8_e4m3:head page=16 layout=nhd mask=causal "
                              "window=1023 batch=64q1s4k_2q512s2k seed=7"));
}
BENCHMARK(BM_ParseLine);

// With rules between the axes (mask and chunk, layout and page), as a suite has them.
void BM_Cover14Axes6Values(benchmark::State& state) {
  int64_t rows = 0;
  for (auto _ : state) {
    assay::Suite suite = assay::Suite::from_text(
        "paged h=4,8,16,8/2,16/4,6/3 d=16,32,48,64,96,128 kv=bf16,fp16,fp32,fp8_e4m3,int8,fp8_e5m2 "
        "page=8,16,32,64,128,256 "
        "window=-1,0,15,16,63,127 cap=0,1,5,10,30,50 "
        "input=normal,peaked,ascending,boundary,cancelling,outlier "
        "strides=packed,q,kv,out,table,q+kv scale=auto,0.1,0.2,0.5,1,2 seed=[1:6] chunk=0,16,32,64,100,128 "
        "batch=[1:6]q[1:6]s[64:384:64] cover=3",
        {"bench", 1, 1});
    rows = 0;
    while (suite.next()) ++rows;
  }
  state.counters["rows"] = static_cast<double>(rows);
}
BENCHMARK(BM_Cover14Axes6Values)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
