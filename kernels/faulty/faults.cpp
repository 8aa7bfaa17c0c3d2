// SPDX-License-Identifier: Apache-2.0
// All planted faults, in the order of the stages. A new fault is a row in the file of its stage; a new stage
// is a file and a line here.
#include "kernels/faulty/faults.hpp"

#include <vector>

namespace assay_faulty {

Table planted_faults() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> all;
    for (const std::span<const Row> stage :
         {metadata_faults(), mask_faults(), addressing_faults(), scale_faults(), score_faults(),
          softmax_faults(), merge_faults(), output_faults(), state_faults(), boundary_faults(),
          path_faults()})
      all.insert(all.end(), stage.begin(), stage.end());
    return all;
  }();
  return {rows.data(), static_cast<int32_t>(rows.size())};
}

}  // namespace assay_faulty
