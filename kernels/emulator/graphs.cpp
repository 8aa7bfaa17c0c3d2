// SPDX-License-Identifier: Apache-2.0
// Graphs of the emulated device: what captured calls launch is kept, with its arguments, and run at each
// replay over whatever the memory holds then. A kernel that looked at device memory from the host, or planned
// by the host's lengths, is caught here as it is on a device (kernels/device/graphs.cpp).
#include "kernels/common/stages.hpp"
#include "kernels/device/library.hpp"
#include "kernels/emulator/answers.hpp"
#include "kernels/emulator/checked.hpp"
#include "kernels/emulator/streams.hpp"
#include "kernels/portable/entry.hpp"

struct assay_graph {
  gpu::emulator::Recording launches;  // with a call's regions before them, see checked.cpp
};

namespace assay_gpu {
namespace {

assay_graph* capturing = nullptr;
bool broken = false;  // the capture under way: something was called that a device could not have recorded

constexpr const char* kNotJoined =
    "enqueues on a stream that the captured one has not reached by a mark, or does not wait for at the end";

// While a capture is under way every launch of this thread is recorded.
int begin_capture(void** stream, char* error, size_t size) {
  if (capturing != nullptr) return fail(ASSAY_FAILED, error, size, "a capture is under way already");
  *stream = nullptr;
  broken = false;
  capturing = new assay_graph{};
  gpu::emulator::begin_recording(&capturing->launches);
  return ASSAY_OK;
}

int end_capture(assay_graph** graph, char* error, size_t size) {
  if (capturing == nullptr) return fail(ASSAY_FAILED, error, size, "no capture is under way");
  const bool joined = gpu::emulator::end_recording();
  const bool wanted = graph != nullptr, usable = wanted && joined && !broken;
  if (wanted) *graph = usable ? capturing : nullptr;
  if (!usable) delete capturing;
  capturing = nullptr;
  if (wanted && !usable) return fail(ASSAY_FAILED, error, size, broken ? kBrokenCapture : kNotJoined);
  return ASSAY_OK;
}

int replay(assay_graph* graph, char* error, size_t size) {
  int status = ASSAY_OK;
  for (const gpu::emulator::Recorded& entry : graph->launches)
    if (status = answer(entry.launch(), "replay", error, size); status != ASSAY_OK) break;
  if constexpr (gpu::emulator::kChecked) gpu::emulator::check::end_call();
  return status;
}

int time_replay(assay_graph*, int64_t, double*, char* error, size_t size) {
  return fail(ASSAY_UNSUPPORTED, error, size, kNoTimes);
}

void free_graph(assay_graph* graph) { delete graph; }

int capture_intact(void*, char* error, size_t size) {
  return capturing != nullptr && broken ? fail(ASSAY_FAILED, error, size, kBrokenCapture) : int{ASSAY_OK};
}

int lane(int32_t number, void** stream, char*, size_t) {
  *stream = gpu::emulator::lane(number);
  return ASSAY_OK;
}
int make_mark(void** mark, char*, size_t) {
  *mark = new char;
  return ASSAY_OK;
}
void free_mark(void* mark) { delete static_cast<char*>(mark); }
int put_mark(void* mark, void* stream, char*, size_t) {
  gpu::emulator::put_mark(mark, stream);
  return ASSAY_OK;
}
int follow(void* stream, void* mark, char* error, size_t size) {
  return answer(gpu::emulator::follow(stream, mark), "calls on another stream", error, size);
}

}  // namespace

int refuse_in_capture(char* error, size_t size) {
  if (capturing == nullptr) return ASSAY_OK;
  broken = true;
  return fail(ASSAY_FAILED, error, size, kBrokenCapture);
}

const assay_kernels::Streams kStreams{capture_intact, lane, make_mark, free_mark, put_mark, follow};
const Graphs kGraphs{begin_capture, end_capture, replay, time_replay, free_graph};

}  // namespace assay_gpu
