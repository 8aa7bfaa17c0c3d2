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

ASSAY_FAULTY_EXPORTS(library)
