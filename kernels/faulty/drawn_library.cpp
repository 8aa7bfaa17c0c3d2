// SPDX-License-Identifier: Apache-2.0
// Drawn legal variants, as a library of their own: thousands of kernels, which nobody wants among the others.
#include "kernels/faulty/catalogue.hpp"
#include "kernels/faulty/drawn.hpp"

namespace {
assay_faulty::Library& library() {
  using namespace assay_faulty;
  static Library the("drawn", drawn_variants(), {});
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
