// SPDX-License-Identifier: Apache-2.0
// The inside of libassay_hostile.so: kernels that compute what the fake backend's good one computes and do
// one thing to the process around them (hostile_table.hpp). To add one: a row there, a deed in one of the
// lists.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <span>

#include "harness/abi/assay_kernel.h"

namespace hostile {

// Where a deed is done.
// kEvery: at all of them but kInstead.
enum class Door {
  kSupports,
  kArithmetic,
  kWorkspace,
  kZeroed,
  kPlan,
  kFreePlan,
  kBefore,
  kAfter,
  kInstead,
  kEvery
};

struct Call {
  const assay_problem* problem = nullptr;
  const assay_tensors* tensors = nullptr;
  assay_arithmetic* arithmetic = nullptr;
  int64_t* bytes = nullptr;  // of the workspace
  char* error = nullptr;     // of size `size`; and what is returned
  size_t size = 0;
  int* status = nullptr;
  const assay_kernel* kernel = nullptr;
  Door door = Door::kEvery;  // through which it came
};

struct Deed {
  const char* name;
  Door door;
  void (*act)(const Call&);
};

std::span<const Deed> process_deeds();  // ends, children, threads, signals
std::span<const Deed> speech_deeds();   // the connection, output, exceptions, texts
std::span<const Deed> cheats();         // what a kernel may do when it knows that it is timed
std::span<const Deed> clock_deeds();    // the clock that is read
std::span<const Deed> state_deeds();    // what a process shares, memory, declarations
std::span<const Deed> system_deeds();   // what the system is asked to do later, or not to do any more

// What an honest kernel does.
int compute(const Call&);
// What a cheat does when the library is asked to copy: nothing, or what its call left undone.
extern void (*left_undone)();
// In a child process: named, so that the test finds those that live on.
void mark_child();
[[noreturn]] inline void sleep_for_ever() {
  for (;;) pause();
}

}  // namespace hostile
