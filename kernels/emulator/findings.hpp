// SPDX-License-Identifier: Apache-2.0
// What a kernel did wrong during one launch: kind, place in the source, block and thread. The first of a kind
// at a place counts, at most kMostFindings of them; a launch with any fails with their text.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace gpu::emulator {

enum class Kind {
  // Seen by the emulator itself.
  kDivergence,      // lanes of a warp at different collectives, or some at a collective and some at a barrier
  kExitedLane,      // a collective in a warp of which a lane has left the kernel
  kBarrierMix,      // threads of a block at different barriers
  kBadLane,         // value taken from a lane that does not exist
  kSharedOverflow,  // more shared memory than the device has
  kLaunch,          // block or grid no device takes
  kTrap,            // gpu::trap
  kDeadlock,        // no thread can go on
  // Seen only in checked builds (check.hpp).
  kMisaligned,     // address that its type does not allow
  kRace,           // two accesses, one a write, that nothing orders
  kOutOfBounds,    // outside every operand and shared array
  kUninitialised,  // read of what this call has not written
  kInputWritten,   // write to an operand that is only read
  // Of Hopper's asynchronous machinery (sm90/).
  kBarrier,       // an mbarrier that is none, or more arrivals than it counts
  kBytes,         // a phase expects other bytes than are copied
  kProxy,         // an asynchronous access to what an ordinary one wrote, without a proxy fence between
  kDescriptor,    // wrong descriptor, swizzle or tensor map
  kRegisters,     // registers of a product touched while it is in flight
  kProductFence,  // or before it, with no wgmma.fence between
  kDisagreement,  // warps of a warpgroup that do not do the same
  kInFlight,      // a block ends with copies or products under way
  kNotModelled    // what the emulator does not know
};
std::string_view name_of(Kind);  // "race", "out of bounds", ...

// Known at compile time (file), or an address of the code to look up (pc).
struct Site {
  const char* file = nullptr;
  int line = 0;
  const void* pc = nullptr;
};

struct Finding {
  Kind kind;
  Site site;
  std::string text;
  uint32_t block[3], thread[3];
};

class Findings {
 public:
  static constexpr size_t kMostFindings = 8;
  void clear();
  // False when the launch should end: there are enough. Thread-safe, like all of these.
  bool add(Finding);
  bool known(Kind, const Site&) const;
  bool empty() const;
  std::vector<Finding> list() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Finding> list_;
};

// "race in attend_simple at simple.hpp:92 (block_reduce): ... block (1,0,0) thread (3,0,0); and 2
// more"
std::string text_of(const std::vector<Finding>&, const void* kernel);

}  // namespace gpu::emulator
