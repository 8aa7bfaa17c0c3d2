// SPDX-License-Identifier: Apache-2.0
// Checked builds: what happens before what in shared memory. Threads, and beside them the products and bulk
// stores of a warp, the cp.async of a thread and the boxes a barrier waits for, have a clock each; who waits
// learns how far others have come. Every 4 bytes remember who wrote them last and who has read them since, so
// an access that nothing orders behind an earlier one is found whatever order the fibers took.
//
// What a thread knows comes twice: `known` orders accesses of one kind; `fenced` is what was known at a
// fence between ordinary accesses and the async proxy, by this thread or by one it has heard of since.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/device.hpp"
#include "kernels/emulator/findings.hpp"

namespace gpu::emulator {
class Block;
struct Lane;
namespace machine {
struct BlockState;
struct BarrierState;
}  // namespace machine

namespace order {

using Clock = std::vector<uint32_t>;  // by entity
using ClockRef = std::shared_ptr<const Clock>;

struct View {  // of a thread
  ClockRef known, fenced;
  uint32_t tick = 1;    // of what it does now
  uint32_t copied = 0;  // its cp.async up to this number have written
  uint32_t fenced_tick = 0, fenced_copied = 0;
};
struct Gathering {
  Clock known, fenced;
};
struct Released {
  ClockRef known, fenced;
};
constexpr uint16_t kNobody = 0xffff;
struct Stamp {
  uint16_t who = kNobody;
  uint32_t when = 0;
};
struct WarpMemo {
  struct Merge {
    ClockRef into, from, result;
  } known, fenced;                 // the last one: other lanes do the same
  std::array<ClockRef, 64> key{};  // of the lanes' views
  Clock all_known, all_fenced;     // what every lane knows
};
struct Cell {
  static constexpr int kInline = 8;
  uint16_t writer = kNobody;
  uint8_t mask = 0;   // bytes of the last write
  uint8_t flags = 0;  // see order.cpp
  uint32_t written = 0;
  uint16_t site = 0, readers = 0;
  uint32_t crowd = 0;  // 1 + index of a clock of readers, when there are more
  uint16_t reader[kInline];
  uint32_t read[kInline];
};
struct BlockMemory {
  static constexpr size_t kChunk = 256;  // cells
  std::vector<Cell> cells;
  std::vector<uint8_t> touched;  // chunks of them that the present block has touched, which the next one
                                 // clears: four megabytes are most of a small block
  std::vector<std::unique_ptr<Clock>> crowds;
  std::vector<uint32_t> free_crowds;
};

void begin_launch(unsigned threads, unsigned cluster);
void begin_block(machine::BlockState&);

// ---- what orders
void join_warp();  // the present one
void join_block(Block&);
void join(const std::vector<Lane*>&);
void gather(Gathering&, Lane&);                                      // an arrival
void gather_copies(machine::BarrierState&, Lane&, uint32_t number);  // by its cp.async
void release(machine::BlockState&, machine::BarrierState&);          // its phase has ended
void release(Gathering&, Released&);                                 // the same of a cluster's
void acquire(Lane&, const machine::BarrierState&);
void acquire(Lane&, const Released&);
void acquire(const std::vector<Lane*>&, Gathering&);  // and empties it
void fence(Lane&);
void copies_done(Lane&, uint32_t number);
void stores_read(Lane&, uint32_t number);
void products_done(machine::BlockState&, unsigned warp, uint32_t group);
Stamp stamp(Lane&);
bool ordered(Lane&, const Stamp&);
bool fenced(Lane&, const Stamp&);

// ---- accesses to shared memory; offsets from the start of the arena
void ordinary(size_t offset, size_t bytes, check::Access, const Site&);  // by the present thread
void box_writes(machine::BlockState&, size_t offset, size_t bytes, Lane& by, const machine::BarrierState&,
                unsigned swizzle, const Site&);
void copy_writes(machine::BlockState&, size_t offset, size_t bytes, Lane& by, uint32_t number, const Site&);
void store_reads(machine::BlockState&, size_t offset, size_t bytes, Lane& by, uint32_t number,
                 unsigned swizzle, const Site&);
void product_reads(machine::BlockState&, unsigned warp, size_t offset, size_t bytes, uint32_t group,
                   unsigned swizzle, const Site&);

}  // namespace order
}  // namespace gpu::emulator
