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

ASSAY_FAULTY_EXPORTS(library)
