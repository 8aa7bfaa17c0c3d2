// SPDX-License-Identifier: Apache-2.0
// Contracts a kernel declares: one that says what it does passes, the same kernel that does not say so is
// wrong, one that says what is not true is wrong, and what is planted is found under every contract.
#include "harness/input/contracts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

#include "harness/check/graph/graph.hpp"
#include "harness/check/relations/relations.hpp"
#include "harness/check/testing/fake_library.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testkit::small_problem;

using testkit::fake;
using testkit::kBudget;

class Contracts : public ::testing::TestWithParam<int32_t> {
 protected:
  const assay_kernel& kernel(const std::string& behaviour) const {
    const std::string op = GetParam() == ASSAY_OP_PAGED ? "paged_" : "prefill_";
    const assay_kernel* found = fake().find(op + behaviour + "_fake");
    EXPECT_NE(found, nullptr) << behaviour;
    return *found;
  }
  Verdict judge(const std::string& behaviour, const Problem& problem) const {
    return Judge(problem, kBudget).judge(fake(), kernel(behaviour), fake().device(0));
  }
  Verdict judge(const std::string& behaviour) const { return judge(behaviour, small_problem(GetParam())); }
  void passes(const std::string& behaviour, const Problem& problem) const {
    const Verdict v = judge(behaviour, problem);
    EXPECT_EQ(v.outcome, Outcome::kPassed) << behaviour << ": " << v.reason;
  }
  void fails(const std::string& behaviour, const Problem& problem, const std::string& check) const {
    const Verdict v = judge(behaviour, problem);
    EXPECT_EQ(v.outcome, Outcome::kWrong) << behaviour;
    EXPECT_EQ(v.check, check) << behaviour << ": " << v.reason;
  }
};
INSTANTIATE_TEST_SUITE_P(BothOps, Contracts, ::testing::Values(ASSAY_OP_PAGED, ASSAY_OP_PREFILL),
                         [](const auto& info) { return info.param == ASSAY_OP_PAGED ? "paged" : "prefill"; });

TEST_P(Contracts, AnLseThatIsAbsentOrInBase2OrHeadsFirst) {
  for (const bool strided : {false, true}) {
    Problem p = small_problem(GetParam());
    p.strided.out = strided;
    passes("nolsesaid", p), passes("lse2said", p), passes("headsfirstsaid", p);
    fails("nolse", p, "unwritten"), fails("lse2", p, "lse D"), fails("lse2lie", p, "lse D");
    strided ? passes("headsfirst", p) : fails("headsfirst", p, "lse D");
    fails("headsfirstlie", p, "lse D");
  }
  EXPECT_EQ(judge("nolsesaid").lse.checked, 0);
  EXPECT_EQ(judge("lse2said").lse.checked, 13 * 4);
}

TEST_P(Contracts, KernelsOfOneJudgeGetTheirOwnInputs) {
  Judge judge(small_problem(GetParam()), kBudget);
  for (int i = 0; i < 2; ++i)
    for (const char* name : {"ok", "nolsesaid", "lse2said", "leaksaid", "headsfirstsaid"}) {
      const Verdict v = judge.judge(fake(), kernel(name), fake().device(0));
      EXPECT_EQ(v.outcome, Outcome::kPassed) << name << ": " << v.reason;
    }
  EXPECT_EQ(judge.judge(fake(), kernel("nolse"), fake().device(0)).outcome, Outcome::kWrong);
}

TEST_P(Contracts, RequestsWithoutKeys) {
  Problem p = small_problem(GetParam());
  passes("noempty", p), passes("noemptysaid", p);
  p.mask = ASSAY_MASK_FULL;
  p.requests[1] = {3, 0};
  if (GetParam() == ASSAY_OP_PAGED) place_pages(p);
  fails("noempty", p, "finite");
  const Verdict v = judge("noemptysaid", p);
  EXPECT_EQ(v.outcome, Outcome::kUnsupported);
  EXPECT_THAT(v.reason, StartsWith("required request 1 of 3 rows and 0 keys, supported"));
}

TEST_P(Contracts, WhatCannotBeIsAWrongDeclaration) {
  EXPECT_EQ(judge("contradiction").check, "declaration");
  EXPECT_THAT(judge("contradiction").reason, HasSubstr("no_lse lse_base_2, which exclude each other"));
  EXPECT_THAT(judge("unheardof").reason, HasSubstr("bits 0x40000000 that enum assay_contract does not have"));
}

TEST(ContractWords, SayWhatIsDeclaredAndWhatIsNot) {
  EXPECT_EQ(contracts_text(0), "");
  EXPECT_EQ(contracts_text(ASSAY_CONTRACT_FINITE_UNUSED | ASSAY_CONTRACT_LSE_BASE_2),
            "finite_unused lse_base_2");
  EXPECT_EQ(impossible_contracts(ASSAY_CONTRACT_FINITE_UNUSED, ASSAY_OP_MERGE_STATES), "");
  EXPECT_THAT(impossible_contracts(ASSAY_CONTRACT_LSE_BASE_2, ASSAY_OP_MERGE_STATES),
              HasSubstr("op merge_states has no LSE for"));
  EXPECT_THAT(impossible_contracts(ASSAY_CONTRACT_ROWS_BEHIND_LOST, ASSAY_OP_CACHE_WRITE),
              HasSubstr("op cache_write has no O for"));
}

TEST(ContractWords, AreNotLookedForBehindTheEndOfAnOlderTable) {
  assay_kernel old = *fake().find("paged_lse2said_fake");
  EXPECT_EQ(contracts_of(old), uint32_t{ASSAY_CONTRACT_LSE_BASE_2});
  old.struct_size = offsetof(assay_kernel, contracts);
  EXPECT_EQ(contracts_of(old), 0u);
}

// Unused memory is finite in every run, and everything else holds what it did.
TEST(FiniteUnused, MultipliesZeroWithoutANaNAndMayStillNotDependOnIt) {
  const auto judge = [](const char* name) {
    return Judge(small_problem(), kBudget)
        .judge(fake(), *fake().find(std::string("paged_") + name + "_fake"), fake().device(0));
  };
  EXPECT_EQ(judge("leak").check, "finite");
  EXPECT_EQ(judge("leaksaid").outcome, Outcome::kPassed) << judge("leaksaid").reason;
  EXPECT_EQ(judge("peeksaid").check, "memory") << judge("peeksaid").reason;
  Problem p = small_problem();
  p.strided = {true, true, true, true, true};
  Inputs inputs = build_inputs(p);
  const auto count = [&](const assay_tensor& t, int64_t elements) {
    int64_t nan = 0;
    for (int64_t i = 0; i < elements; ++i) nan += std::isnan(load(t.format, t.data, i));
    return nan;
  };
  const int64_t keys = inputs.buffers[Operand::kK].bytes() / 2,
                rows = inputs.buffers[Operand::kQ].bytes() / 2;
  const int64_t spare = count(inputs.tensors.q, rows);
  EXPECT_GT(count(inputs.tensors.k, keys), 0);
  EXPECT_GT(spare, 0);
  meet_contracts(inputs, ASSAY_CONTRACT_FINITE_UNUSED);
  EXPECT_EQ(count(inputs.tensors.k, keys), 0);
  EXPECT_EQ(count(inputs.tensors.q, rows), spare) << "gaps between rows of Q";
  repoison(inputs, Poison::kNaN);
  EXPECT_EQ(count(inputs.tensors.k, keys), 0);
  meet_contracts(inputs, 0);
  EXPECT_GT(count(inputs.tensors.k, keys), 0);
}

TEST_P(Contracts, WhatIsPlantedIsFoundUnderThem) {
  fails("droppagenolse", small_problem(GetParam()), "tier D");
  Problem p = small_problem(GetParam());
  p.requests = {{1, 137}, {40, 90}, {24, 148}};
  if (GetParam() == ASSAY_OP_PAGED) place_pages(p);
  for (const char* name : {"lean", "leanfinite", "leannolse"}) fails(name, p, "aggregate slope");
}

TEST_P(Contracts, RelationsHoldInTheUnitAndLayoutOfTheContract) {
  Problem p = small_problem(GetParam());
  p.relations = kRelateSplit | kRelateAlone | kRelateOrder | kRelateStrides;
  for (const char* name : {"lse2said", "headsfirstsaid", "nolsesaid", "leaksaid"}) {
    RelationReport report;
    EXPECT_EQ(
        check_relations(fake(), kernel(name), fake().device(0), p, default_arithmetic(), kBudget, &report),
        "")
        << name;
    for (const RelationResult& r : report.results) {
      const bool split = r.relation == kRelateSplit && std::string(name) == "nolsesaid";
      EXPECT_EQ(r.checked, !split) << name << " relation " << r.relation << ": " << r.note;
    }
  }
  RelationReport report;
  EXPECT_NE(
      check_relations(fake(), kernel("lse2lie"), fake().device(0), p, default_arithmetic(), kBudget, &report),
      "");
}

TEST_P(Contracts, RowsBehindTheLastRequestMayBeLostAndNothingElse) {
  const auto replayed = [&](const char* name, bool strided) {
    Problem p = small_problem(GetParam());
    p.strided.out = strided;
    RelationResult result;
    const std::string reason =
        check_graph(fake(), kernel(name), fake().device(0), p, default_arithmetic(), kBudget, result);
    EXPECT_TRUE(result.checked) << name;
    return reason;
  };
  for (const bool strided : {false, true}) {
    EXPECT_THAT(replayed("padding", strided), HasSubstr("must leave alone"));
    EXPECT_EQ(replayed("paddingsaid", strided), "");
    EXPECT_NE(replayed("frozensaid", strided), "");
    for (const char* name : {"headsfirstsaid", "nolsesaid", "lse2said", "leaksaid"})
      EXPECT_EQ(replayed(name, strided), "") << name;
  }
}

TEST_P(Contracts, ShapesOutsideOfThemAreNotReplayed) {
  RelationResult result;
  EXPECT_EQ(check_graph(fake(), kernel("noemptysaid"), fake().device(0), small_problem(GetParam()),
                        default_arithmetic(), kBudget, result),
            "");
  EXPECT_EQ(result.calls, 4);
  EXPECT_THAT(result.note, HasSubstr("padding of length 0: required request 2 of 0 rows and 0 keys"));
}

}  // namespace
}  // namespace assay
