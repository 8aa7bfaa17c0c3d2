// SPDX-License-Identifier: Apache-2.0
// Name, place in the C struct and holes of every operand.
#include "harness/ops/operand.hpp"

#include "harness/base/error.hpp"

namespace assay {
namespace {

struct Member {
  std::string_view name;
  assay_tensor assay_tensors::*at;
  Holes holes;
};
constexpr Member kMembers[] = {
#define ASSAY_MEMBER(enumerator, member, holes) {#member, &assay_tensors::member, Holes::holes},
    ASSAY_OPERANDS(ASSAY_MEMBER)
#undef ASSAY_MEMBER
};

}  // namespace

std::string_view operand_name(Operand operand) {
  const int index = static_cast<int>(operand);
  return index >= 0 && index < kOperandCount ? kMembers[index].name : "?";
}

Holes holes_of(Operand operand) {
  const int index = static_cast<int>(operand);
  ASSAY_CHECK(index >= 0 && index < kOperandCount, "operand {}", index);
  return kMembers[index].holes;
}

assay_tensor& tensor_of(assay_tensors& tensors, Operand operand) {
  const int index = static_cast<int>(operand);
  ASSAY_CHECK(index >= 0 && index < kOperandCount, "operand {}", index);
  return tensors.*kMembers[index].at;
}

const assay_tensor& tensor_of(const assay_tensors& tensors, Operand operand) {
  return tensor_of(const_cast<assay_tensors&>(tensors), operand);
}

}  // namespace assay
