// SPDX-License-Identifier: Apache-2.0
// See context.hpp. Saved are the registers that both calling conventions leave to the called function (System
// V AMD64 ABI 3.2.1; AAPCS64 6.1); control words of the floating-point units are never changed by kernels.
#include "kernels/emulator/context.hpp"

#include <cstdint>

#ifndef ASSAY_EMULATOR_UCONTEXT
extern "C" void assay_emulator_switch(void** from, void* to);

#  if defined(__x86_64__)
asm(R"(
  .text
  .p2align 4
  .globl assay_emulator_switch
  .hidden assay_emulator_switch
  .type assay_emulator_switch, @function
assay_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size assay_emulator_switch, . - assay_emulator_switch
)");
#  else
asm(R"(
  .text
  .p2align 4
  .globl assay_emulator_switch
  .hidden assay_emulator_switch
  .type assay_emulator_switch, %function
assay_emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size assay_emulator_switch, . - assay_emulator_switch
)");
#  endif
#endif

namespace gpu::emulator {

#ifdef ASSAY_EMULATOR_UCONTEXT
void make_context(Context& context, void* stack, size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }
#else
void make_context(Context& context, void* stack, size_t bytes, void (*entry)()) {
  const uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + bytes) / 16 * 16;
#  if defined(__x86_64__)
  // As if `entry` had been called: a return address (none) on top, then where the switch returns to, then six
  // registers.
  auto** at = reinterpret_cast<void**>(top);
  *--at = nullptr;
  *--at = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--at = nullptr;
#  else
  auto** at = reinterpret_cast<void**>(top - 160);
  for (int i = 0; i < 20; ++i) at[i] = nullptr;
  at[11] = reinterpret_cast<void*>(entry);  // x30
#  endif
  context.stack_pointer = at;
}
void switch_context(Context& from, Context& to) {
  assay_emulator_switch(&from.stack_pointer, to.stack_pointer);
}
#endif

}  // namespace gpu::emulator
