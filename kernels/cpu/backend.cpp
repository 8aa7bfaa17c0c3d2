// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: the one exported symbol, the list of kernels, memory and what the machine can do
// at most (read bandwidth, multiply-add rate), which reports use as the measured limits.
// Add a kernel by adding it to kPlain.
#include <omp.h>

#include <cstdio>
#include <iterator>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/group.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/device/host_memory.hpp"

namespace assay_cpu {
namespace {

const assay_kernel* const kPlain[] = {&kPrefillNaive, &kPagedNaive,        &kPrefillOnline,   &kPagedOnline,
                                      &kMergeStates,  &kCacheWrite,        &kCacheGather,     &kQuantizeInt8,
                                      &kDecodeSplit,  &kPersistentPrefill, &kPersistentPaged, &kReduce};

const std::vector<const assay_kernel*>& kernels() {
  static const std::vector<const assay_kernel*> list = [] {
    std::vector<const assay_kernel*> all(std::begin(kPlain), std::end(kPlain));
    for (const assay_kernel& k : kMetadata) all.push_back(&k);
    const std::vector<const assay_kernel*> steps = step_kernels();
    all.insert(all.end(), steps.begin(), steps.end());
    return all;
  }();
  return list;
}

using assay_host::fail;

int device_info(int32_t device, assay_device* out, char* error, size_t size) {
  if (device != 0 || out == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "the cpu backend has device 0 only");
  Isa isa;
  if (!active_isa(&isa, error, size)) return ASSAY_INVALID_ARGUMENT;
  assay_device info{};
  assay_host::read_model_name(info.name, sizeof info.name);
  const char* arch[] = {"x86-64-v2", "x86-64 avx2", "x86-64 avx512", "x86-64 avx512 amx-bf16"};
  snprintf(info.arch, sizeof info.arch, "%s", arch[static_cast<int>(isa)]);
  info.multiprocessors = omp_get_max_threads();
  assay_host::describe_memory(info);
  assay_kernels::fill_struct(out, info);
  return ASSAY_OK;
}

int use_device(int32_t device, char* error, size_t size) {
  if (device != 0) return fail(ASSAY_INVALID_ARGUMENT, error, size, "the cpu backend has device 0 only");
  Isa isa;  // also asks for the tile registers before any thread exists
  return active_isa(&isa, error, size) ? ASSAY_OK : ASSAY_INVALID_ARGUMENT;
}

// Made when it is asked for: while the library is loaded, kernels of other files may not be there yet, and a
// step is made of what is there.
const assay_backend* backend() {
  static const assay_backend made = [] {
    assay_backend b{};
    b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = "cpu";
    b.kernel_count = static_cast<int32_t>(kernels().size()), b.kernels = kernels().data();
    assay_host::fill(b);
    b.device_info = device_info, b.use_device = use_device;
    b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
    b.host_memory = 1;
    b.instructions = instructions, b.run_products = run_products, b.run_function = run_function;
    b.measure_rate = measure_rate;
    return b;
  }();
  return &made;
}

}  // namespace
}  // namespace assay_cpu

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(
    uint32_t abi_version) {
  return abi_version == ASSAY_ABI_VERSION ? assay_cpu::backend() : nullptr;
}

extern "C" __attribute__((visibility("default"))) int assay_backend_join(const assay_group* group,
                                                                         char* error, size_t size) {
  return assay_kernels::join_group(group, error, size);
}
