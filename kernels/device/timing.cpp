// SPDX-License-Identifier: Apache-2.0
// Timed calls, on a stream that is not the default one: a kernel that forgets its stream would run
// beside the events, and capture refuses it. Cold means that more than twice the L2 of other memory was read
// before the call: reading evicts what the kernel left and, unlike a memset, leaves no dirty lines whose
// write-back the next kernel would pay for. A negative size asks for the memset, and its dirty lines. Changes
// arrive meanwhile: in front of the flush they would let the device rest, and a kernel at the limit of power
// would run at a higher clock than in a row of calls between which only caches are flushed.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

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

gpu::Stream arriving_stream() {
  static const gpu::Stream stream = make_stream();
  return stream;
}

// Changes on their way to the device: in memory that it reads by itself, so that the copies are the stream's.
class Staging {
 public:
  // False where there is no room for so many bytes. What was held is gone.
  bool make_room(size_t bytes) {
    if (bytes <= memory_.size()) return true;
    if (!memory_.empty()) (void)GPU_API(HostUnregister)(memory_.data());
    memory_.assign(2 * bytes, std::byte{});
    if (GPU_API(HostRegister)(memory_.data(), memory_.size(), 0) == GPU_API(Success)) return true;
    memory_.clear();
    return false;
  }
  std::byte* data() { return memory_.data(); }

 private:
  std::vector<std::byte> memory_;
};

struct TimedRuns {
  int32_t count = 1;
  const assay_change* changes = nullptr;  // with `first`, as for assay_series
  const int32_t* first = nullptr;
};

// The wait keeps the device busy while the host enqueues the call, so that the time between the events is the
// device's alone; where calls are flushed, only before the first of a row, as the flush keeps it busy behind
// that. Dirty lines come behind it: what is still on its way to memory is part of that state. Before the
// first call of a row the device is idle (the rows before have been waited for), so changes for it wait for
// nobody.
int time_in_a_row(const TimedRuns& runs, int64_t flush_bytes, double* microseconds, char* error, size_t size,
                  const std::function<int(gpu::Stream)>& enqueue) {
  static std::deque<Events> events;
  static Staging staging;
  while (static_cast<int32_t>(events.size()) < runs.count) events.emplace_back();
  const gpu::Stream stream = own_stream();
  const bool dirty = flush_bytes < 0;
  const int32_t changes = runs.first != nullptr ? runs.first[runs.count] : 0;
  size_t room = 0;
  for (int32_t n = 0; n < changes; ++n) room += static_cast<size_t>(runs.changes[n].bytes);
  if (!staging.make_room(room))
    return fail(ASSAY_OUT_OF_MEMORY, error, size, "timed runs: no memory for changes");
  std::byte* held = staging.data();
  for (int32_t i = 0; i < runs.count; ++i) {
    const bool changed = changes > 0 && runs.first[i] < runs.first[i + 1];
    const gpu::Stream copies = flush_bytes != 0 ? arriving_stream() : stream;
    if (changed && copies != stream && i > 0) events[i - 1].others_wait_for_stop(copies);
    for (int32_t n = changed ? runs.first[i] : 0; n < (changed ? runs.first[i + 1] : 0); ++n) {
      const auto bytes = static_cast<size_t>(runs.changes[n].bytes);
      std::memcpy(held, runs.changes[n].from, bytes);  // while the device is at work on the calls before
      const gpu::Status copied =
          GPU_API(MemcpyAsync)(runs.changes[n].to, held, bytes, GPU_API(MemcpyHostToDevice), copies);
      if (const int bad = answer(copied, "change before a timed run", error, size)) return bad;
      held += bytes;
    }
    const auto flush = [&] { return flush_cache(flush_bytes, stream, error, size); };
    if (!dirty)
      if (const int bad = flush()) return bad;
    if (i == 0 || flush_bytes == 0)
      if (const int bad = answer(launch_wait(30000, stream), "wait", error, size)) return bad;
    if (dirty)
      if (const int bad = flush()) return bad;
    if (changed && copies != stream) events[i].wait_for_others(copies, stream);
    if (ranks_meet != nullptr)
      if (const int bad = ranks_meet(stream, error, size)) return bad;
    events[i].start(stream);
    if (const int bad = enqueue(stream)) return bad;
    events[i].stop(stream);
  }
  for (int32_t i = 0; i < runs.count; ++i) {
    double seconds = 0;
    if (const int bad = answer(events[i].seconds(&seconds), "timed run", error, size)) return bad;
    microseconds[i] = seconds * 1e6;
  }
  return ASSAY_OK;
}

}  // namespace

int timed(int64_t flush_bytes, double* microseconds, char* error, size_t size,
          const std::function<int(gpu::Stream)>& enqueue) {
  return time_in_a_row({}, flush_bytes, microseconds, error, size, enqueue);
}

int time_run(const assay_kernel* kernel, const assay_problem* problem, const assay_tensors* tensors,
             assay_plan* plan, int64_t flush_bytes, double* microseconds, char* error, size_t size) {
  return timed(flush_bytes, microseconds, error, size, [&](gpu::Stream stream) {
    return kernel->run(kernel, problem, tensors, plan, stream, error, size);
  });
}

namespace {

int time_runs(const assay_kernel* kernel, const assay_problem* problem, const assay_tensors* tensors,
              assay_plan* plan, int64_t flush_bytes, int32_t count, const assay_change* changes,
              const int32_t* first, double* microseconds, char* error, size_t size) {
  const int bad = time_in_a_row(
      {count, changes, first}, flush_bytes, microseconds, error, size,
      [&](gpu::Stream stream) { return kernel->run(kernel, problem, tensors, plan, stream, error, size); });
  // What was enqueued before it failed still reads the changes.
  if (bad != ASSAY_OK)
    (void)GPU_API(StreamSynchronize)(own_stream()), (void)GPU_API(StreamSynchronize)(arriving_stream());
  return bad;
}

const assay_series kSeries = {sizeof(assay_series), time_runs};

}  // namespace

extern const assay_series* const series = &kSeries;

}  // namespace assay_gpu
