// SPDX-License-Identifier: Apache-2.0
// Timed calls, on a stream that is not the default one: a kernel that forgets its stream would run
// beside the events, and capture refuses it. Cold means that more than twice the L2 of other memory was read
// before the call: reading evicts what the kernel left and, unlike a memset, leaves no dirty lines whose
// write-back the next kernel would pay for. A negative size asks for the memset, and its dirty lines.
#include <cstdlib>

#include "kernels/device/host.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {

gpu::Stream own_stream() {
  static const gpu::Stream stream = make_stream();
  return stream;
}

int (*ranks_meet)(void* stream, char* error, size_t size) = nullptr;

namespace {

int flush_cache(int64_t bytes, gpu::Stream stream, char* error, size_t size) {
  static void* scratch = nullptr;
  static int64_t scratch_bytes = 0;
  constexpr int64_t kSink = 256;
  if (bytes == 0) return ASSAY_OK;
  const bool write = bytes < 0;
  bytes = std::abs(bytes);
  if (bytes > scratch_bytes) {
    if (const int bad = answer(GPU_API(Free)(scratch), "flush", error, size)) return bad;
    scratch = nullptr, scratch_bytes = 0;
    const auto whole = static_cast<size_t>(bytes + kSink);
    if (const int bad = answer(GPU_API(Malloc)(&scratch, whole), "flush", error, size)) return bad;
    if (const int bad = answer(GPU_API(Memset)(scratch, 1, whole), "flush", error, size)) return bad;
    scratch_bytes = bytes;
  }
  if (write)
    return answer(GPU_API(MemsetAsync)(scratch, 1, static_cast<size_t>(bytes), stream), "flush", error, size);
  auto* sink = reinterpret_cast<uint32_t*>(static_cast<char*>(scratch) + scratch_bytes);
  return answer(launch_read(scratch, bytes, sink, stream), "flush", error, size);
}

}  // namespace

// The wait keeps the device busy while the host enqueues the call, so that the time between the events is the
// device's alone. Dirty lines come behind it: what is still on its way to memory is part of that state.
int timed(int64_t flush_bytes, double* microseconds, char* error, size_t size,
          const std::function<int(gpu::Stream)>& enqueue) {
  static Events events;
  const gpu::Stream stream = own_stream();
  const bool dirty = flush_bytes < 0;
  const auto flush = [&] { return flush_cache(flush_bytes, stream, error, size); };
  if (!dirty)
    if (const int bad = flush()) return bad;
  if (const int bad = answer(launch_wait(30000, stream), "wait", error, size)) return bad;
  if (dirty)
    if (const int bad = flush()) return bad;
  if (ranks_meet != nullptr)
    if (const int bad = ranks_meet(stream, error, size)) return bad;
  events.start(stream);
  if (const int bad = enqueue(stream)) return bad;
  events.stop(stream);
  double seconds = 0;
  if (const int bad = answer(events.seconds(&seconds), "timed run", error, size)) return bad;
  *microseconds = seconds * 1e6;
  return ASSAY_OK;
}

int time_run(const assay_kernel* kernel, const assay_problem* problem, const assay_tensors* tensors,
             assay_plan* plan, int64_t flush_bytes, double* microseconds, char* error, size_t size) {
  return timed(flush_bytes, microseconds, error, size, [&](gpu::Stream stream) {
    return kernel->run(kernel, problem, tensors, plan, stream, error, size);
  });
}

}  // namespace assay_gpu
