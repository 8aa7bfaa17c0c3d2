// SPDX-License-Identifier: Apache-2.0
// Planted faults and the legal variants beside them, as a library.
#include <span>
#include <vector>

#include "kernels/faulty/catalogue.hpp"
#include "kernels/faulty/faults.hpp"

namespace {
assay_faulty::Library& library() {
  using namespace assay_faulty;
  static const std::vector<Row> besides = [] {
    std::vector<Row> all;
    for (const std::span<const Row> rows : {rare_faults(), lse_faults()})
      all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }();
  static Library the("faulty", legal_variants(), planted_faults(),
                     {besides.data(), static_cast<int32_t>(besides.size())});
  return the;
}
}  // namespace

ASSAY_FAULTY_EXPORTS(library)
