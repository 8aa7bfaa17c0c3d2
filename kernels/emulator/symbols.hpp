// SPDX-License-Identifier: Apache-2.0
// Addresses of code as people read them. Asks addr2line (binutils), which is there wherever the kernels were
// compiled; without it, or without debug information, an offset in the library remains.
#pragma once

#include <string>

namespace gpu::emulator {

std::string base_name(const std::string& path);
// "attend_simple", without namespaces and parameters.
std::string function_name(const void* code);
// "formats.hpp:80 (load_element), from simple.hpp:88": where inlined, and where in the kernel.
std::string source_of(const void* return_address);

}  // namespace gpu::emulator
