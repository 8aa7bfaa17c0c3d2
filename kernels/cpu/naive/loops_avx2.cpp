// SPDX-License-Identifier: Apache-2.0
// loops.hpp compiled for AVX2 (flags in CMakeLists.txt). Reached only through its table, after run-time
// detection; holds no other visible symbol.
#define ASSAY_LOOP_FLOATS 8
#define ASSAY_ISA_NAMESPACE loops_avx2
#include "kernels/cpu/naive/loops.hpp"

namespace assay_cpu {

const RowLoops& avx2_row_loops() {
  static constexpr RowLoops kLoops = {ASSAY_ISA_NAMESPACE::dots, ASSAY_ISA_NAMESPACE::weigh};
  return kLoops;
}

}  // namespace assay_cpu
