// SPDX-License-Identifier: Apache-2.0
// The checker: told of every access of a kernel, it knows where the kernel may read and write, what it has
// written and what orders two accesses. Block barriers order a block, warp barriers a warp, launches
// everything; shuffles, ballots and atomics order nothing, and neither do blocks of one launch each other. It
// says what could go wrong on some device, not what did go wrong in this order of fibers.
//
// The compiler reports accesses: kernels of checked libraries are compiled with -fsanitize=thread and meet
// the functions in tsan.cpp instead of that sanitizer's run time (as the Linux kernel's KCSAN does).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/emulator/findings.hpp"

namespace gpu::emulator {

class Block;
struct Launch;

#ifdef ASSAY_EMULATOR_CHECK
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif

namespace check {

// kObserve: a relaxed load, in no order with anything but what it has seen: who writes there afterwards comes
// after whoever wrote what was seen.
enum class Access { kRead, kWrite, kAtomic, kObserve };
enum class Role {
  kInput,   // only read
  kOutput,  // contents undefined until this call writes them
  kUpdated  // read and written: a cache that gets new tokens
};

// Memory a call may touch. scalar: size of what is stored there, in bytes; races are told apart at this
// grain.
struct Region {
  const unsigned char* begin;
  size_t bytes;
  Role role;
  size_t scalar;
  std::string name;
};

// One call, which may be several launches: its memory, and from now on nothing in it has been written.
// Regions that overlap (K and V of one cache) become one.
void begin_call(std::vector<Region>);
void end_call();

// For the emulator. present(): the block that runs now.
void begin_launch(Launch&);
void end_launch();
void present(Block*);
void access(const void* at, size_t bytes, Access, const Site&);

}  // namespace check
}  // namespace gpu::emulator
