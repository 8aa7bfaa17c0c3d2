// SPDX-License-Identifier: Apache-2.0
// See pipelines.hpp. Scripts read the table: scripts/support_table.py which pipelines there are, and
// scripts/checks/check_style.py whether READMEs name the steps.
#include "kernels/common/pipelines.hpp"

#include <stdexcept>

#include "kernels/common/group.hpp"

namespace assay_kernels {
namespace {

constexpr struct {
  const char* name;
  const Pipeline* pipeline;
} kAll[] = {
    {"unified", &kUnifiedStep},    {"aiter_fa", &kAiterFa},         {"sglang_fa", &kSglangFa},
    {"mla_prefill", &kMlaPrefill}, {"aiter_mla", &kAiterMla},       {"aiter_mla_prefill", &kAiterMlaPrefill},
    {"ixformer_fa", &kIxformerFa}, {"ixformer_dcp", &kIxformerDcp},
};

const assay_kernel* kernel_for(const StagePlace& place, const Kit& kit) {
  switch (place.role) {
    case Role::kOfOp:
      for (const assay_kernel* kernel : kit.of_op)
        if (kernel->op == place.ops[0]) return kernel;
      return nullptr;
    case Role::kFewRows:
      return kit.few_rows;
    case Role::kJoin:
      return kit.join;
    case Role::kCorrect:
      return kit.correct;
    case Role::kAllGather:
      return &kAllGather;
    case Role::kReduceScatter:
      return &kReduceScatter;
  }
  return nullptr;
}

}  // namespace

std::vector<assay_stage> stages_of(const Pipeline& pipeline, const Kit& kit) {
  std::vector<assay_stage> stages;
  for (const StagePlace& place : pipeline.places) {
    const assay_kernel* kernel = kernel_for(place, kit);
    if (kernel == nullptr)
      throw std::logic_error(std::string("no kernel for stage ") + place.name +
                             " of a step: " + pipeline.description);
    stages.push_back({place.name, kernel});
  }
  return stages;
}

std::vector<const assay_kernel*> make_steps(const Kit& kit) {
  std::vector<const assay_kernel*> steps;
  for (const auto& [name, pipeline] : kAll)
    steps.push_back(make_composed(pipeline, std::string("step_") + name + "_" + kit.suffix, kit.arch,
                                  stages_of(*pipeline, kit), kit.streams));
  return steps;
}

}  // namespace assay_kernels
