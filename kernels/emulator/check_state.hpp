// SPDX-License-Identifier: Apache-2.0
// What the checker knows, and the accesses that change nothing of it: nearly all of them, so the hooks of
// tsan.cpp ask known() in place before they call the checker. For check.cpp and tsan.cpp alone.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/thread_block.hpp"

namespace gpu::emulator::check {

// Several threads share a record when one place cannot hold them all.
constexpr uint16_t kSeveralOfWarp = 0x8000;  // plus the number of the warp
constexpr uint16_t kSeveralWarps = 0xfffe;
constexpr uint16_t kSeveralBlocks = 0xffff;

// An access: of which block (numbered through all launches, 0 = none), after how many of its block barriers,
// by which thread after how many warp barriers.
struct Record {
  uint32_t block, epoch;
  uint16_t thread, warp_epoch;
};
struct Cell {
  Record write, read;
  uint8_t atomic_write, atomic_read;  // the record is of atomic accesses only
};

struct Cells {
  explicit Cells(size_t count) : first(static_cast<Cell*>(std::calloc(count, sizeof(Cell)))) {
    if (first == nullptr) throw std::bad_alloc();
  }
  Cells(const Cells&) = delete;
  Cells& operator=(const Cells&) = delete;
  ~Cells() { std::free(first); }
  Cell* first;  // zero pages until touched: a cell of untouched memory costs nothing
};

struct Area {
  Region region;
  std::unique_ptr<Cells> cells;  // of what may be written
  bool holds(uintptr_t at, size_t bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(region.begin);
    return at >= begin && at + bytes <= begin + region.bytes;
  }
};

struct Image {  // the library's own constants
  uintptr_t begin = 0, end = 0;
};

struct State {
  std::vector<Area> areas;  // by address
  const Area* last = nullptr;
  Launch* launch = nullptr;
  Block* block = nullptr;
  std::unique_ptr<Cells> shared;  // of the block's arrays, one behind the other (SharedArray::first_cell)
  Image image;
};
extern State state;

inline bool is_argument(uintptr_t at, size_t bytes) {
  const auto arguments = reinterpret_cast<uintptr_t>(state.launch->arguments);
  return at >= arguments && at + bytes <= arguments + state.launch->argument_bytes;
}

// A read of what this block wrote before its last barrier, by a thread that the record of readers since then
// names already.
inline bool known_read(const Cell& c, const Block& b) {
  const Lane& me = b.current();
  if (c.write.block != b.serial() || c.write.epoch == b.epoch() || c.atomic_read != 0) return false;
  const Record& r = c.read;
  return r.block == b.serial() && r.epoch == b.epoch() &&
         (r.thread == kSeveralWarps ||
          (r.warp_epoch == me.warp_epoch && (r.thread == me.linear || r.thread == kSeveralOfWarp + me.warp)));
}

// Whether this access is right and changes nothing that is known; false: access() looks.
inline bool known(const void* pointer, size_t bytes, Access access) {
  if (state.block == nullptr || bytes == 0) return true;  // host code of the same files
  const Block& b = *state.block;
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  if (at - reinterpret_cast<uintptr_t>(b.stack_of_current()) < kStackBytes) return !kHopper;
  if (access != Access::kRead) return false;
  const size_t offset = at - reinterpret_cast<uintptr_t>(b.arena());
  if (offset >= kArenaBytes)
    return (state.last != nullptr && state.last->region.role == Role::kInput &&
            state.last->holds(at, bytes)) ||
           is_argument(at, bytes);
  if constexpr (kHopper) return false;
  for (const SharedArray& a : b.arrays()) {
    const size_t from = offset - a.offset;  // huge when it lies before
    if (from > a.bytes || from + bytes > a.bytes) continue;
    const Cell* const cells = state.shared->first + a.first_cell;
    const size_t last = (from + bytes - 1) >> a.shift();
    for (size_t cell = from >> a.shift(); cell <= last; ++cell)
      if (!known_read(cells[cell], b)) return false;
    return true;
  }
  return false;
}

}  // namespace gpu::emulator::check
