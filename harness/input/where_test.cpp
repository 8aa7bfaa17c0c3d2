// SPDX-License-Identifier: Apache-2.0
// Every element of every operand is where its own offset says, in each layout, and what no element has is a
// gap.
#include "harness/input/where.hpp"

#include <gmock/gmock.h>

#include "harness/base/error.hpp"
#include "harness/input/inputs.hpp"
#include "harness/input/poison.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"
#include "harness/scenario/lengths.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Problem words_case(const std::string& line) { return make_problem(parse_scenario(line)); }

TEST(Where, KeysOfACacheInEveryLayout) {
  for (const std::string fields :
       {"layout=nhd", "layout=hnd", "layout=x", "layout=shuffled", "layout=mla h=4/1 d=48/32",
        "storage=stacked", "storage=interleaved", "strides=kv", "strides=kv+last", "table=token slots=drawn",
        "kv=fp8_e4m3:token_head"}) {
    const std::string h = fields.find("h=") == std::string::npos ? "h=4/2 d=32 " : "";
    const Problem p = words_case("paged " + h + fields + " page=16 batch=1q1s37_1q9s20 seed=3");
    const PagedCache cache(p);
    const int64_t bytes = format_bytes(p.k_format);
    for (const int request : {0, 1})
      for (const int32_t key : {0, 1, 15, 16, 19}) {
        const Slot at = locate(p, request, key);
        for (const int32_t dim : {0, 17, p.head_dim_v - 1})
          for (int32_t head = 0; head < p.heads_kv; ++head) {
            const std::string place = fmt::format("block {} slot {} head {} dim {} (key {} of request {})",
                                                  at.block, at.slot, head, dim, key, request);
            EXPECT_EQ(where_in(p, Operand::kK, cache.k_offset(at.block, at.slot, head, dim) * bytes),
                      "k " + place)
                << fields;
            if (p.layout == ASSAY_LAYOUT_MLA) continue;
            const Operand owner = cache.shared_allocation() ? Operand::kK : Operand::kV;
            EXPECT_EQ(where_in(p, owner, cache.v_offset(at.block, at.slot, head, dim) * bytes), "v " + place)
                << fields;
          }
      }
  }
}

TEST(Where, WhatNobodyMayRead) {
  const Problem p = words_case("paged h=4/2 d=32 page=16 strides=q+kv+out+table batch=1q1s37_1q9s20 seed=3");
  const PagedCache cache(p);
  EXPECT_EQ(where_in(p, Operand::kK, cache.k_offset(p.pages[0][2], 5, 1, 3) * 2),
            fmt::format("k block {} slot 5 head 1 dim 3 (behind the last key of request 0)", p.pages[0][2]));
  EXPECT_EQ(where_in(p, Operand::kK, (cache.k_offset(p.pages[1][0], 2, 1, 31) + 1) * 2),
            fmt::format("k, a gap behind block {} slot 2 head 1 dim 31 (key 2 of request 1)", p.pages[1][0]));
  int32_t nobody = 0;
  while (std::any_of(p.pages.begin(), p.pages.end(), [&](const auto& pages) {
    return std::find(pages.begin(), pages.end(), nobody) != pages.end();
  }))
    ++nobody;
  EXPECT_EQ(where_in(p, Operand::kK, cache.k_offset(nobody, 0, 0, 0) * 2),
            fmt::format("k block {} slot 0 head 0 dim 0 (of no request)", nobody));
  const TensorLayout o = operand_layout(p, Operand::kO), table = operand_layout(p, Operand::kBlockTable);
  EXPECT_EQ(where_in(p, Operand::kO, o.at({3, 2, 7}) * 2), "o request 1 row 2 head 2 dim 7");
  EXPECT_EQ(where_in(p, Operand::kO, (o.at({3, 3, 31}) + 2) * 2),
            "o, the gap behind request 1 row 2 head 3 dim 31");
  EXPECT_EQ(where_in(p, Operand::kBlockTable, table.at({1, 1}) * 4), "block_table request 1 entry 1");
  EXPECT_EQ(where_in(p, Operand::kBlockTable, table.at({1, 2}) * 4),
            "block_table request 1 entry 2 (behind its last page)");
  EXPECT_EQ(where_in(p, Operand::kLse, operand_layout(p, Operand::kLse).at({9, 3}) * 4),
            "lse request 1 row 8 head 3");
  EXPECT_EQ(where_in(p, Operand::kCuQ, 4), "cu_q entry 1");
}

TEST(Where, OtherOps) {
  const Problem prefill = words_case("prefill h=4/2 d=32 batch=1q3_1q9 seed=3");
  EXPECT_EQ(where_in(prefill, Operand::kV, operand_layout(prefill, Operand::kV).at({4, 1, 2}) * 2),
            "v key 1 of request 1 head 1 dim 2");
  const Problem step = words_case("step h=4/2 d=32 page=16 kv=int8:token_head pad=2 batch=1q2s37_1q9 seed=3");
  const PagedCache cache(step);
  const Slot fresh = locate(step, 0, 36);
  EXPECT_THAT(where_in(step, Operand::kV, cache.v_offset(fresh.block, fresh.slot, 0, 0)),
              EndsWith("(new key 36 of request 0)"));
  EXPECT_EQ(
      where_in(step, Operand::kKScale,
               operand_layout(step, Operand::kKScale).at({fresh.block, 1, fresh.slot}) * 4),
      fmt::format("k_scale block {} slot {} head 1 (new key 36 of request 0)", fresh.block, fresh.slot));
  EXPECT_EQ(where_in(step, Operand::kO, operand_layout(step, Operand::kO).at({12, 0, 0}) * 2),
            "o row 12 (padding) head 0 dim 0");
}

// Whatever is poisoned, each place has words.
TEST(Where, EveryByteOfEveryOperand) {
  for (const char* line :
       {"paged h=4/2 d=16 page=4 layout=x strides=q+kv+out+table batch=1q1s7_1q3s6 seed=3",
        "step h=4/2 d=16 page=4 storage=interleaved pad=1 batch=1q1s7_1q3s6 seed=3",
        "merge_states h=2 d=16 states=3 strides=out batch=2q2", "cache_gather h=2/2 d=16 page=4 batch=2q2s7",
        "decode_splitkv h=2/2 d=16 page=4 batch=2q1s9", "expand_pages page=4 batch=2q1s9"}) {
    const Inputs inputs = build_inputs(words_case(line));
    for (int i = 0; i < kOperandCount; ++i) {
      const auto operand = static_cast<Operand>(i);
      const GuardedBuffer& buffer = inputs.buffers[i];
      for (int64_t byte = 0; byte < buffer.bytes(); byte += 7) {
        const std::string where = where_in(inputs.problem, operand, byte);
        ASSERT_THAT(where, AnyOf(StartsWith(std::string(operand_name(operand))), StartsWith("v"))) << line;
        ASSERT_GT(where.size(), operand_name(operand).size() + 3) << line;
      }
    }
  }
}

}  // namespace
}  // namespace assay
