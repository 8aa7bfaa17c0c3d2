// SPDX-License-Identifier: Apache-2.0
// A library of kernels whose verdict is known beforehand (harness/abi/assay_fault.h), opened and looked at
// once: every string present, every kernel one of the library's backend, names unique. The rest of the stage
// indexes into `faults` and `variants` and never asks again.
#pragma once

#include <string>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "harness/device/backend.hpp"
#include "harness/ops/op.hpp"

namespace assay {

struct CatalogueEntry {
  std::string name, summary, stage, museum, cause;  // museum and cause empty for variants
  bool equivalent = false;
  const assay_kernel* prefill = nullptr;
  const assay_kernel* paged = nullptr;
  int (*reached)(const assay_problem*) = nullptr;
  std::string family, unit;  // of a fault that comes in several sizes
  double size = 0;

  const assay_kernel* kernel_for(const Problem& p) const { return op_of(p).has_cache ? paged : prefill; }
};

struct Catalogue {
  Backend backend;
  assay_device device{};
  std::vector<CatalogueEntry> faults, variants;  // to be scored; callers may drop some
  std::vector<CatalogueEntry> healthy;           // all variants, whatever is scored: the twins of faults
};

// Path of a library; empty: faulty/libassay_faulty.so beside the program. InfrastructureError when it cannot
// be loaded, exports no catalogue, or the catalogue contradicts itself.
Catalogue load_catalogue(const std::string& path);

// The variant whose declared arithmetic on this problem is nearest to the kernel's (equal where there is
// one): the healthy twin of a fault. nullptr when no variant supports the problem.
const assay_kernel* healthy_twin(const Catalogue&, const assay_kernel&, const Problem&, const assay_problem*);

// Whether the entry has a kernel for the problem that accepts it and, for a fault, reaches the planted code.
bool takes(const Catalogue&, const CatalogueEntry&, const Problem&, const assay_problem*);

}  // namespace assay
