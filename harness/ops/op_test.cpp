// SPDX-License-Identifier: Apache-2.0
// What every description must fulfil, whatever the op: asked of all of them, so that a new op is asked too.
#include "harness/ops/op.hpp"

#include <gtest/gtest.h>

#include <set>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"

namespace assay {
namespace {

Problem small(const Op& op) {
  Problem p;
  p.op = op.id;
  p.heads_q = 4, p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 32;
  p.softmax_scale = 1;
  p.workers = 3, p.tile_rows = 5;
  p.requests = {{1, 37}, {0, 5}, {1, 20}};
  if (op.has_cache) place_pages(p);
  return p;
}

TEST(Ops, AreFoundByValueAndNamedOnce) {
  std::set<std::string_view> names;
  for (const Op* op : all_ops()) {
    EXPECT_EQ(&op_of(op->id), op);
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
    EXPECT_FALSE(op->summary.empty()) << op->name;
  }
  EXPECT_EQ(all_ops().size(), op_names().size());
  EXPECT_THROW(op_of(0), CheckError);
  EXPECT_THROW(op_of(static_cast<int32_t>(all_ops().size()) + 1), CheckError);
}

TEST(Ops, TakeEachOperandOnceAndWriteOne) {
  for (const Op* op : all_ops()) {
    std::set<Operand> taken;
    int written = 0;
    for (const OperandUse& use : op->operands) {
      EXPECT_TRUE(taken.insert(use.operand).second) << op->name << ' ' << operand_name(use.operand);
      EXPECT_NE(use.operand, Operand::kWorkspace) << op->name;
      EXPECT_NE(use.role, Role::kNone) << op->name << ' ' << operand_name(use.operand);
      written += use.role == Role::kOut || use.role == Role::kInOut ? 1 : 0;
    }
    EXPECT_GE(written, 1) << op->name;
    EXPECT_EQ(role_of(small(*op), Operand::kWorkspace), Role::kWorkspace);
  }
}

TEST(Ops, SayOfTheirCacheWhatTheirOperandsSay) {
  for (const Op* op : all_ops()) {
    const OperandUse* k = find_operand(*op, Operand::kK);
    const bool paged = k != nullptr && k->layout == layouts::k_paged;
    EXPECT_EQ(op->has_cache, paged || find_operand(*op, Operand::kBlockTable) != nullptr) << op->name;
    EXPECT_TRUE(op->has_cache || !op->shares_pages) << op->name;
    EXPECT_TRUE(op->attends_rows || !op->whole_context) << op->name;
    EXPECT_TRUE(!op->attends_rows || (find_operand(*op, Operand::kQ) && k)) << op->name;
  }
}

// Every element of a view lies in the allocation, and no two in one place.
TEST(Ops, LayOperandsOutWithoutOverlap) {
  for (const Op* op : all_ops())
    for (const bool strided : {false, true})
      for (const int32_t kind : {ASSAY_SCALE_NONE, ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_CHANNEL}) {
        Problem p = small(*op);
        if (strided) p.strided = {true, true, true, true, true};
        p.q_scale = p.k_scale = p.v_scale = kind;
        if (kind != ASSAY_SCALE_NONE) p.q_format = p.k_format = p.v_format = ASSAY_INT8;
        for (int i = 0; i < kOperandCount; ++i) {
          const TensorLayout t = operand_layout(p, static_cast<Operand>(i));
          if (t.rank == 0) continue;
          std::set<int64_t> seen;
          int64_t index[ASSAY_MAX_RANK] = {};
          for (int64_t n = 0; n < t.elements(); ++n) {
            int64_t at = t.offset;
            for (int axis = 0; axis < t.rank; ++axis) at += index[axis] * t.stride[axis];
            ASSERT_TRUE(at >= 0 && at < t.allocation) << op->name << ' ' << operand_name(Operand{i});
            ASSERT_TRUE(seen.insert(at).second) << op->name << ' ' << operand_name(Operand{i});
            for (int axis = t.rank - 1; axis >= 0 && ++index[axis] == t.shape[axis]; --axis) index[axis] = 0;
          }
        }
      }
}

TEST(Ops, ScalesAreWrittenWhereTheyAreDynamic) {
  Problem p = small(ops::cache_write);
  p.k_format = ASSAY_INT8, p.k_scale = ASSAY_SCALE_HEAD;
  EXPECT_EQ(role_of(p, Operand::kK), Role::kInOut);
  EXPECT_EQ(role_of(p, Operand::kKScale), Role::kIn);
  EXPECT_FALSE(is_output(p, Operand::kKScale));
  p.k_scale = ASSAY_SCALE_TOKEN_HEAD;
  EXPECT_EQ(role_of(p, Operand::kKScale), Role::kInOut);
  EXPECT_EQ(role_of(p, Operand::kO), Role::kNone);
  p = small(ops::quantize_int8);
  p.q_format = ASSAY_INT8, p.q_scale = ASSAY_SCALE_TOKEN_HEAD;
  EXPECT_EQ(role_of(p, Operand::kQScale), Role::kOut);
  p.q_scale = ASSAY_SCALE_CHANNEL;
  EXPECT_EQ(role_of(p, Operand::kQScale), Role::kIn);
}

}  // namespace
}  // namespace assay
