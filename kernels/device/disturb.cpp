// SPDX-License-Identifier: Apache-2.0
// assay_disturb.h for GPUs. Judged calls are on the default stream; disturbances are on streams of their own
// that do not wait for it, so both run at the same time. Before each of them the shared memory of all
// multiprocessors gets other contents: a block that reads what no thread has written yet would otherwise find
// what the same block of the call before left there, which is right. The device waits for that, and not the
// host: a device that has nothing to do turns to another process, and comes back with shared memory that is
// zero everywhere (an H200 with eight processes: in every block that was asked).
#include <algorithm>
#include <utility>

#define ASSAY_DELAYS_SETTERS_ONLY
#include "harness/abi/assay_disturb.h"
#include "kernels/device/assay_delays.hpp"
#include "kernels/device/disturb_kernels.hpp"
#include "kernels/device/host.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {
namespace {

constexpr int64_t kScratch = int64_t{256} << 20;  // several times the cache

gpu::Stream beside() {
  static const gpu::Stream stream = make_stream();
  return stream;
}

// What is enqueued on the default stream from now on begins behind what is on `stream`.
gpu::Status default_stream_waits_for(gpu::Stream stream) {
  static const auto [event, made] = [] {
    GPU_API(Event_t) e{};
    const gpu::Status status = GPU_API(EventCreateWithFlags)(&e, GPU_API(EventDisableTiming));
    return std::pair(e, status);
  }();
  if (made != GPU_API(Success)) return made;
  if (const gpu::Status bad = GPU_API(EventRecord)(event, stream); bad != GPU_API(Success)) return bad;
  return GPU_API(StreamWaitEvent)(nullptr, event, 0);
}

// Of a block at most, and what two blocks may share. HIP: the LDS of CDNA.
struct SharedMemory {
  int64_t block = 64 << 10, half = 32 << 10;
};
SharedMemory shared_memory() {
  SharedMemory m;
#if !defined(GPU_HIP)
  int device = 0, block = 0, whole = 0, reserved = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&whole, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device) == cudaSuccess)
    m.block = block, m.half = std::min(block, (whole / 2 - reserved) / 1024 * 1024);
#endif
  return m;
}

uint64_t draw(uint64_t& state, uint64_t below) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (state >> 33) % below;
}

// Held up in all files that were built for it; 0: in none. A copy for each file: only where it changes.
int set_delays(uint32_t seed, char* error, size_t size) {
  static uint32_t now = 0;
  if (seed == now) return ASSAY_OK;
  now = seed;
  for (const assay_delays::Setter set : assay_delays::setters())
    if (const int bad = answer(static_cast<gpu::Status>(set(seed)), "disturb: delays", error, size))
      return bad;
  return ASSAY_OK;
}

int begin(int32_t kind, uint64_t seed, double microseconds, char* error, size_t size) {
  static const SharedMemory memory = shared_memory();
  static const Memory scratch(kScratch);
  const gpu::Stream stream = beside();
  if (stream == nullptr) return fail(ASSAY_FAILED, error, size, "disturb: no stream of its own");
  if (!(microseconds >= 0 && microseconds <= ASSAY_DISTURB_LONGEST_US))
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "disturb: 0 to ASSAY_DISTURB_LONGEST_US microseconds");
  const auto duration = static_cast<int64_t>(microseconds * 1e3);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 0x1234567;
  // NaN of 16 and 32 bits, a number of about 1e4, nothing.
  constexpr uint32_t kPatterns[] = {0x7fc07fc0u, 0x46464646u, 0u};
  // First of all: what brings the seeds to the device may use shared memory itself.
  if (kind == ASSAY_DISTURB_DELAY)
    if (const int bad = set_delays(static_cast<uint32_t>(draw(state, UINT32_MAX)) + 1, error, size))
      return bad;
  gpu::Status status = launch_spoil(multiprocessors, memory.block, kPatterns[draw(state, 3)], stream);
  if (status == GPU_API(Success)) status = default_stream_waits_for(stream);
  if (const int bad = answer(status, "disturb: shared memory", error, size)) return bad;
  constexpr int32_t kTaken[] = {50, 90, 97};
  switch (kind) {
    case ASSAY_DISTURB_SKEW: {
      const SkewPlaces places[] = {
          {static_cast<uint32_t>(draw(state, 4)), 1, 1}, {0, 16, 1}, {0, 24, 1}, {48, 16, 2}, {40, 24, 2}};
      status = launch_skew(multiprocessors, places[draw(state, std::size(places))], seed, duration, stream);
      break;
    }
    case ASSAY_DISTURB_MEMORY:
      if (const int bad = answer(scratch.status, "disturb: memory", error, size)) return bad;
      status = launch_traffic(multiprocessors, 1 + static_cast<int32_t>(draw(state, 4)), seed, scratch.data,
                              kScratch, duration, stream);
      break;
    case ASSAY_DISTURB_FEWER:
      status =
          launch_occupy(multiprocessors, memory.half, seed, kTaken[draw(state, 3)], false, duration, stream);
      break;
    case ASSAY_DISTURB_STAGGER:
      status = launch_occupy(multiprocessors, memory.half, seed, 100, true, duration, stream);
      break;
    case ASSAY_DISTURB_DELAY:
      break;
    default:
      return fail(ASSAY_UNSUPPORTED, error, size, "disturb: no such kind");
  }
  return answer(status, "disturb", error, size);
}

int end(char* error, size_t size) {
  const gpu::Stream stream = beside();
  if (stream == nullptr) return ASSAY_OK;
  if (const int bad = answer(GPU_API(StreamSynchronize)(stream), "disturb: end", error, size)) return bad;
  return set_delays(0, error, size);
}

constexpr uint32_t kFromOutside = 1u << ASSAY_DISTURB_SKEW | 1u << ASSAY_DISTURB_MEMORY |
                                  1u << ASSAY_DISTURB_FEWER | 1u << ASSAY_DISTURB_STAGGER;
assay_disturber open() {
  const uint32_t delays = assay_delays::setters().empty() ? 0 : 1u << ASSAY_DISTURB_DELAY;
  return {sizeof(assay_disturber), kFromOutside | delays, begin, end};
}

}  // namespace

const assay_disturber* disturber() {
  static const assay_disturber table = open();  // once all files of the library are there
  return &table;
}

}  // namespace assay_gpu
