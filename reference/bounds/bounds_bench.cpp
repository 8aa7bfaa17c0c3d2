// SPDX-License-Identifier: Apache-2.0
// Cost of reference and bounds together, per row and 1,024 keys of one query head. Prefill-like: 256 rows of
// one request, with every tier where the order of the kernel is declared; decode-like: one row, all query
// heads of a KV head together.
#include <benchmark/benchmark.h>

#include "harness/base/memory.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_emulator.hpp"

namespace assay {
namespace {

const bool as_in_the_program = (keep_freed_memory(), true);

void bounds(benchmark::State& state, int32_t rows, int32_t group, int32_t p_format, bool declared = true,
            bool eight_bits = false) {
  const auto keys = static_cast<int32_t>(state.range(0));
  testkit::DenseCase c = testkit::make_case(testkit::Family::kNormal, rows, keys, 128, 1);
  c.problem.mask = ASSAY_MASK_FULL;
  c.problem.heads_q = group;
  c.problem.heads_kv = 1;
  if (eight_bits) c.problem.k_format = c.problem.v_format = ASSAY_FP8_E4M3;
  c.q.resize(static_cast<size_t>(rows) * group * 128, 0.25);
  c.store();
  assay_arithmetic a = default_arithmetic();
  a.qk.block = a.pv.block = 16;
  if (eight_bits) a.qk = a.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
  a.tile_keys = 64;
  a.p_format = p_format;
  a.order_declared = declared;
  for (auto _ : state) {
    const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), a);
    benchmark::DoNotOptimize(b.o_bound.data());
  }
  state.counters["us_per_row_1k_keys"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * rows * group * keys / 1024 * 1e-6,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(bounds, prefill_bf16_p, 256, 2, ASSAY_BF16)->Arg(1024)->Arg(8192)->UseRealTime();
BENCHMARK_CAPTURE(bounds, prefill_bf16_p_undeclared, 256, 2, ASSAY_BF16, false)->Arg(8192)->UseRealTime();
BENCHMARK_CAPTURE(bounds, prefill_fp32_p, 256, 2, ASSAY_FP32)->Arg(8192)->UseRealTime();
BENCHMARK_CAPTURE(bounds, prefill_e4m3_p, 256, 2, ASSAY_FP8_E4M3)->Arg(8192)->UseRealTime();
BENCHMARK_CAPTURE(bounds, prefill_8_bit_cache, 256, 2, ASSAY_FP16, true, true)->Arg(8192)->UseRealTime();
BENCHMARK_CAPTURE(bounds, decode_group_32, 1, 32, ASSAY_BF16)->Arg(32768)->UseRealTime();
BENCHMARK_CAPTURE(bounds, decode_group_4, 1, 4, ASSAY_BF16)->Arg(32768)->UseRealTime();

}  // namespace
}  // namespace assay
