// SPDX-License-Identifier: Apache-2.0
// The faults of this folder as a table: what is wrong in plain words, where the idea comes from, and a line
// on which it shows. "name"_fault is a row's number, looked up by the compiler: kernel.cpp says with it where
// the mistake sits, and a name that no row has does not compile.
#pragma once

#include <cstddef>
#include <string_view>

namespace assay_unseen {

struct Fault {
  const char* name;
  const char* stage;
  const char* museum;  // rows of the bug museum, or Tnn where one of its trigger dimensions asks for it
  const char* truth;   // what the kernel does wrong, as its author would say it in a bug report
  const char* line;    // a scenario on which results are wrong
  int parts = 1;       // partial results that are merged
};

// clang-format off: a fault is two lines, whatever their width.
inline constexpr Fault kFaults[] = {
#include "kernels/faulty/unseen/faults.inc"
};
// clang-format on
inline constexpr int kFaultCount = sizeof kFaults / sizeof *kFaults;

consteval int operator""_fault(const char* name, size_t length) {
  for (int i = 0; i < kFaultCount; ++i)
    if (std::string_view(kFaults[i].name) == std::string_view(name, length)) return i;
  throw "no fault has this name";
}

}  // namespace assay_unseen
