// SPDX-License-Identifier: Apache-2.0
// Graphs: calls of kernels recorded on a stream that is not the default one, and replayed after the data
// it reads was changed in place. Recording refuses kernels that forget their stream, wait for the device or
// allocate. CUDA and HIP name these calls alike.
#include <array>

#include "kernels/common/stages.hpp"
#include "kernels/device/host.hpp"
#include "kernels/device/library.hpp"

struct assay_graph {
  GPU_API(GraphExec_t) executable;
};

namespace assay_gpu {
namespace {

int begin_capture(void** stream, char* error, size_t size) {
  *stream = own_stream();
  // Thread-local mode also refuses calls that synchronise or allocate, which no captured kernel may make.
  return answer(GPU_API(StreamBeginCapture)(own_stream(), GPU_API(StreamCaptureModeThreadLocal)), "capture",
                error, size);
}

int end_capture(assay_graph** graph, char* error, size_t size) {
  GPU_API(Graph_t) recorded{};
  const gpu::Status ended = GPU_API(StreamEndCapture)(own_stream(), &recorded);
  if (graph == nullptr) {
    if (recorded != nullptr) (void)GPU_API(GraphDestroy)(recorded);
    (void)GPU_API(GetLastError)();
    return ASSAY_OK;
  }
  *graph = nullptr;
  int bad = answer(ended, "capture: a call that cannot be recorded", error, size);
  auto made = bad == ASSAY_OK ? new assay_graph{} : nullptr;
  if (bad == ASSAY_OK)
    bad = answer(GPU_API(GraphInstantiateWithFlags)(&made->executable, recorded, 0), "instantiate graph",
                 error, size);
  if (recorded != nullptr) (void)GPU_API(GraphDestroy)(recorded);
  if (bad != ASSAY_OK) {
    delete made;
    (void)GPU_API(GetLastError)();  // a refused capture is no error of what comes after it
    return bad;
  }
  *graph = made;
  return ASSAY_OK;
}

int replay(assay_graph* graph, char* error, size_t size) {
  const gpu::Stream stream = own_stream();
  if (const int bad = answer(GPU_API(GraphLaunch)(graph->executable, stream), "replay", error, size))
    return bad;
  return answer(GPU_API(StreamSynchronize)(stream), "replay", error, size);
}

int time_replay(assay_graph* graph, int64_t flush_bytes, double* microseconds, char* error, size_t size) {
  return timed(flush_bytes, microseconds, error, size, [&](gpu::Stream stream) {
    return answer(GPU_API(GraphLaunch)(graph->executable, stream), "replay", error, size);
  });
}

void free_graph(assay_graph* graph) {
  if (graph == nullptr) return;
  (void)GPU_API(GraphExecDestroy)(graph->executable);
  delete graph;
}

int capture_intact(void* stream, char* error, size_t size) {
  if (stream == nullptr) return ASSAY_OK;  // never captured
  GPU_API(StreamCaptureStatus) state{};
  const gpu::Status asked = GPU_API(StreamIsCapturing)(static_cast<gpu::Stream>(stream), &state);
  if (asked != GPU_API(Success)) return answer(asked, "capture", error, size);
  if (state != GPU_API(StreamCaptureStatusInvalidated)) return ASSAY_OK;
  return fail(ASSAY_FAILED, error, size, kBrokenCapture);
}

// Lanes carry what is short and lets what is long begin, so their blocks come first where both wait for room.
int lane(int32_t number, void** stream, char* error, size_t size) {
  static thread_local std::array<gpu::Stream, assay_kernels::StageCall::kLanes> made{};
  const auto at = static_cast<size_t>(number);
  if (made[at] == nullptr) {
    int least = 0, greatest = 0;
    gpu::Status status = GPU_API(DeviceGetStreamPriorityRange)(&least, &greatest);
    if (status == GPU_API(Success))
      status = GPU_API(StreamCreateWithPriority)(&made[at], GPU_API(StreamNonBlocking), greatest);
    if (status != GPU_API(Success)) return answer(status, "a stream of a step", error, size);
  }
  *stream = made[at];
  return ASSAY_OK;
}

GPU_API(Event_t) event_of(void* mark) { return static_cast<GPU_API(Event_t)>(mark); }

int make_mark(void** mark, char* error, size_t size) {
  GPU_API(Event_t) event{};
  const gpu::Status made = GPU_API(EventCreateWithFlags)(&event, GPU_API(EventDisableTiming));
  *mark = event;
  return answer(made, "a mark of a step", error, size);
}
void free_mark(void* mark) { (void)GPU_API(EventDestroy)(event_of(mark)); }
int put_mark(void* mark, void* stream, char* error, size_t size) {
  return answer(GPU_API(EventRecord)(event_of(mark), static_cast<gpu::Stream>(stream)), "a mark of a step",
                error, size);
}
int follow(void* stream, void* mark, char* error, size_t size) {
  return answer(GPU_API(StreamWaitEvent)(static_cast<gpu::Stream>(stream), event_of(mark), 0),
                "a wait of a step", error, size);
}

}  // namespace

const assay_kernels::Streams kStreams{capture_intact, lane, make_mark, free_mark, put_mark, follow};
const Graphs kGraphs{begin_capture, end_capture, replay, time_replay, free_graph};

}  // namespace assay_gpu
