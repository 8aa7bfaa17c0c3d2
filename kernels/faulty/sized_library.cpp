// SPDX-License-Identifier: Apache-2.0
// Faults of adjustable size, as a library of their own: hundreds of kernels, which nobody wants among the
// others.
#include "kernels/faulty/catalogue.hpp"
#include "kernels/faulty/sized.hpp"

namespace {
assay_faulty::Library& library() {
  using namespace assay_faulty;
  static Library the("sized", sized_variants(), sized_faults());
  return the;
}
}  // namespace

ASSAY_FAULTY_EXPORTS(library)
