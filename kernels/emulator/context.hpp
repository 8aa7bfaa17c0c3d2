// SPDX-License-Identifier: Apache-2.0
// Switching between stacks. On x86-64 and aarch64 a dozen instructions that save what a called function must
// preserve; elsewhere (or with ASSAY_EMULATOR_UCONTEXT) ucontext, which also saves the signal mask with a
// system call per switch and is ten times slower.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(ASSAY_EMULATOR_UCONTEXT)
#  define ASSAY_EMULATOR_UCONTEXT
#endif
#ifdef ASSAY_EMULATOR_UCONTEXT
#  include <ucontext.h>
#endif

namespace gpu::emulator {

#ifdef ASSAY_EMULATOR_UCONTEXT
using Context = ucontext_t;
#else
struct Context {
  void* stack_pointer = nullptr;
};
#endif

// Makes a context that calls `entry` on the stack of `bytes` at `stack`; entry must never return.
void make_context(Context&, void* stack, size_t bytes, void (*entry)());
// Goes on with `to` and keeps the present state in `from`.
void switch_context(Context& from, Context& to);

}  // namespace gpu::emulator
