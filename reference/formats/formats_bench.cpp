// SPDX-License-Identifier: Apache-2.0
// Speed of the number-format conversions on spans: items are elements. Inputs of a paged cache are
// encoded, and the fast reference decodes every key once per KV head, so both directions matter.
#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <vector>

#include "reference/formats/formats.hpp"

namespace {

constexpr int64_t kCount = 1 << 16;

std::vector<double> values() {
  std::vector<double> v(kCount);
  for (int64_t i = 0; i < kCount; ++i) v[i] = 3.0 * std::sin(double(i) * 0.7310585);
  return v;
}

void encode_span_bench(benchmark::State& state) {
  const auto format = int32_t(state.range(0));
  const std::vector<double> in = values();
  std::vector<uint64_t> out(kCount);
  for (auto _ : state) {
    assay::encode_span(format, in.data(), kCount, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kCount);
}

void decode_span_bench(benchmark::State& state) {
  const auto format = int32_t(state.range(0));
  std::vector<uint64_t> codes(kCount);
  assay::encode_span(format, values().data(), kCount, codes.data());
  std::vector<double> out(kCount);
  for (auto _ : state) {
    assay::decode_span(format, codes.data(), kCount, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kCount);
}

}  // namespace

BENCHMARK(encode_span_bench)->DenseRange(ASSAY_FP32, ASSAY_INT8)->ArgName("format");
BENCHMARK(decode_span_bench)->DenseRange(ASSAY_FP32, ASSAY_INT8)->ArgName("format");
