// SPDX-License-Identifier: Apache-2.0
// Steps made of the kernels of a library (kernels/common/pipelines.hpp). They launch nothing themselves.
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/common/pipelines.hpp"
#include "kernels/device/library.hpp"
#include "kernels/portable/correct.hpp"
#include "kernels/portable/join.hpp"
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> step_kernels(const std::vector<const assay_kernel*>& all) {
  const auto named = [&](const char* name) {
    for (const assay_kernel* kernel : all)
      if (std::strcmp(kernel->name, name) == 0) return kernel;
    throw std::logic_error(std::string("a step is made of ") + name + ", and there is no such kernel");
  };
  assay_kernels::Kit kit = {"any",
                            "gpu",
                            {named("prefill_tiled_gpu"), named("paged_tiled_gpu")},
                            named("paged_split256_gpu"),
                            watched(&kJoinHeads),
                            watched(&kLseCorrect),
                            &kStreams};
  // Of the other ops there is one kernel each.
  kit.of_op.insert(kit.of_op.end(), all.begin(), all.end());
  return make_steps(kit);
}

}  // namespace assay_gpu
