// SPDX-License-Identifier: Apache-2.0
// What the host side of the GPU backend shares: statuses as texts of the C door, and things that must be
// given back. The files beside it fill the backend's table: backend.cpp (devices, memory), limits.cpp,
// timing.cpp (events and graphs), probes.cpp (calibration); disturb.cpp that of assay_disturb.h.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>

#include "harness/abi/assay_disturb.h"
#include "harness/abi/assay_series.h"
#include "kernels/device/limit_kernels.hpp"
#include "kernels/device/status.hpp"

namespace assay_gpu {

// Two records in a stream, and what another stream does before and behind them. What goes wrong while they
// are made is the status of seconds().
class Events {
 public:
  Events() {
    note(GPU_API(EventCreate)(&start_)), note(GPU_API(EventCreate)(&stop_));
    note(GPU_API(EventCreateWithFlags)(&others_, GPU_API(EventDisableTiming)));
  }
  ~Events() {
    (void)GPU_API(EventDestroy)(start_), (void)GPU_API(EventDestroy)(stop_);
    (void)GPU_API(EventDestroy)(others_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  void start(gpu::Stream stream) { note(GPU_API(EventRecord)(start_, stream)); }
  void stop(gpu::Stream stream) { note(GPU_API(EventRecord)(stop_, stream)); }
  // What is enqueued on `other` from now on begins behind stop().
  void others_wait_for_stop(gpu::Stream other) { note(GPU_API(StreamWaitEvent)(other, stop_, 0)); }
  // What is enqueued on `stream` from now on begins behind what is on `other`.
  void wait_for_others(gpu::Stream other, gpu::Stream stream) {
    note(GPU_API(EventRecord)(others_, other)), note(GPU_API(StreamWaitEvent)(stream, others_, 0));
  }
  // Between the two records.
  gpu::Status seconds(double* out) const {
    if (bad_ != GPU_API(Success)) return bad_;
    if (const gpu::Status bad = GPU_API(EventSynchronize)(stop_); bad != GPU_API(Success)) return bad;
    float ms = 0;
    const gpu::Status status = GPU_API(EventElapsedTime)(&ms, start_, stop_);
    *out = ms * 1e-3;
    return status;
  }

 private:
  void note(gpu::Status status) {
    if (bad_ == GPU_API(Success)) bad_ = status;
  }
  GPU_API(Event_t) start_{}, stop_{}, others_{};
  gpu::Status bad_ = GPU_API(Success);
};

// One that does not wait for the default stream; nullptr where there is none to be had.
inline gpu::Stream make_stream() {
  gpu::Stream s{};
  return GPU_API(StreamCreateWithFlags)(&s, GPU_API(StreamNonBlocking)) == GPU_API(Success) ? s : nullptr;
}

class Memory {
 public:
  explicit Memory(int64_t bytes) { status = GPU_API(Malloc)(&data, static_cast<size_t>(bytes)); }
  ~Memory() {
    if (data != nullptr) (void)GPU_API(Free)(data);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data = nullptr;
  gpu::Status status;
};

// Shortest of some launches: a limit disturbed by a neighbour would flatter the kernels.
template <class Launch>
int best_seconds(const Launch& launch, double* out, char* error, size_t size) {
  Events events;
  *out = 0;
  for (int pass = 0; pass < 12; ++pass) {
    events.start(nullptr);
    if (const int bad = answer(launch(), "limit probe", error, size)) return bad;
    events.stop(nullptr);
    double seconds = 0;
    if (const int bad = answer(events.seconds(&seconds), "limit probe", error, size)) return bad;
    if (pass >= 2 && (*out == 0 || seconds < *out)) *out = seconds;
  }
  return ASSAY_OK;
}

// ---- entries of the table (see assay_backend), by file.
// limits.cpp
int measure_bandwidth(int32_t op, int64_t bytes, double* bytes_per_second, char* error, size_t size);
int measure_matrix_rate(int32_t format, double* flops, char* error, size_t size);
// timing.cpp
int time_run(const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*,
             int64_t flush_bytes, double* microseconds, char* error, size_t size);
extern const assay_series* const series;

// disturb.cpp
const assay_disturber* disturber();

// Not the default stream: timed calls and graphs run here (timing.cpp).
gpu::Stream own_stream();
// Time on the device of what `enqueue` enqueues there, after `flush_bytes` of other memory were read (0:
// hot).
int timed(int64_t flush_bytes, double* microseconds, char* error, size_t size,
          const std::function<int(gpu::Stream)>& enqueue);

}  // namespace assay_gpu
