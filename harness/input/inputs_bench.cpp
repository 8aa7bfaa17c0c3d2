// SPDX-License-Identifier: Apache-2.0
// How fast inputs are built: bytes of cache per second for the usual formats and layouts, fresh and when
// only the poison changes. Building must stay small against the runs it serves: 1 GiB of bf16 in under
// 5 s on 2 cores. A format or layout that became slow: another line of arguments.
#include <benchmark/benchmark.h>

#include "harness/input/inputs.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

// 8 heads x 128: one token is 4 KiB of K and V in bf16.
Problem cache_of(int64_t bytes, int32_t format, int32_t scale, int32_t layout) {
  Problem p;
  p.softmax_scale = 0.0883883f;
  p.k_format = p.v_format = format;
  p.k_scale = p.v_scale = scale;
  p.layout = layout;
  const int64_t token_bytes = (format == ASSAY_BF16 ? 2 : 1) * 2 * p.heads_kv * p.head_dim_qk;
  p.requests.assign(64, {1, static_cast<int32_t>(bytes / token_bytes / 64)});
  place_pages(p);
  return p;
}

void build(benchmark::State& state) {
  const Problem p = cache_of(state.range(0) << 20, static_cast<int32_t>(state.range(1)),
                             static_cast<int32_t>(state.range(2)), static_cast<int32_t>(state.range(3)));
  for (auto _ : state) {
    const Inputs inputs = build_inputs(p);
    benchmark::DoNotOptimize(inputs.buffers[0].payload());
  }
  state.SetBytesProcessed(state.iterations() * (state.range(0) << 20));
}
BENCHMARK(build)
    ->ArgNames({"MiB", "format", "scale", "layout"})
    ->Args({1024, ASSAY_BF16, ASSAY_SCALE_NONE, ASSAY_LAYOUT_NHD})
    ->Args({128, ASSAY_BF16, ASSAY_SCALE_NONE, ASSAY_LAYOUT_NHD})
    ->Args({128, ASSAY_BF16, ASSAY_SCALE_NONE, ASSAY_LAYOUT_X})
    ->Args({128, ASSAY_FP8_E4M3, ASSAY_SCALE_HEAD, ASSAY_LAYOUT_NHD})
    ->Args({128, ASSAY_INT8, ASSAY_SCALE_TOKEN_HEAD, ASSAY_LAYOUT_NHD})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void change_poison(benchmark::State& state) {
  Inputs inputs = build_inputs(
      cache_of(state.range(0) << 20, ASSAY_BF16, ASSAY_SCALE_NONE, static_cast<int32_t>(state.range(1))));
  for (auto _ : state) repoison(inputs, Poison::kLow);
  state.SetBytesProcessed(state.iterations() * (state.range(0) << 20));
}
BENCHMARK(change_poison)
    ->ArgNames({"MiB", "layout"})
    ->Args({128, ASSAY_LAYOUT_NHD})
    ->Args({128, ASSAY_LAYOUT_X})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace assay
