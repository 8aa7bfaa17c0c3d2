// SPDX-License-Identifier: Apache-2.0
// Which instruction set the fast kernels use. Decided once from the processor (and from the operating
// system for the wide registers), lowered by ASSAY_CPU_ISA=scalar|avx2|avx512|amx for tests and
// comparisons. A level is complete: it never falls back silently to another one within a call.
#pragma once

namespace assay_cpu {

enum class Isa {
  kScalar = 0,  // x86-64-v2: 128-bit vectors, no fused multiply-add
  kAvx2 = 1,    // AVX2, FMA, F16C
  kAvx512 = 2,  // AVX-512 F BW DQ VL VBMI, BF16 not needed
  kAmx = 3,     // kAvx512 plus AVX512-BF16 and AMX-BF16 tiles, granted by the kernel
};

const char* isa_name(Isa);
Isa detected_isa();  // what processor and operating system allow
// The level in use: detected, or the lower one ASSAY_CPU_ISA asks for. False and a text when the variable
// holds something else or asks for more than the machine has.
bool active_isa(Isa*, char* error, unsigned long error_size);

}  // namespace assay_cpu
