// SPDX-License-Identifier: Apache-2.0
// One block at a time on one thread of the host: a fiber per thread of the block. A fiber runs until it waits
// at a barrier or a collective; then the next one that can run goes on, lanes of the same warp first. Who
// breaks the rules of collectives ends the launch: fibers are left where they are (kernels own nothing that
// needs destruction) and their stacks are used again.
//
// The model: a block barrier waits for every thread that has not left; a collective (shuffle, ballot, warp
// barrier) for every lane of the warp, none of which may have left.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "kernels/emulator/context.hpp"
#include "kernels/emulator/device.hpp"
#include "kernels/emulator/findings.hpp"
#include "kernels/emulator/host.hpp"

namespace gpu::emulator {

namespace machine {
struct BlockState;
}
class Block;

struct Launch {
  Shape shape;
  uint32_t previous_serial = 0;  // where the launch before this one started
  dim3 grid, block;
  size_t dynamic_bytes = 0;
  void (*entry)(void*) = nullptr;
  void* arguments = nullptr;
  size_t argument_bytes = 0;
  const void* kernel = nullptr;
  uint32_t first_serial = 0;  // blocks are numbered through all launches; this launch starts here
  Findings findings;
  std::atomic<bool> stop{false};
};

// An array of the block's shared memory, as gpu.h's GPU_SHARED declares it.
struct SharedArray {
  const void* tag;
  const char* name;
  size_t offset, bytes;  // in the arena
  size_t scalar;         // what is stored has at least this alignment
  size_t first_cell;     // of the checker, which has one per scalar (at most 4 bytes) of every array
  unsigned shift() const { return scalar >= 4 ? 2 : scalar == 2 ? 1 : 0; }  // log2 of a cell's bytes
};

constexpr size_t kStackBytes = 64 << 10;  // of a fiber, the guard page below included
constexpr size_t kArrayGap = 64;          // between shared arrays: nothing is there, and the checker says so
constexpr size_t kMostArrays = 128;
constexpr size_t kArenaBytes = kDevice.shared_bytes + kMostArrays * kArrayGap;

struct Lane {
  uint32_t linear = 0, warp = 0, lane = 0;
  uint32_t thread[3] = {};
  uint16_t warp_epoch = 0;  // warp barriers passed since the last block barrier
  Context context;
  Block* block = nullptr;
};

class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void run(Launch&, const uint32_t (&index)[3], uint32_t serial);
  // The same in steps, for blocks that run at the same time: begin() makes the fibers, go_on() switches to
  // one of them from outside, which is `home`, and returns when a block has ended or the launch is to end.
  void begin(Launch&, const uint32_t (&index)[3], uint32_t serial, Context& home);
  static void go_on(Lane&, Context& home);
  static void outside();  // no block runs: a launch was ended by work that no fiber was doing
  bool ended() const { return live_ == 0; }

  // Called by fibers.
  uint32_t coordinate(int which) const;
  int lane() const { return static_cast<int>(current_->lane); }
  void block_barrier(Where);
  void warp_barrier(Where);
  void exchange(void* value, size_t bytes, int from, Where);
  uint64_t ballot(bool, Where);
  // All lanes of a whole warp hand over `bytes` at `value`; `complete` turns the table of them (kSlotBytes
  // each) into what they take back.
  void together(void* value, size_t bytes, void (*complete)(unsigned char* table), Where);
  void* shared_array(const void* tag, size_t bytes, size_t scalar, const char* name, Where);
  void* dynamic_shared(Where);
  // The present fiber sleeps until another one wakes it, or lets others go first.
  void sleep();
  void yield();
  static void wake(Lane&);
  uint64_t ready(unsigned warp) const { return warps_[warp].ready; }
  unsigned warp_count() const { return static_cast<unsigned>(warps_.size()); }
  unsigned live() const { return live_; }
  std::vector<Lane>& lanes() { return lanes_; }
  machine::BlockState* state = nullptr;  // of Hopper's machinery
  // Notes a finding; ends the launch when there are enough.
  void note(Kind, const Site&, std::string text);
  [[noreturn]] void stop(Kind, const Site&, std::string text);

  // For the checker.
  const Lane& current() const { return *current_; }
  const unsigned char* stack_of(const Lane& l) const { return stacks_ + l.linear * kStackBytes; }
  const unsigned char* stack_of_current() const { return stack_of(*current_); }
  const std::vector<SharedArray>& arrays() const { return arrays_; }
  const unsigned char* arena() const { return arena_; }
  uint32_t serial() const { return serial_; }
  uint32_t epoch() const { return epoch_; }
  const Launch& launch() const { return *launch_; }
  const uint32_t (&index() const)[3] { return index_; }

 private:
  struct Warp {
    uint64_t lanes = 0;  // that exist
    uint64_t live = 0, ready = 0, in_collective = 0, at_barrier = 0;
    Where where{};
    unsigned parity = 0;
    // Two tables in turn: a lane may read this one while the first to go on fills the other, but nobody can
    // be two collectives ahead.
    alignas(64) unsigned char slots[2][64 * kSlotBytes];
  };

  friend class ActAs;
  static void enter();
  static void activate(Lane&);
  void switch_to(Lane&);
  Lane* next_anywhere();
  uint32_t drawn();
  Lane* next_drawn();
  [[noreturn]] void stuck();
  [[noreturn]] void leave();
  void prepare(unsigned threads);
  Lane* next();
  void wait();
  void finish();
  const unsigned char* meet(const void* value, size_t bytes, Where,
                            void (*complete)(unsigned char* table) = nullptr);
  void release_barrier();
  void add_array(const void* tag, const char* name, size_t bytes, size_t scalar);
  std::string lanes_text(uint64_t lanes) const;

  Launch* launch_ = nullptr;
  uint32_t index_[3] = {}, serial_ = 0, epoch_ = 0;
  std::vector<Lane> lanes_;
  std::vector<Warp> warps_;
  Lane* current_ = nullptr;
  unsigned live_ = 0, waiting_ = 0;  // threads of the block that have not left; of them at the barrier
  Where barrier_{};
  Context outside_;
  Context* home_ = &outside_;
  unsigned char *stacks_ = nullptr, *arena_ = nullptr;
  size_t stacks_bytes_ = 0;
  std::vector<SharedArray> arrays_;
  size_t arena_used_ = 0, static_bytes_ = 0, cells_used_ = 0;
  // Where threads take turns in a drawn order: its state, and the warp that is held back; 0: the fixed order.
  uint64_t random_ = 0;
  uint32_t late_ = 0;
};

// While it lives, what happens is done by this lane: work that it set on its way before.
class ActAs {
 public:
  explicit ActAs(Lane&);
  ~ActAs();
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;

 private:
  Block *before_, *own_;
  Lane* own_lane_;
};

// The block whose fiber runs on this thread of the host; null outside a launch.
Block* running_block();

}  // namespace gpu::emulator
