// SPDX-License-Identifier: Apache-2.0
// The host's side of the emulator as gpu.h offers it: status, stream, launch. A launch runs to completion;
// what a kernel did wrong is its status, with a text that names kind, kernel, source line, block and thread.
// Also what the emulated device is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/emulator/device.hpp"

#define GPU_API(name) emulator##name
#define GPU_BOUNDS(threads, blocks)
#define GPU_PARAMETER const
#define GPU_ARGUMENT(parameter) (parameter)
#define GPU_OUT_OF_LINE __attribute__((noinline))
#define GPU_INLINE __forceinline__
#define GPU_SHARED(type, name, ...) \
  type(&name) __VA_ARGS__ =         \
      ::gpu::emulator::shared<type __VA_ARGS__>([] {}, #name, ::gpu::emulator::Where::current())

enum emulatorError { emulatorSuccess = 0, emulatorErrorMemoryAllocation, emulatorErrorLaunch };
// A launch answers with its own error and leaves none behind.
inline emulatorError emulatorGetLastError() { return emulatorSuccess; }

namespace gpu {

using Status = emulatorError;
using Stream = void*;  // null: what is not captured happens in order, at once; others: streams.hpp

namespace emulator {

// Limits of the smaller of the devices the portable kernels are built for. 32 lanes: sm_80 (CUDA programming
// guide, table of compute capabilities): 48 KiB of static arrays, 163 KiB in all. 64 lanes: 64 KiB of LDS
// (gfx90a and gfx942, CDNA instruction set manuals). Hopper: sm_90 (CUDA programming guide).
struct Device {
  const char* name;
  int32_t multiprocessors;
  size_t static_bytes, shared_bytes;  // of a block
  unsigned threads;                   // of a block
};
inline constexpr Device kDevice = kHopper ? Device{"Hopper emulator", 4, 48 << 10, 227 << 10, 1024}
                                  : kWarp == 32
                                      ? Device{"SIMT emulator, 32 lanes", 8, 48 << 10, 163 << 10, 1024}
                                      : Device{"SIMT emulator, 64 lanes", 8, 64 << 10, 64 << 10, 1024};

// What launches of this thread on the stream are put into instead of being run, or null (streams.hpp).
struct Recorded {
  std::function<Status()> launch;  // of a mark and of a wait none
  void *put = nullptr, *awaited = nullptr;
};
using Recording = std::vector<Recorded>;
Recording* recording(Stream);
// Blocks of a cluster, which run at the same time (flat: along x alone); early: the launch may begin before
// the one before it has ended, and waits for it itself (programmatic serialization).
struct Shape {
  unsigned cluster = 1;
  bool flat = true, early = false;
};
// Runs entry(arguments) once per thread of the grid.
Status run_grid(const Shape&, dim3 grid, dim3 block, size_t dynamic_bytes, void (*entry)(void*),
                void* arguments, size_t argument_bytes, const void* kernel);
// What the last launch of this thread that failed did wrong.
const std::string& last_error();

}  // namespace emulator

// arguments are converted to the kernel's parameter types. dynamic_bytes: see gpu::dynamic_shared.
template <class... P, class... A>
Status launch_shaped(const emulator::Shape& shape, void (*kernel)(P...), dim3 grid, dim3 block,
                     size_t dynamic_bytes, Stream stream, A&&... arguments) {
  // One object holds all a thread reads of the host's, as the constant bank does on a device.
  struct Body {
    void (*kernel)(P...);
    std::tuple<P...> values;
  } body{kernel, std::tuple<P...>(static_cast<P>(arguments)...)};
  const auto entry = [](void* self) {
    std::apply(static_cast<Body*>(self)->kernel, static_cast<Body*>(self)->values);
  };
  auto run = [=]() mutable {
    return emulator::run_grid(shape, grid, block, dynamic_bytes, entry, &body, sizeof body,
                              reinterpret_cast<const void*>(kernel));
  };
  if (emulator::Recording* const list = emulator::recording(stream))
    return list->push_back({run}), emulatorSuccess;
  return run();
}
template <class... P, class... A>
Status launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t dynamic_bytes, Stream stream,
              A&&... arguments) {
  return launch_shaped({}, kernel, grid, block, dynamic_bytes, stream, std::forward<A>(arguments)...);
}

inline bool ok(Status status, const char* what, char* error, size_t size) {
  if (status == emulatorSuccess) return true;
  if (error != nullptr && size > 0)
    std::snprintf(error, size, "%s: %s", what,
                  status == emulatorErrorMemoryAllocation ? "out of memory" : emulator::last_error().c_str());
  return false;
}

}  // namespace gpu
