// SPDX-License-Identifier: Apache-2.0
// libassay_gpu_crash.so: kernels that bring down their process or device in every way a kernel under
// development does, each followed by the right kernel under another name, so that a sweep over this library
// shows what the one leaves for the other (scripts/checks/gpu_crash.py). To add one: a launch in crash.cu, a
// row below, a row of the script. Built into testing/, where the program does not find it by itself.
#include "kernels/cuda/testing/crash.hpp"
#include "kernels/cuda/testing/healthy.hpp"
#include "kernels/device/assay_kit.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

int run_right(const assay_problem* p, const assay_tensors* t, void* stream, char* error, size_t size) {
  return healthy().run(&healthy(), p, t, nullptr, stream, error, size);
}

using Run = decltype(assay_kernel::run);

int run_address(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void* s,
                char* error, size_t size) {
  return answer(launch_illegal_address(static_cast<gpu::Stream>(s)), "launch", error, size);
}
// Right itself, and gone before its error shows.
int run_sticky(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*, void* s,
               char* error, size_t size) {
  if (const int bad = run_right(p, t, s, error, size)) return bad;
  return answer(launch_illegal_address_later(kSecond / 5), "launch", error, size);
}
int run_assert(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void* s,
               char* error, size_t size) {
  return answer(launch_assert(static_cast<gpu::Stream>(s)), "launch", error, size);
}
int run_trap(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void* s,
             char* error, size_t size) {
  return answer(launch_trap(static_cast<gpu::Stream>(s)), "launch", error, size);
}
int run_endless(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void* s,
                char* error, size_t size) {
  int* never = nullptr;
  if (const int bad = answer(cudaMalloc(&never, sizeof *never), "allocate", error, size)) return bad;
  if (const int bad = answer(cudaMemset(never, 0, sizeof *never), "clear", error, size)) return bad;
  return answer(launch_spin(never, 600 * kSecond, static_cast<gpu::Stream>(s)), "launch", error, size);
}
// Right itself, but a launch before it failed unseen.
int run_pending(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*, void* s,
                char* error, size_t size) {
  const int status = run_right(p, t, s, error, size);
  launch_with_too_many_threads();
  return status;
}
int run_memory(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void*,
               char* error, size_t size) {
  void* memory = nullptr;
  return answer(cudaMalloc(&memory, size_t{1} << 46), "allocate 64 TiB", error, size);
}
// Right itself, and one element too many.
int run_overrun(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*, void* s,
                char* error, size_t size) {
  if (const int bad = run_right(p, t, s, error, size)) return bad;
  int64_t last = 0;
  for (int i = 0; i < t->lse.rank; ++i) last += (t->lse.shape[i] - 1) * t->lse.stride[i];
  int* const past = static_cast<int*>(t->lse.data) + last + 1;
  return answer(launch_write(past, static_cast<gpu::Stream>(s)), "launch", error, size);
}

int64_t petabyte(const assay_kernel*, const assay_problem*) { return int64_t{1} << 50; }

assay_kernel entry(const char* name, Run run, decltype(assay_kernel::workspace_bytes) workspace = nullptr) {
  assay_kernel k = healthy();
  k.name = name, k.description = "planted", k.run = run, k.workspace_bytes = workspace;
  return k;
}

std::vector<const assay_kernel*> kernels() {
  static const assay_kernel all[] = {
      entry("paged_address_crash", run_address),
      entry("paged_afteraddress_crash", healthy().run),
      entry("paged_assert_crash", run_assert),
      entry("paged_afterassert_crash", healthy().run),
      entry("paged_trap_crash", run_trap),
      entry("paged_aftertrap_crash", healthy().run),
      entry("paged_sticky_crash", run_sticky),
      entry("paged_aftersticky_crash", healthy().run),
      entry("paged_endless_crash", run_endless),
      entry("paged_afterendless_crash", healthy().run),
      entry("paged_pending_crash", run_pending),
      entry("paged_afterpending_crash", healthy().run),
      entry("paged_memory_crash", run_memory),
      entry("paged_aftermemory_crash", healthy().run),
      entry("paged_workspace_crash", healthy().run, petabyte),
      entry("paged_afterworkspace_crash", healthy().run),
      entry("paged_overrun_crash", run_overrun),
      entry("paged_afteroverrun_crash", healthy().run),
  };
  std::vector<const assay_kernel*> list;
  for (const assay_kernel& k : all) list.push_back(&k);
  return list;
}

}  // namespace

}  // namespace assay_gpu

ASSAY_EXPORT_BACKEND(assay_gpu::cuda_backend("gpu_crash", assay_gpu::kernels()))
