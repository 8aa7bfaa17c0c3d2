// SPDX-License-Identifier: Apache-2.0
// What an op is, in one description: everything that asks "which op" outside of this folder reads it here,
// and everything that is done for every op walks all_ops(). What the mathematics of an op is stands at enum
// assay_op of the C header. A new op: see op_list.hpp and the checklist in CONTRIBUTING.md.
#pragma once

#include <span>
#include <string_view>

#include "harness/ops/op_list.hpp"
#include "harness/ops/operand.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {

// One operand as an op takes it. The order of a list means nothing.
struct OperandUse {
  Operand operand;
  Role role;
  TensorLayout (*layout)(const Problem&);  // rank 0: this problem does not use it
  // A scale that the op computes itself where its kind is TOKEN_HEAD: then its role is this one.
  Role when_dynamic = Role::kNone;
};

struct Op {
  int32_t id;  // enum assay_op
  std::string_view name;
  std::string_view summary;  // one line

  // Rows of Q attend to keys: masks, biases and bounds of attention apply.
  bool attends_rows = false;
  // The result is that of every visible key: answers of recipes are known, relations hold, rows may be
  // sampled, wrong results can be explained. Only of ops that attend.
  bool whole_context = false;
  bool has_cache = false;     // K and V lie in pages
  bool shares_pages = false;  // requests may hold one prefix in common pages

  std::span<const OperandUse> operands;  // without the workspace
};

namespace ops {
#define ASSAY_DECLARE(NAME, ID) extern const Op NAME;
ASSAY_FOR_EACH_OP(ASSAY_DECLARE)
#undef ASSAY_DECLARE
}  // namespace ops

// CheckError for a value that is no op.
const Op& op_of(int32_t op);
inline const Op& op_of(const Problem& p) { return op_of(p.op); }
std::span<const Op* const> all_ops();  // in the order of the C header

// The op's operand in its list, or nullptr.
const OperandUse* find_operand(const Op&, Operand);
Role role_of(const Problem&, Operand);
// The only buffers a kernel may write: out, in-out and the workspace.
bool is_output(const Problem&, Operand);
// Shape, strides and allocation; rank 0 when the problem does not use the operand. The workspace is unknown
// here: always rank 0.
TensorLayout operand_layout(const Problem&, Operand);

}  // namespace assay
