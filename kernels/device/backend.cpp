// SPDX-License-Identifier: Apache-2.0
// The GPU as a device: devices, memory, and the table of the backend. Copies and judged
// calls are on the default stream, which orders them without more ado; timed calls and graphs have a stream
// of their own (timing.cpp), so every kernel is seen on both.
#include <algorithm>
#include <cstdio>

#include "kernels/common/fill_struct.hpp"
#include "kernels/device/host.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {
namespace {

int32_t device_count() {
  int count = 0;
  if (GPU_API(GetDeviceCount)(&count) != GPU_API(Success)) return 0;  // no driver, no device: the same to us
  return count;
}

int device_info(int32_t device, assay_device* out, char* error, size_t size) {
  if (out == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "device_info needs a place for the answer");
  assay_device info{};
  const int bad = answer(library().describe(device, &info), "device properties", error, size);
  assay_kernels::fill_struct(out, info);
  return bad;
}

int use_device(int32_t device, char* error, size_t size) {
  if (const int bad = answer(GPU_API(SetDevice)(device), "use device", error, size)) return bad;
  assay_device info{};
  const int bad = answer(library().describe(device, &info), "use device", error, size);
  if (bad != ASSAY_OK) return bad;
  multiprocessors = info.multiprocessors;
  if (std::sscanf(info.arch, "sm_%d", &nvidia_arch) != 1) nvidia_arch = 0;
  return ASSAY_OK;
}

int allocate(int64_t bytes, void** pointer, char* error, size_t size) {
  if (bytes < 0 || pointer == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "allocate needs a size >= 0 and a place for the pointer");
  return answer(GPU_API(Malloc)(pointer, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "allocate", error,
                size);
}
int release(void* pointer, char* error, size_t size) {
  return answer(GPU_API(Free)(pointer), "release", error, size);
}
int copy_to_device(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  const gpu::Status status =
      GPU_API(Memcpy)(to, from, static_cast<size_t>(bytes), GPU_API(MemcpyHostToDevice));
  if (const int bad = answer(status, "copy to device", error, size)) return bad;
  // A copy from pageable memory returns when it is staged (CUDA Runtime API, "API synchronization behavior"),
  // and timed calls and graphs run in a stream that does not wait for this one: on the H200 poison once
  // arrived after a replay.
  return answer(GPU_API(StreamSynchronize)(nullptr), "copy to device", error, size);
}
int copy_to_host(void* to, const void* from, int64_t bytes, char* error, size_t size) {
  return answer(GPU_API(Memcpy)(to, from, static_cast<size_t>(bytes), GPU_API(MemcpyDeviceToHost)),
                "copy to host", error, size);
}
int synchronize(char* error, size_t size) {
  // A launch nobody looked at leaves its error for the next one; it belongs to the kernel that just ran.
  const gpu::Status status = GPU_API(DeviceSynchronize)(), left = GPU_API(GetLastError)();
  return answer(status != GPU_API(Success) ? status : left, "synchronize", error, size);
}

const Library* used = nullptr;

assay_backend make_table(const Library& l) {
  assay_backend b{};
  b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = l.name;
  b.kernel_count = static_cast<int32_t>(l.kernels.size()), b.kernels = l.kernels.data();
  b.device_count = device_count, b.device_info = device_info, b.use_device = use_device;
  b.allocate = allocate, b.release = release;
  b.copy_to_device = copy_to_device, b.copy_to_host = copy_to_host, b.synchronize = synchronize;
  b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
  b.time_run = time_run;
  if (const Graphs* g = l.graphs; g != nullptr) {
    b.begin_capture = g->begin_capture, b.end_capture = g->end_capture, b.replay = g->replay;
    b.time_replay = g->time_replay, b.free_graph = g->free_graph;
  }
  if (const Probes* p = l.probes; p != nullptr) {
    b.instructions = p->instructions, b.run_products = p->run_products;
    b.run_function = p->run_function, b.measure_rate = p->measure_rate;
  }
  return b;
}

}  // namespace

const Library& library() { return *used; }

const assay_backend* gpu_backend(const Library& l) {
  used = &l;
  static const assay_backend table = make_table(l);
  return &table;
}

}  // namespace assay_gpu

extern "C" __attribute__((visibility("default"))) const assay_disturber* assay_disturber_open(
    uint32_t abi_version) {
  return abi_version == ASSAY_ABI_VERSION ? assay_gpu::disturber() : nullptr;
}
extern "C" __attribute__((visibility("default"))) const assay_series* assay_series_open(
    uint32_t abi_version) {
  return abi_version == ASSAY_ABI_VERSION ? assay_gpu::series : nullptr;
}
