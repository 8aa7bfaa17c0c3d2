// SPDX-License-Identifier: Apache-2.0
// Measured limits of the device: memory read, copied and written, and multiply-adds per second. Reports
// divide by these.
#include "kernels/device/host.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {

int measure_bandwidth(int32_t op, int64_t bytes, double* bytes_per_second, char* error, size_t size) {
  if (op < 0 || op > 2 || bytes < 4096 || bytes_per_second == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size,
                "bandwidth: op must be 0 (read), 1 (copy) or 2 (write) over at least 4096 bytes");
  bytes = std::max<int64_t>(bytes, int64_t{4} << 30);  // far beyond the L2
  Memory memory(bytes), sink(4);
  if (const int bad = answer(memory.status, "bandwidth: memory", error, size)) return bad;
  if (const int bad = answer(sink.status, "bandwidth: memory", error, size)) return bad;
  if (const int bad =
          answer(GPU_API(Memset)(memory.data, 1, static_cast<size_t>(bytes)), "bandwidth", error, size))
    return bad;
  double seconds = 0;
  const int bad = best_seconds(
      [&] {
        if (op == 0) return launch_read(memory.data, bytes, static_cast<uint32_t*>(sink.data), nullptr);
        if (op == 2) return GPU_API(MemsetAsync)(memory.data, 2, static_cast<size_t>(bytes), nullptr);
        return GPU_API(MemcpyAsync)(static_cast<char*>(memory.data) + bytes / 2, memory.data,
                                    static_cast<size_t>(bytes / 2), GPU_API(MemcpyDeviceToDevice), nullptr);
      },
      &seconds, error, size);
  if (bad == ASSAY_OK) *bytes_per_second = static_cast<double>(bytes) / seconds;
  return bad;
}

namespace {

// The fastest instruction that takes operands of the format.
int best_matrix_rate(int32_t format, double* flops, char* error, size_t size) {
  *flops = 0;
  const assay_instruction* const* list = nullptr;
  int32_t count = 0;
  if (library().probes != nullptr)
    if (const int bad = library().probes->instructions(&list, &count, error, size)) return bad;
  for (int32_t i = 0; i < count; ++i) {
    if (list[i]->kind != ASSAY_INSTRUCTION_PRODUCTS || list[i]->format != format) continue;
    double rate = 0;
    if (const int bad = library().probes->measure_rate(list[i], &rate, error, size)) return bad;
    *flops = std::max(*flops, rate);
  }
  if (*flops > 0) return ASSAY_OK;
  if (error != nullptr && size > 0)
    std::snprintf(error, size, "matrix rate: no instruction of this device takes operands of format %d",
                  format);
  return ASSAY_UNSUPPORTED;
}

}  // namespace

int measure_matrix_rate(int32_t format, double* flops, char* error, size_t size) {
  if (flops == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "matrix rate: no place for the result");
  if (format != ASSAY_FP32) return best_matrix_rate(format, flops, error, size);
  Memory sink(4);
  if (const int bad = answer(sink.status, "matrix rate: memory", error, size)) return bad;
  double seconds = 0, done = 0;
  const int bad = best_seconds(
      [&] { return launch_fma(20000, multiprocessors * 8, static_cast<float*>(sink.data), &done, nullptr); },
      &seconds, error, size);
  if (bad == ASSAY_OK) *flops = done / seconds;
  return bad;
}

}  // namespace assay_gpu
