// SPDX-License-Identifier: Apache-2.0
// Planted faults and the legal variants beside them, as a library.
#include "kernels/faulty/catalogue.hpp"
#include "kernels/faulty/faults.hpp"

namespace {
assay_faulty::Library& library() {
  using namespace assay_faulty;
  const std::span<const Row> rare = rare_faults();
  static Library the("faulty", legal_variants(), planted_faults(),
                     {rare.data(), static_cast<int32_t>(rare.size())});
  return the;
}
}  // namespace

ASSAY_FAULTY_EXPORTS(library)
