// SPDX-License-Identifier: Apache-2.0
// Tables of rows as kernels, whose context is their row, and as what a library of this folder exports: a
// backend and a catalogue. A library is one such object and the two exported symbols.
#pragma once

#include <string>
#include <vector>

#include "kernels/faulty/model.hpp"

namespace assay_faulty {

// What a kernel's functions get: its row, and what the row's fault keeps from call to call.
struct KernelContext {
  const Row* row;
  State state;
};

struct Library {
  // Pointers into it are handed out: neither copied nor moved.
  // `besides`: kernels of the library that no catalogue names.
  Library(const char* name, const Table& variants, const Table& faults, const Table& besides = {});
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::vector<std::string> names;
  std::vector<assay_kernel> kernels;    // [rows][prefill, paged]; rows are the variants, then the faults
  std::vector<KernelContext> contexts;  // as kernels
  std::vector<const assay_kernel*> listed;
  std::vector<assay_fault> entries;
  assay_fault_catalogue catalogue{};
  assay_backend backend{};
};

}  // namespace assay_faulty

// The two symbols of a library whose one object `library()` returns.
#define ASSAY_FAULTY_EXPORTS(library)                                                                        \
  extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(                 \
      uint32_t version) {                                                                                    \
    return version == ASSAY_ABI_VERSION ? &library().backend : nullptr;                                      \
  }                                                                                                          \
  extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open( \
      uint32_t version) {                                                                                    \
    return version == ASSAY_ABI_VERSION ? &library().catalogue : nullptr;                                    \
  }
