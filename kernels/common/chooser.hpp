// SPDX-License-Identifier: Apache-2.0
// A kernel that chooses: an ordinary entry of the C table that hands every call to one of several kernels of
// its op. Which one follows from the problem alone (rows of a table, first match), so that workspace,
// declared arithmetic and a captured graph fit the run; dispatch() prints it (`assay describe`), and
// NAME(PLACE=KERNEL) puts another kernel into a place. Host code; it launches nothing itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay_kernels {

// The first row whose `when` holds and whose kernel takes the problem (with tensors it likes: those of the
// call may still be refused, then the call is).
struct Choice {
  const char* place;   // "decode"
  const char* kernel;  // by name
  bool (*when)(const assay_problem&);
  const char* why;  // for people, printed behind the kernel's name
};
struct Chooser {
  const char* name;
  const char* description;
  int32_t op;
  std::span<const Choice> choices;
};

// The entry, which lives as long as the process. Rows whose kernel is not among `all` are left out; null
// where none is left. Promises are what all choices promise, without batch invariance: the choice looks at
// the batch.
const assay_kernel* make_chooser(const Chooser&, const std::vector<const assay_kernel*>& all);

}  // namespace assay_kernels
