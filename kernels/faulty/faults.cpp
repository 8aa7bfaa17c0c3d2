// SPDX-License-Identifier: Apache-2.0
// The planted faults, gathered.
#include "kernels/faulty/model.hpp"

namespace assay_faulty {

Table planted_faults() { return {nullptr, 0}; }

}  // namespace assay_faulty
