// SPDX-License-Identifier: Apache-2.0
// The kernels of the libraries emu_sm90 and emu_sm90_check: those of kernels/sm90, entries and all.
#include "kernels/portable/kernels.hpp"

#include "kernels/cuda/auto.hpp"
#include "kernels/sm90/sm90.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> portable_kernels() {
  std::vector<const assay_kernel*> all = assay_sm90::sm90_kernels();
  for (const assay_kernel* kernel : auto_kernels(all)) all.push_back(kernel);
  return all;
}

}  // namespace assay_gpu
