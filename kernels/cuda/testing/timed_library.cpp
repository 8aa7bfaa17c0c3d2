// SPDX-License-Identifier: Apache-2.0
// libassay_gpu_timed.so: a right kernel, and the same with two milliseconds of work that it does on a stream
// of its own between calls, so that a clock round a call sees none of it (scripts/checks/gpu_clock.py). The
// work is a stand-in: it waits. What is shown is the way, which a library takes that prepares the next call.
#include "kernels/cuda/testing/crash.hpp"
#include "kernels/cuda/testing/healthy.hpp"
#include "kernels/device/assay_kit.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {
namespace {

constexpr int64_t kWorkNs = 2'000'000, kAheadNs = 50'000'000;

// What the work's launches have in common: a stream that no other waits for, a word that stays zero.
struct Beside {
  gpu::Stream stream{};
  int* never = nullptr;
  gpu::Status made = cudaSuccess;
  Beside() {
    made = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (made == cudaSuccess) made = cudaMalloc(&never, sizeof *never);
    if (made == cudaSuccess) made = cudaMemset(never, 0, sizeof *never);
  }
};

// The call before has left the work of this one on the other stream, unless that was waited for: then it is
// done here, where the clock sees it.
int run_between(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*,
                void* stream, char* error, size_t size) {
  static const Beside beside;
  if (const int bad = answer(beside.made, "stream", error, size)) return bad;
  if (const gpu::Status before = cudaStreamQuery(beside.stream); before == cudaSuccess) {
    if (const int bad = answer(launch_spin(beside.never, kWorkNs, static_cast<gpu::Stream>(stream)), "launch",
                               error, size))
      return bad;
    if (const int bad =
            answer(launch_spin(beside.never, kAheadNs, beside.stream), "launch beside", error, size))
      return bad;
  } else if (before != cudaErrorNotReady) {
    return answer(before, "stream", error, size);
  }
  return healthy().run(&healthy(), p, t, nullptr, stream, error, size);
}

assay_kernel entry(const char* name, decltype(assay_kernel::run) run) {
  assay_kernel k = healthy();
  k.name = name, k.description = "planted", k.run = run;
  return k;
}

std::vector<const assay_kernel*> kernels() {
  static const assay_kernel all[] = {entry("paged_honest_timed", healthy().run),
                                     entry("paged_between_timed", run_between)};
  return {&all[0], &all[1]};
}

}  // namespace
}  // namespace assay_gpu

ASSAY_EXPORT_BACKEND(assay_gpu::cuda_backend("gpu_timed", assay_gpu::kernels()))
