// SPDX-License-Identifier: Apache-2.0
// How fast the emulator is, in lane-steps per second: one thread of a block reaching one collective or
// barrier, or making one access to shared memory. Built for all four variants (emu32_bench ...); of use to
// whoever plans a run, never a figure of a GPU. One thread of the host: OMP_NUM_THREADS has no say in a grid
// of one block.
#include <benchmark/benchmark.h>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/host.hpp"
#include "kernels/emulator/testing/steps.hpp"

namespace {

constexpr int kRounds = 2000;

void run(benchmark::State& state, gpu::Status (*launch)(float*, int)) {
  float out[steps::kThreads];
  for (auto _ : state) {
    if constexpr (gpu::emulator::kChecked)
      gpu::emulator::check::begin_call({{reinterpret_cast<unsigned char*>(out), sizeof out,
                                         gpu::emulator::check::Role::kOutput, sizeof(float), "out"}});
    if (launch(out, kRounds) != emulatorSuccess) state.SkipWithError(gpu::emulator::last_error().c_str());
    if constexpr (gpu::emulator::kChecked) gpu::emulator::check::end_call();
    benchmark::DoNotOptimize(out);
  }
  state.counters["lane_steps"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * kRounds * steps::kThreads, benchmark::Counter::kIsRate);
}

BENCHMARK_CAPTURE(run, shuffle, steps::shuffles);
BENCHMARK_CAPTURE(run, barrier, steps::barriers);
BENCHMARK_CAPTURE(run, shared_read, steps::shared_reads);
BENCHMARK_CAPTURE(run, matrix, steps::matrices);

}  // namespace
