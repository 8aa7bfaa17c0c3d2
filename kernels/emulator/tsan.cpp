// SPDX-License-Identifier: Apache-2.0
// The functions that code compiled with -fsanitize=thread,alignment calls before every access (names and
// meaning: GCC's sanitizer.def, compiler-rt's tsan_interface.h and ubsan_handlers.h), leading to the checker.
// Nothing of the sanitizers' run time is linked. Calls to memcpy that the compiler does not expand go unseen.
#include <cstdint>

#include "kernels/emulator/check_state.hpp"
#include "kernels/emulator/thread_block.hpp"

namespace {

using gpu::emulator::check::Access;

inline void tell(const void* at, size_t bytes, Access access, const void* from) {
  if (!gpu::emulator::check::known(at, bytes, access))
    gpu::emulator::check::access(at, bytes, access, {nullptr, 0, from});
}

// What -fsanitize=alignment and null hand over.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];
};
struct TypeMismatch {
  SourceLocation where;
  const TypeDescriptor* type;
  unsigned char log_alignment, check_kind;
};

}  // namespace

#define ASSAY_ACCESS(bytes)                                                                            \
  void __tsan_read##bytes(void* at) { tell(at, bytes, Access::kRead, __builtin_return_address(0)); }   \
  void __tsan_write##bytes(void* at) { tell(at, bytes, Access::kWrite, __builtin_return_address(0)); } \
  void __tsan_unaligned_read##bytes(void* at) {                                                        \
    tell(at, bytes, Access::kRead, __builtin_return_address(0));                                       \
  }                                                                                                    \
  void __tsan_unaligned_write##bytes(void* at) {                                                       \
    tell(at, bytes, Access::kWrite, __builtin_return_address(0));                                      \
  }                                                                                                    \
  void __tsan_volatile_read##bytes(void* at) {                                                         \
    tell(at, bytes, Access::kRead, __builtin_return_address(0));                                       \
  }                                                                                                    \
  void __tsan_volatile_write##bytes(void* at) {                                                        \
    tell(at, bytes, Access::kWrite, __builtin_return_address(0));                                      \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// The guard of a local static variable of a launching function.
uint8_t __tsan_atomic8_load(const volatile uint8_t* at, int) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
ASSAY_ACCESS(1)
ASSAY_ACCESS(2)
ASSAY_ACCESS(4)
ASSAY_ACCESS(8)
ASSAY_ACCESS(16)
void __tsan_read_range(void* at, size_t bytes) {
  tell(at, bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t bytes) {
  tell(at, bytes, Access::kWrite, __builtin_return_address(0));
}

void __ubsan_handle_type_mismatch_v1(TypeMismatch* m, uintptr_t at) {
  gpu::emulator::Block* const block = gpu::emulator::running_block();
  if (block == nullptr) return;
  const auto alignment = uintptr_t{1} << m->log_alignment;
  if (at % alignment == 0) return;
  block->stop(gpu::emulator::Kind::kMisaligned, {m->where.file, static_cast<int>(m->where.line), nullptr},
              "address that is no multiple of " + std::to_string(alignment) + " for " + m->type->name);
}
}
