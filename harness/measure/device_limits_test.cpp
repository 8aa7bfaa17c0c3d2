// SPDX-License-Identifier: Apache-2.0
// The limit of a case from known rates, a backend that cannot measure, and a flush that must touch
// every line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <cmath>

#include "harness/measure/cold.hpp"
#include "harness/measure/limits.hpp"

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int fake_bandwidth(int32_t op, int64_t bytes, double* rate, char*, size_t) {
  *rate = op == 0 ? 10e9 : static_cast<double>(bytes);
  return ASSAY_OK;
}
int fake_rate(int32_t format, double* rate, char* error, size_t size) {
  if (format == ASSAY_BF16) {
    std::snprintf(error, size, "no tiles here");
    return ASSAY_UNSUPPORTED;
  }
  *rate = 50e9;
  return ASSAY_OK;
}

TEST(Limits, MeasuredThroughTheBackendAndMissingOnesNamed) {
  assay_backend b{};
  b.name = "fake";
  b.measure_bandwidth = fake_bandwidth;
  b.measure_matrix_rate = fake_rate;
  assay_device d{};
  d.memory_bytes = int64_t{64} << 20;
  const MeasuredLimits m = measure_limits(b, d);
  EXPECT_EQ(m.limits.read_bytes_per_s, 10e9);
  EXPECT_EQ(m.limits.copy_bytes_per_s, 8 << 20) << "an eighth of the memory";
  EXPECT_EQ(m.limits.matrix_flops_fp32, 50e9);
  EXPECT_EQ(m.limits.matrix_flops_bf16, 0);
  EXPECT_THAT(m.missing,
              ElementsAre(HasSubstr("matrix_flops_bf16: measure_matrix_rate of backend fake answered "
                                    "status 1: no tiles here")));
  b.measure_bandwidth = [](int32_t, int64_t, double* rate, char*, size_t) -> int {
    *rate = HUGE_VAL;
    return ASSAY_OK;
  };
  const MeasuredLimits infinite = measure_limits(b, d);
  EXPECT_EQ(infinite.limits.read_bytes_per_s, 0) << "a share of infinity says nothing";
  EXPECT_THAT(infinite.missing,
              ::testing::Contains(HasSubstr("read_bytes_per_s: measure_bandwidth of backend "
                                            "fake answered status 0 and inf")));
  b.measure_bandwidth = nullptr;
  EXPECT_THAT(measure_limits(b, d).missing, ::testing::SizeIs(4));
}

TEST(Limits, TheLongerOfTwoTimesIsTheLimit) {
  const Limits l{.read_bytes_per_s = 10e9, .matrix_flops_fp32 = 1e12, .matrix_flops_bf16 = 4e12};
  Problem p;
  const Work memory{.flops = 1e9, .total_bytes = 1e9};
  EXPECT_EQ(limit_time(memory, p, l).name, "read");
  EXPECT_DOUBLE_EQ(limit_time(memory, p, l).seconds, 0.1);
  const Work compute{.flops = 1e12, .total_bytes = 1e9};
  EXPECT_EQ(limit_time(compute, p, l).name, "matrix");
  EXPECT_DOUBLE_EQ(limit_time(compute, p, l).seconds, 0.25);
  p.k_format = ASSAY_FP32;
  EXPECT_DOUBLE_EQ(limit_time(compute, p, l).seconds, 1.0) << "fp32 operands: the fp32 rate";
  EXPECT_EQ(limit_time(compute, p, {}).name, "");
}

// 1e12 operations in 0.25 s and 1e9 bytes in 0.1 s at the limits; a cache of 4e8 bytes.
TEST(Limits, WhatIsFasterThanCanBe) {
  const Limits l{.read_bytes_per_s = 10e9, .matrix_flops_fp32 = 1e12, .matrix_flops_bf16 = 4e12};
  constexpr int64_t kCache = 400'000'000;
  Problem p;
  p.op = ASSAY_OP_PREFILL;
  const Work compute{.flops = 1e12, .total_bytes = 1e6}, memory{.flops = 1e6, .total_bytes = 1e9},
      small{.flops = 1e6, .total_bytes = 1e8};
  const auto why = [&](const Work& w, double us, bool host = false) {
    return too_fast(w, p, l, kCache, host, us);
  };
  EXPECT_EQ(why(compute, 0.26e6), "");
  EXPECT_EQ(why(compute, 0.17e6), "") << "half as much again as was measured";
  EXPECT_THAT(why(compute, 0.16e6), HasSubstr("the arithmetic alone takes"));
  EXPECT_EQ(why(compute, 0.07e6, true), "") << "the limits may have been measured under others' load";
  EXPECT_THAT(why(compute, 0.06e6, true), HasSubstr("the arithmetic alone"));
  EXPECT_EQ(why(memory, 0.041e6), "") << "of 1e9 bytes 4e8 come from the cache";
  EXPECT_THAT(why(memory, 0.039e6), HasSubstr("what no cache holds"));
  EXPECT_EQ(why(small, 101), "") << "all in the cache";
  EXPECT_THAT(why(small, 99), HasSubstr("every operand once"));
  p.k_format = ASSAY_FP8_E4M3;
  EXPECT_EQ(why(compute, 0.06e6), "") << "a unit for 8 bits that nobody measured";
  p.k_format = ASSAY_FP32;
  EXPECT_THAT(why(compute, 0.16e6), HasSubstr("the arithmetic alone")) << "32 bits are no less work";
  EXPECT_EQ(too_fast(compute, p, {}, kCache, false, 0.001), "") << "nothing is known";
  p.op = ASSAY_OP_MERGE_STATES;
  EXPECT_EQ(why(compute, 1000), "") << "no matrices in it";
}

// A library that calls its caches small, or its processors few, would have its kernels called cold with
// their operands in a cache.
TEST(Cold, WhatALibrarySaysMakesNoCacheSmaller) {
  assay_device device{};
  device.cache_bytes = 64, device.multiprocessors = 1;
  const CacheFlusher f = CacheFlusher::of_host(device);
  EXPECT_GE(f.threads(), omp_get_num_procs());
  EXPECT_GE(f.bytes_per_thread(), 2 * sysconf(_SC_LEVEL2_CACHE_SIZE));
  device.cache_bytes = 1 << 25, device.multiprocessors = f.threads() + 1;
  EXPECT_GE(CacheFlusher::of_host(device).bytes_per_thread(), 2 << 25);
  EXPECT_EQ(CacheFlusher::of_host(device).threads(), f.threads() + 1);
}

TEST(Cold, EveryLineOfEveryThreadIsWritten) {
  CacheFlusher f(1 << 16, 3);
  EXPECT_GT(f.bytes_per_thread(), 2 << 16);
  f.flush();
  f.flush();
  EXPECT_EQ(f.checksum(), 2u * 3u * static_cast<uint64_t>(f.bytes_per_thread() / 64));
}

}  // namespace
}  // namespace assay
