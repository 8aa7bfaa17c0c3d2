// SPDX-License-Identifier: Apache-2.0
// The portable kernels of every library but those that plant defects in them (kernels/emulator/faults).
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> portable_kernels() {
  std::vector<const assay_kernel*> all = attention_kernels();
  for (const assay_kernel* kernel : matrix_kernels()) all.push_back(kernel);
  for (const assay_kernel* kernel : block_kernels()) all.push_back(kernel);
  return all;
}

}  // namespace assay_gpu
