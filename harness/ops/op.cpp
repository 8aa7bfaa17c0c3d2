// SPDX-License-Identifier: Apache-2.0
// The registry of descriptions and the questions about operands that follow from them.
#include "harness/ops/op.hpp"

#include <algorithm>

#include "harness/base/error.hpp"

namespace assay {

namespace {

#define ASSAY_ADDRESS(NAME, ID) &ops::NAME,
constexpr const Op* kOps[] = {ASSAY_FOR_EACH_OP(ASSAY_ADDRESS)};
#undef ASSAY_ADDRESS
#define ASSAY_NAME(NAME, ID) {#NAME, ID},
constexpr Name kNames[] = {ASSAY_FOR_EACH_OP(ASSAY_NAME)};
#undef ASSAY_NAME
// The value is the place in the list, so that asking costs nothing in rules over a million lines.
constexpr bool in_order() {
  for (int32_t i = 0; i < static_cast<int32_t>(std::size(kNames)); ++i)
    if (kNames[i].value != i + 1) return false;
  return true;
}
static_assert(in_order(), "op_list.hpp keeps the order of enum assay_op, without gaps");

}  // namespace

const Op& op_of(int32_t op) {
  ASSAY_CHECK(op >= 1 && op <= static_cast<int32_t>(std::size(kOps)), "op is {}, accepted are {}", op,
              accepted(op_names()));
  return *kOps[op - 1];
}

std::span<const Op* const> all_ops() { return kOps; }
std::span<const Name> op_names() { return kNames; }

RowRule row_rule(const Op& op, int32_t mask) {
  return op.rows == RowRule::kWithinCache && mask == ASSAY_MASK_CROSS ? RowRule::kAny : op.rows;
}

bool takes(const Op& op, std::string_view field) {
  const auto has = [field](const auto& list) {
    return std::find(std::begin(list), std::end(list), field) != std::end(list);
  };
  return has(kFieldsOfAll) || has(op.fields);
}

bool takes(const Op& op, InputRecipe recipe) { return (op.recipes & recipe_bit(recipe)) != 0; }

const OperandUse* find_operand(const Op& op, Operand operand) {
  const auto found = std::find_if(op.operands.begin(), op.operands.end(),
                                  [&](const OperandUse& use) { return use.operand == operand; });
  return found == op.operands.end() ? nullptr : &*found;
}

bool is_about_trees(const Op& op) {
  return !op.attends_rows && find_operand(op, Operand::kTreeMask) != nullptr;
}

Role role_of(const Problem& p, Operand operand) {
  if (operand == Operand::kWorkspace) return Role::kWorkspace;
  const OperandUse* use = find_operand(op_of(p), operand);
  if (use == nullptr) return Role::kNone;
  if (p.no_write && (use->role == Role::kInOut || use->when_dynamic == Role::kInOut)) return Role::kIn;
  if (use->when_dynamic == Role::kNone) return use->role;
  const int32_t kind = operand == Operand::kQScale   ? p.q_scale
                       : operand == Operand::kKScale ? p.k_scale
                                                     : p.v_scale;
  return kind == ASSAY_SCALE_TOKEN_HEAD || p.computed_scales ? use->when_dynamic : use->role;
}

bool holds_values(const Problem& p, Operand operand) {
  const Role role = role_of(p, operand);
  return role == Role::kIn || (role == Role::kInOut && op_of(p).attends_rows);
}
bool is_output(const Problem& p, Operand operand) {
  const Role role = role_of(p, operand);
  return role == Role::kOut || role == Role::kInOut || role == Role::kWorkspace;
}

TensorLayout operand_layout(const Problem& p, Operand operand) {
  const OperandUse* use = find_operand(op_of(p), operand);
  return use == nullptr ? TensorLayout{} : use->layout(p);
}

}  // namespace assay
