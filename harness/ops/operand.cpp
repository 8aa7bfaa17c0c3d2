// SPDX-License-Identifier: Apache-2.0
// Name and place of every operand in the C struct.
#include "harness/ops/operand.hpp"

#include "harness/base/error.hpp"

namespace assay {
namespace {

struct Member {
  std::string_view name;
  assay_tensor assay_tensors::*at;
};
constexpr Member kMembers[] = {{"q", &assay_tensors::q},
                               {"k", &assay_tensors::k},
                               {"v", &assay_tensors::v},
                               {"o", &assay_tensors::o},
                               {"lse", &assay_tensors::lse},
                               {"q_scale", &assay_tensors::q_scale},
                               {"k_scale", &assay_tensors::k_scale},
                               {"v_scale", &assay_tensors::v_scale},
                               {"cu_q", &assay_tensors::cu_q},
                               {"cu_kv", &assay_tensors::cu_kv},
                               {"kv_len", &assay_tensors::kv_len},
                               {"block_table", &assay_tensors::block_table},
                               {"indptr", &assay_tensors::indptr},
                               {"indices", &assay_tensors::indices},
                               {"last_page_len", &assay_tensors::last_page_len},
                               {"alibi_slopes", &assay_tensors::alibi_slopes},
                               {"sinks", &assay_tensors::sinks},
                               {"tree_mask", &assay_tensors::tree_mask},
                               {"tree_indptr", &assay_tensors::tree_indptr},
                               {"workspace", &assay_tensors::workspace},
                               {"partial_o", &assay_tensors::partial_o},
                               {"partial_lse", &assay_tensors::partial_lse},
                               {"dense_k", &assay_tensors::dense_k},
                               {"dense_v", &assay_tensors::dense_v},
                               {"slot_mapping", &assay_tensors::slot_mapping},
                               {"seq_starts", &assay_tensors::seq_starts},
                               {"token_to_batch", &assay_tensors::token_to_batch},
                               {"source", &assay_tensors::source},
                               {"first_key", &assay_tensors::first_key},
                               {"positions", &assay_tensors::positions}};
static_assert(std::size(kMembers) == kOperandCount, "a row for every operand, in their order");

}  // namespace

std::string_view operand_name(Operand operand) {
  const int index = static_cast<int>(operand);
  return index >= 0 && index < kOperandCount ? kMembers[index].name : "?";
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
