// SPDX-License-Identifier: Apache-2.0
// Planted faults and the legal variants beside them, as a library.
#include "kernels/faulty/catalogue.hpp"

namespace {
assay_faulty::Library& library() {
  using namespace assay_faulty;
  static Library the("faulty", legal_variants(), planted_faults());
  return the;
}
}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return version == ASSAY_ABI_VERSION ? &library().backend : nullptr;
}

extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t version) {
  return version == ASSAY_ABI_VERSION ? &library().catalogue : nullptr;
}
