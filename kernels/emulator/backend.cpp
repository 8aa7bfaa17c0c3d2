// SPDX-License-Identifier: Apache-2.0
// The emulated device behind the C table: memory is the host's, everything has happened when a call returns,
// and nothing may be timed: how fast an emulation runs says nothing about any GPU.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "harness/abi/assay_disturb.h"
#include "kernels/common/fill_struct.hpp"
#include "kernels/device/host_memory.hpp"
#include "kernels/device/library.hpp"
#include "kernels/emulator/answers.hpp"
#include "kernels/emulator/checked.hpp"
#include "kernels/emulator/disorder.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {
namespace {

int device_info(int32_t device, assay_device* out, char* error, size_t size) {
  if (device != 0 || out == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "device_info: device 0 and a place for the answer");
  assay_device info{};
  std::snprintf(info.name, sizeof info.name, "%s%s", gpu::emulator::kDevice.name,
                gpu::emulator::kChecked ? ", with checker" : "");
  if (gpu::kHopper)
    std::snprintf(info.arch, sizeof info.arch, "sm_90a");
  else
    std::snprintf(info.arch, sizeof info.arch, "emu%d", gpu::kWarp);
  info.multiprocessors = gpu::emulator::kDevice.multiprocessors;
  assay_kernels::fill_struct(out, info);
  return ASSAY_OK;
}

int use_device(int32_t device, char* error, size_t size) {
  if (device != 0) return fail(ASSAY_INVALID_ARGUMENT, error, size, "the emulator has device 0 only");
  multiprocessors = gpu::emulator::kDevice.multiprocessors;
  return ASSAY_OK;
}

int measure_bandwidth(int32_t, int64_t, double*, char* error, size_t size) {
  return fail(ASSAY_UNSUPPORTED, error, size, kNoTimes);
}
int measure_matrix_rate(int32_t, double*, char* error, size_t size) {
  return fail(ASSAY_UNSUPPORTED, error, size, kNoTimes);
}

// What a device refuses while a call is captured.
int copy(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  if (const int bad = refuse_in_capture(error, size)) return bad;
  return assay_host::copy(to, from, bytes, error, size);
}
int synchronize(char* error, size_t size) {
  if (const int bad = refuse_in_capture(error, size)) return bad;
  return assay_host::synchronize(error, size);
}
int allocate(int64_t bytes, void** pointer, char* error, size_t size) {
  if (const int bad = refuse_in_capture(error, size)) return bad;
  return assay_host::allocate(bytes, pointer, error, size);
}

// Made when it is asked for: while the library is loaded, kernels of other files may not be there yet.
const assay_backend* backend() {
  static const assay_backend made = [] {
    static const std::vector<const assay_kernel*> kernels = gpu::emulator::checked(portable_kernels());
    assay_backend b{};
    b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = ASSAY_EMULATOR_NAME;
    b.kernel_count = static_cast<int32_t>(kernels.size()), b.kernels = kernels.data();
    assay_host::fill(b);
    b.copy_to_device = b.copy_to_host = copy, b.synchronize = synchronize, b.allocate = allocate;
    b.device_info = device_info, b.use_device = use_device;
    b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
    b.no_times = kNoTimes;
    b.begin_capture = kGraphs.begin_capture, b.end_capture = kGraphs.end_capture, b.replay = kGraphs.replay,
    b.time_replay = kGraphs.time_replay;
    b.free_graph = kGraphs.free_graph;
    return b;
  }();
  return &made;
}

// Nothing runs beside a kernel here: what a disturbance changes is the order in which things happen.
int begin_disorder(int32_t kind, uint64_t seed, double, char* error, size_t size) {
  const uint64_t drawn = seed * 0xD1342543DE82EF95ull + 1;
  switch (kind) {
    case ASSAY_DISTURB_SKEW:
      return gpu::emulator::disorder = {drawn | 1, 0}, int{ASSAY_OK};
    case ASSAY_DISTURB_STAGGER:
      return gpu::emulator::disorder = {gpu::kHopper ? drawn | 1 : 0, drawn | 1}, int{ASSAY_OK};
    default:
      return fail(ASSAY_UNSUPPORTED, error, size, "disturb: nothing runs beside an emulated kernel");
  }
}
int end_disorder(char*, size_t) { return gpu::emulator::disorder = {}, int{ASSAY_OK}; }

const assay_disturber kDisturber = {sizeof(assay_disturber),
                                    1u << ASSAY_DISTURB_SKEW | 1u << ASSAY_DISTURB_STAGGER, begin_disorder,
                                    end_disorder};

}  // namespace
}  // namespace assay_gpu

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(
    uint32_t abi_version) {
  return abi_version == ASSAY_ABI_VERSION ? assay_gpu::backend() : nullptr;
}

extern "C" __attribute__((visibility("default"))) const assay_disturber* assay_disturber_open(
    uint32_t abi_version) {
  return abi_version == ASSAY_ABI_VERSION ? &assay_gpu::kDisturber : nullptr;
}
