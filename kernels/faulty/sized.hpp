// SPDX-License-Identifier: Apache-2.0
// Faults that come in every size, for asking how small a mistake is still seen (harness/power): families of
// one mistake each, in octaves, all in the same legal arithmetic, which is the one variant of this table.
// A family is one row in sized.cpp.
#pragma once

#include "kernels/faulty/model.hpp"

namespace assay_faulty {

Table sized_faults();
// The kernel without a fault: "sized_right".
Table sized_variants();

}  // namespace assay_faulty
