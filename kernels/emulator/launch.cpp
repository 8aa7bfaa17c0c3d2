// SPDX-License-Identifier: Apache-2.0
// A grid: its blocks are independent, so they are spread over the threads OpenMP gives (in checked builds
// over one, so that what is found does not depend on the schedule).
#include <algorithm>
#include <memory>
#include <numeric>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/disorder.hpp"
#include "kernels/emulator/host.hpp"
#include "kernels/emulator/sm90/gang.hpp"
#include "kernels/emulator/thread_block.hpp"

namespace gpu::emulator {
namespace {

thread_local std::string error_text;

std::string impossible(const Launch& l) {
  const auto text = [](const dim3& d) {
    return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
  };
  const uint64_t threads = uint64_t{l.block.x} * l.block.y * l.block.z;
  if (threads < 1 || threads > kDevice.threads || l.block.z > 64)
    return "a block of " + text(l.block) + " threads; 1 to " + std::to_string(kDevice.threads) +
           " are possible";
  if (l.grid.x < 1 || l.grid.y < 1 || l.grid.z < 1 || l.grid.x > 0x7fffffffu || l.grid.y > 65535 ||
      l.grid.z > 65535)
    return "a grid of " + text(l.grid) + " blocks; (1..2147483647, 1..65535, 1..65535) are possible";
  if (!kHopper && (l.shape.cluster != 1 || l.shape.early)) return "clusters and early starts are Hopper's";
  if (l.shape.cluster < 1 || l.shape.cluster > 8 || !l.shape.flat || l.grid.x % l.shape.cluster != 0)
    return "clusters of " + std::to_string(l.shape.cluster) + " blocks along x, of " +
           std::to_string(l.grid.x) + "; 1 to 8 are possible, and along x alone modelled";
  if (l.dynamic_bytes > kDevice.shared_bytes)
    return std::to_string(l.dynamic_bytes) + " bytes of dynamic shared memory; " + kDevice.name + " has " +
           std::to_string(kDevice.shared_bytes);
  return "";
}

// The n-th block to start: its number, or one drawn without repetition (a multiplier that shares no factor
// with the number of blocks).
int64_t nth_block(int64_t n, int64_t blocks) {
  if (disorder.blocks == 0 || blocks < 2) return n;
  auto step = static_cast<int64_t>(disorder.blocks % static_cast<uint64_t>(blocks));
  while (step == 0 || std::gcd(step, blocks) != 1) step = step + 1 == blocks ? 1 : step + 1;
  const auto start = static_cast<int64_t>((disorder.blocks >> 32) % static_cast<uint64_t>(blocks));
  return (start + n * step) % blocks;
}

Block& block_of_this_thread() {
  static thread_local std::unique_ptr<Block> block;
  if (!block) block = std::make_unique<Block>();
  return *block;
}

}  // namespace

const std::string& last_error() { return error_text; }

Status run_grid(const Shape& shape, dim3 grid, dim3 block, size_t dynamic_bytes, void (*entry)(void*),
                void* arguments, size_t argument_bytes, const void* kernel) {
  static uint32_t serials = 2, previous = 2;  // 0: no block, 1: before all launches
  Launch l;
  l.shape = shape, l.previous_serial = previous;
  l.grid = grid, l.block = block, l.dynamic_bytes = dynamic_bytes;
  l.entry = entry, l.arguments = arguments, l.argument_bytes = argument_bytes, l.kernel = kernel;
  l.first_serial = previous = serials;
  if (std::string why = impossible(l); !why.empty()) {
    l.findings.add({Kind::kLaunch, {}, why, {}, {}});
  } else {
    const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
    serials += static_cast<uint32_t>(blocks);
    std::atomic<bool> no_memory{false};
    const auto run_data_op = [&](int64_t nth) {
      if (l.stop) return;
      const int64_t n = nth_block(nth, blocks);
      try {
        const uint32_t index[3] = {static_cast<uint32_t>(n % grid.x),
                                   static_cast<uint32_t>(n / grid.x % grid.y),
                                   static_cast<uint32_t>(n / grid.x / grid.y)};
        block_of_this_thread().run(l, index, l.first_serial + static_cast<uint32_t>(n));
      } catch (const std::bad_alloc&) {
        no_memory = true, l.stop = true;
      }
    };
    if constexpr (kHopper) {  // blocks that wait for each other: all on this thread
      if constexpr (kChecked) check::begin_launch(l);
      try {
        machine::run(l);
      } catch (const std::bad_alloc&) {
        no_memory = true;
      }
      if constexpr (kChecked) check::end_launch();
    } else if constexpr (kChecked) {
      check::begin_launch(l);
      for (int64_t n = 0; n < blocks; ++n) run_data_op(n);
      check::end_launch();
    } else {
#pragma omp parallel for schedule(dynamic)
      for (int64_t n = 0; n < blocks; ++n) run_data_op(n);
    }
    if (no_memory) return emulatorErrorMemoryAllocation;
  }
  if (l.findings.empty()) return emulatorSuccess;
  error_text = text_of(l.findings.list(), kernel);
  return emulatorErrorLaunch;
}

}  // namespace gpu::emulator
