// SPDX-License-Identifier: Apache-2.0
// The state behind machine.hpp: blocks that run at the same time, their barriers, the copies that are on
// their way, what warps have in flight. In the libraries without Hopper's machinery only the declarations
// are used, in code that is never reached.
#pragma once

#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kernels/emulator/sm90/machine.hpp"
#include "kernels/emulator/sm90/order.hpp"
#include "kernels/emulator/symbols.hpp"
#include "kernels/emulator/thread_block.hpp"

namespace gpu::emulator::machine {

constexpr uint32_t kWindow = 1024;  // where a block's shared memory begins: its first KiB is the system's
constexpr int kMostBarriers = 128;  // of a block

// ---- for thread_block.cpp and launch.cpp
void run(Launch&);                   // a whole grid
Lane* next_lane();                   // of any block; null: nobody can go on, and nothing is on its way
void thread_left(Block&);            // the present thread has ended
[[noreturn]] void deadlock(Block&);  // says who waits for what

// ---- barriers
struct BarrierState {
  uint32_t at = 0;                    // address
  int32_t expected = 0, pending = 0;  // arrivals of a phase, those to come
  int64_t bytes = 0;                  // to come
  uint32_t phase = 0;                 // number of completed ones
  uint32_t boxes = 0, awaited = 0;    // completed phases that the last box, the last wait belong to
  Where init{};
  Lane* init_by = nullptr;
  std::vector<Lane*> waiting;
  order::Gathering gathering;  // what the arrivals so far bring with them
  order::Released released;    // of the last phase
  order::Stamp init_stamp;
};
struct NamedBarrier {
  int threads = 0, arrived = 0;
  Where where{};
  std::vector<Lane*> waiting;
  order::Gathering gathering;  // what those bring who do not wait
};

struct ClusterBarrier {
  size_t arrived = 0;
  uint32_t phase = 0;  // number of completed ones
  std::vector<Lane*> waiting;
  order::Gathering gathering;
  order::Released released;  // of the last phase
};

// ---- what threads and warps have in flight
struct Copy {
  uint32_t to, number, bytes;  // number: from 1 on
  const void* from;
  bool valid;
  Where where;
};
struct Waiting {
  enum What : uint8_t { kNothing, kBarrier, kNamed, kCluster, kRegisters, kMemory } what = kNothing;
  uint32_t which = 0, parity = 0;  // address or number
  Where where{};
};
struct ThreadState {
  std::deque<Copy> copies;        // not performed yet
  uint32_t issued = 0;            // copies so far
  std::deque<uint32_t> groups;    // number of the last copy of each committed group
  std::vector<int> stores;        // numbers of bulk stores not committed
  uint32_t stores_committed = 0;  // number of the last one committed
  Waiting waiting;
  bool waited_previous = false;
  bool at_cluster = false;     // has arrived at the cluster's barrier and not waited for it yet
  uint32_t cluster_phase = 0;  // which it then waits for
  order::View view;
};

struct Operation {  // one product
  Product shape;
  uint64_t a, b;
  Where where;
  float* sums[32];
  const uint32_t* registers[32];  // of A
  uint32_t group, number;         // the group it belongs to, from 1 on
};
struct Accumulator {  // sums of products in flight: the registers hold NaN meanwhile
  float* sums[32];
  int columns;
  std::vector<float> values;  // [16][columns]
};
struct Signature {  // what all warps of a warpgroup must do alike
  uint64_t a, b;
  const char* file;
  unsigned line;
  uint32_t group;
};
struct WarpState {
  std::deque<Operation> operations;
  std::vector<Accumulator> accumulators;
  uint32_t operations_issued = 0, group = 1;  // the group that is open
  uint32_t fence = 0;  // number of the last one, by which accesses to registers are stamped
  bool fenced = false;
  int registers = 0, register_calls = 0;
  Where register_place{};
  uint32_t store_number = 0;  // of the last bulk store
  Lane* storer = nullptr;
  // Order: what every lane of the warp knows, kept until one of them learns more.
  order::WarpMemo memo;
};

struct BlockState {
  Block* block = nullptr;
  unsigned rank = 0;
  std::vector<BlockState*> cluster;  // by rank
  std::vector<BarrierState> barriers;
  std::vector<int16_t> barrier_at;  // by address / 8; -1
  NamedBarrier named[16];
  std::vector<ThreadState> threads;
  std::vector<WarpState> warps;
  std::vector<std::vector<Signature>> signatures;  // of the products of each warpgroup, in order
  int free_registers = 0;
  std::vector<Lane*> wants_registers;
  ClusterBarrier meeting;  // of the cluster: of its first block
  bool left = false;
  order::BlockMemory memory;
  std::unique_ptr<uint32_t, void (*)(void*)> stamps{nullptr, std::free};  // of every word of every stack

  ThreadState& of(const Lane& l) { return threads[l.linear]; }
  WarpState& warp_of(const Lane& l) { return warps[l.warp]; }
};

// Work that is on its way: a box, the arrival after copies, a store, what is sent to a block of the cluster.
struct Job {
  enum What : uint8_t { kLoad, kArrival, kStore, kSend } what;
  Lane* by;
  BlockState* block;  // whose shared memory and barrier
  TensorMap map;
  Corner at;
  uint32_t memory, barrier;
  uint32_t number;  // kLoad: phase of the barrier when issued; kArrival: the last copy; kStore: its number;
                    // kSend: bytes
  Where where;
  float values[4] = {};  // kSend
};

struct Gang {
  Launch* launch = nullptr;
  Context home;
  std::vector<std::unique_ptr<BlockState>> blocks;  // resident
  std::vector<std::unique_ptr<Job>> jobs;
  uint64_t random = 1;
  bool early = false;   // jobs are done at random times, not as late as possible
  uint32_t leader = 0;  // whom elect() elects
  uint32_t fences = 0;  // of products, of all warps
  uint32_t polls = 0;   // since anything happened
  uint32_t draw(uint32_t below) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>((random >> 33) % below);
  }
};
extern Gang gang;

inline BlockState& here() { return *running_block()->state; }
inline int64_t box_bytes(const TensorMap& m) {
  return int64_t{m.box[0]} * m.element_bytes * m.box[1] * m.box[2] * m.box[3] * m.box[4];
}
inline Site site_of(const Where& w) { return {w.file_name(), static_cast<int>(w.line()), nullptr}; }
std::string place_text(const Where&);
unsigned char* memory_at(BlockState&, uint32_t address);
// Where `bytes` of a swizzled box that would lie at `address` lie; 16-byte chunks are exchanged.
inline uint32_t swizzled(uint32_t address, unsigned mode) {
  return address ^ ((address >> 7 & ((1u << mode) - 1)) << 4);
}
// Ends the launch unless [address, + bytes) is the block's shared memory.
void require_shared(BlockState&, uint32_t address, size_t bytes, Where);
void something_happened();
void do_job(size_t index);

// ---- barriers.cpp
BarrierState& barrier(BlockState&, uint32_t at, Where);
void arrive(BlockState&, BarrierState&, Where);
void take_bytes(BlockState&, BarrierState&, int64_t bytes, Where);
std::string barrier_text(const BarrierState&);
// Ends the launch unless the cluster has such a block and it is still running.
BlockState& block_of_cluster(uint32_t rank, Where);

// ---- copies.cpp
void perform(Job&);
void perform_copies(Lane&, uint32_t up_to);
void finish_stores(BlockState&);

// ---- products.cpp
void block_ended(BlockState&);
// An ordinary access of the present thread to its own stack: registers, on a device.
void registers_touched(size_t offset, size_t bytes, bool write, const Site&);

}  // namespace gpu::emulator::machine
