// SPDX-License-Identifier: Apache-2.0
// Measured limits of the machine: how fast memory is read or copied and how fast the multiply-add units
// run, with all threads. Reports divide by these, so each is the best of several passes: a limit disturbed
// by a neighbour would flatter the kernels.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/online/engine.hpp"
#include "kernels/device/host_memory.hpp"

namespace assay_cpu {

const Engine& engine_for(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return scalar_engine();
    case Isa::kAvx2:
      return avx2_engine();
    case Isa::kAvx512:
      return avx512_engine();
    default:
      return amx_engine();
  }
}

namespace {

constexpr int kPasses = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

using assay_host::fail;

}  // namespace

int measure_bandwidth(int32_t op, int64_t bytes, double* bytes_per_second, char* error, size_t size) {
  Isa isa;
  if (!active_isa(&isa, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (op < 0 || op > 2 || bytes < 4096 || bytes_per_second == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "bandwidth: op must be 0 (read), 1 (copy) or 2 (write) over at least 4096 bytes");
  const Engine& engine = engine_for(isa);
  const int threads = omp_get_max_threads();
  // Each thread has its own range of whole cache lines; a copy splits the memory into source and target.
  const int64_t share = bytes / (op == 1 ? 2 : 1) / threads / 64 * 64;
  const int64_t used = share * threads;
  void* block = nullptr;
  if (share == 0 || posix_memalign(&block, size_t{2} << 20, bytes) != 0)
    return fail(ASSAY_OUT_OF_MEMORY, error, size, "bandwidth: no memory of this size");
  madvise(block, bytes, MADV_HUGEPAGE);
  char* data = static_cast<char*>(block);
  double best = 0;
  uint64_t seen = 0;
  for (int pass = -1; pass < kPasses; ++pass) {  // pass -1 touches the pages and wakes the threads
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(threads) reduction(| : seen)
    {
      char* mine = data + omp_get_thread_num() * share;
      if (pass < 0) {
        memset(mine, 1, share);
        if (op == 1) memset(mine + used, 1, share);
      } else if (op == 0) {
        seen |= engine.read_bytes(mine, share);
      } else if (op == 1) {
        memcpy(mine + used, mine, share);
      } else {
        memset(mine, pass + 2, share);
      }
    }
    const double seconds = seconds_since(start);
    if (pass >= 0 && seconds > 0)
      best = std::max(best, static_cast<double>(used) * (op == 1 ? 2 : 1) / seconds);
  }
  free(block);
  if (op == 0 && seen != 0x0101010101010101u)
    return fail(ASSAY_FAILED, error, size, "bandwidth: memory did not hold what was written");
  *bytes_per_second = best;
  return ASSAY_OK;
}

int measure_matrix_rate(int32_t format, double* flops, char* error, size_t size) {
  Isa isa;
  if (!active_isa(&isa, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (flops == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "matrix rate: no place for the result");
  if (format < ASSAY_FP32 || format > ASSAY_INT8)
    return fail(ASSAY_UNSUPPORTED, error, size,
                "matrix rate: required a storage format of Q, K, V, supported fp32 bf16 fp16 fp8 int8");
  const Engine& engine = engine_for(isa);
  // fp16 and fp32 codes are not exact in bf16 and go through the fp32 units; so does everything where there
  // is no bf16 matrix unit.
  const bool narrow = format != ASSAY_FP32 && format != ASSAY_FP16 && engine.bf16_flops != nullptr;
  const auto probe = narrow ? engine.bf16_flops : engine.fp32_flops;
  const int64_t rounds = narrow ? 100000 : 1000000;
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    double done = 0;
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel reduction(+ : done)
    {
      float sink = 0;
      done += probe(rounds, &sink);
      if (sink == 12345.0f) done += 1;  // never: keeps the loop alive
    }
    const double seconds = seconds_since(start);
    if (seconds > 0) best = std::max(best, done / seconds);
  }
  *flops = best;
  return ASSAY_OK;
}

}  // namespace assay_cpu
