// SPDX-License-Identifier: Apache-2.0
// Run-time detection of the instruction set (see isa.hpp). The tile registers of AMX are only usable
// after the process asked the Linux kernel for them (arch_prctl ARCH_REQ_XCOMP_PERM, since 5.16); the
// permission covers threads created later, so it is taken before the first parallel region.
#include "kernels/cpu/isa.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace assay_cpu {
namespace {

bool request_amx() {
  constexpr long kArchReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

Isa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return Isa::kScalar;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512vbmi"))
    return Isa::kAvx2;
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("amx-bf16") ||
      !__builtin_cpu_supports("amx-tile") || !request_amx())
    return Isa::kAvx512;
  return Isa::kAmx;
}

constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "amx"};

}  // namespace

const char* isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

Isa detected_isa() {
  static const Isa isa = detect();
  return isa;
}

bool active_isa(Isa* out, char* error, unsigned long error_size) {
  const Isa available = detected_isa();
  *out = available;
  // Read on every call: tests change it within one process.
  const char* wanted = getenv("ASSAY_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return true;
  for (int i = 0; i <= static_cast<int>(Isa::kAmx); ++i) {
    if (strcmp(wanted, kNames[i]) != 0) continue;
    if (i > static_cast<int>(available)) {
      if (error != nullptr && error_size > 0)
        snprintf(error, error_size, "ASSAY_CPU_ISA=%s asks for more than this machine has (%s)", wanted,
                 isa_name(available));
      return false;
    }
    *out = static_cast<Isa>(i);
    return true;
  }
  if (error != nullptr && error_size > 0)
    snprintf(error, error_size, "ASSAY_CPU_ISA=%s is unknown; accepted: scalar avx2 avx512 amx", wanted);
  return false;
}

}  // namespace assay_cpu
