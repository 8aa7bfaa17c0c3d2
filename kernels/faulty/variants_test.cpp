// SPDX-License-Identifier: Apache-2.0
// Every legal variant is right by everything the judge knows, on lines that mix all features; exact inputs
// come out bit for bit; a request's bits do not depend on its batch. One test per variant, so they run side
// by side.
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/faulty/model.hpp"

namespace assay_faulty {
namespace {

constexpr double kBudget = 1e9;

const assay::Backend& faulty() {
  static const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  return backend;
}

const assay_kernel& kernel_of(const std::string& variant, int32_t op) {
  const assay_kernel* kernel = faulty().find((op == ASSAY_OP_PAGED ? "paged_" : "prefill_") + variant);
  if (kernel == nullptr) throw std::runtime_error("no kernel of " + variant);
  return *kernel;
}

// Every mask, layout, table, storage, stride, format, scale, head shape, bias and empty row at least once.
const char* const kVariantLines[] = {
    "prefill h=4/2 d=64 batch=1q40_1q9s90_1q0_1q3s0_1q7s4 seed=1",
    "prefill h=6/2 d=48 mask=full batch=1q17s70_1q1s300 input=peaked seed=2",
    "prefill h=4/1 d=96 window=17 strides=q+kv+out batch=1q60_1q20s150 input=cancelling seed=3",
    "prefill h=4/2 d=64 chunk=16 sinks=on batch=1q50s130 seed=4",
    "prefill h=2/1 d=64/32 mask=cross q=fp16 batch=1q9s200_1q5s0 input=ascending seed=5",
    "prefill h=4/4 d=40 cap=30 q=fp32 kv=fp32 batch=1q33s65 seed=6",
    "prefill h=4/2 d=64 alibi=linear window=30/5 mask=full batch=1q40s90 seed=7",
    "prefill h=4/2 d=64 q=int8:token_head kv=int8:token_head/int8:channel batch=1q30s140 seed=8",
    "prefill h=4/2 d=64 q=fp8_e4m3:request_head kv=fp8_e4m3:request_head batch=1q30s140_1q5s20 seed=9",
    "prefill h=2/1 d=64 q=fp8_e5m2:channel kv=fp8_e5m2:channel batch=1q20s90 seed=10",
    "paged h=4/2 d=64 batch=4q1s200_2q9s65_1q0s30_1q2s0 seed=11",
    "paged h=8/1 d=128 page=32 layout=hnd table=csr batch=2q1s500 input=outlier seed=12",
    "paged h=4/2 d=64 page=64 layout=x table=token window=40 batch=2q3s170 seed=13",
    "paged h=6/2 d=64 kv=int8:token_head/bf16 page=32 layout=shuffled strides=scales batch=2q1s200_1q9s45 "
    "seed=14",
    "paged h=4/2 d=64 storage=stacked mask=tree batch=2q8s70_1q3s3 seed=15",
    "paged h=4/2 d=64 storage=interleaved kv=fp8_e4m3:head cap=20 alibi=linear sinks=on batch=3q1s130 "
    "seed=16",
    "paged h=4/2 d=64 alibi=sqrt chunk=32 strides=table batch=2q5s150 input=boundary seed=17",
    "paged h=16/1 d=576/512 layout=mla batch=1q1s130_1q2s40 scale=0.07 seed=18",
    "paged h=4/1 d=96/64 layout=mla kv=fp8_e4m3:tensor batch=1q3s150 seed=19",
    "paged h=4/2 d=64 kv=fp8_e4m3fnuz:tensor/fp8_e5m2fnuz:host window=25 index=swa batch=2q4s190 seed=20",
    "paged h=4/2 d=64 q=int8 kv=int8 page=16 batch=2q1s300_1q6s40 seed=21",
    "paged h=4/2 d=64 q=fp8_e5m2 kv=fp8_e5m2 batch=2q1s260 seed=22",
    "paged h=4/2 d=64 kv=int8:channel q=fp16 out=fp32 batch=2q1s100_1q20s45 seed=23",
    "paged h=4/2 d=64 kv=fp8_e4m3:token_head q=fp8_e4m3:token_head batch=2q2s100p64 seed=24",
    "paged h=4/2 d=64 sinks=on window=0 batch=1q9s4_1q0s6_2q1s70 seed=25",
    "paged h=4/2 d=64 q=fp32 out=fp16 batch=2q1s65_1q20s45 seed=26",
};

// Answers that are representable: any deviation is a fault, whatever the arithmetic.
const char* const kExactLines[] = {
    "prefill h=4/2 d=64 batch=1q64_1q5s260 input=exact seed=31",
    "prefill h=4/2 d=64 window=40 mask=full batch=1q30s200 input=exact seed=32",
    "paged h=4/2 d=64 batch=3q1s300_1q9s65 input=exact seed=33",
    "paged h=4/2 d=64 kv=fp8_e4m3:head table=csr layout=hnd batch=2q1s190 input=exact seed=34",
    "paged h=4/2 d=64 mask=tree page=64 batch=2q7s90 input=exact seed=35",
    "paged h=4/2 d=64 batch=2q9s300 input=incidence seed=36",
    "paged h=4/2 d=64 batch=2q9s300 input=dyadic seed=37",
};

// The same answers from other pages, orders, batches, splits and calls (harness/check/relations).
const char* const kRelatedLines[] = {
    "paged h=4/2 d=64 batch=2q1s130_1q9s65 relate=pages+order+alone+split+strides seed=41",
    ("paged h=4/2 d=64 sinks=on kv=fp8_e4m3:head batch=2q1s200_1q12s90 relate=order+alone+chunked+sink "
     "seed=42"),
    "prefill h=4/2 d=64 batch=1q40s200_1q9s9 relate=order+alone+window+chunked+strides seed=43",
};

class Variants : public ::testing::TestWithParam<std::string> {};

assay::Verdict judged(const std::string& variant, const char* line) {
  const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
  assay::Judge judge(problem, kBudget);
  return judge.judge(faulty(), kernel_of(variant, problem.op), faulty().device(0));
}

TEST_P(Variants, ArePassedByTheJudge) {
  int passed = 0, count = 0;
  for (const char* line : kVariantLines) {
    const assay::Verdict v = judged(GetParam(), line);
    // A coarse arithmetic may leave a case undecided; it may never fail one.
    EXPECT_TRUE(v.outcome == assay::Outcome::kPassed || v.outcome == assay::Outcome::kUntrusted)
        << line << ": " << assay::outcome_name(v.outcome) << " " << v.reason;
    EXPECT_LE(v.o.max_ratio, 1) << line;
    EXPECT_LE(v.lse.max_ratio, 1) << line;
    EXPECT_GT(v.o.max_ratio, 0) << line << ": no error at all is not this arithmetic";
    passed += v.outcome == assay::Outcome::kPassed;
    ++count;
  }
  EXPECT_GE(passed, count * 3 / 4);
}

TEST_P(Variants, GiveExactAnswersExactly) {
  for (const char* line : kExactLines) {
    const assay::Verdict v = judged(GetParam(), line);
    // Rounded Q moves the scores, so the answer binds no longer, and the bounds may be too wide to say
    // anything.
    const bool undecided = GetParam() == "q_prescaled" && v.outcome == assay::Outcome::kUntrusted;
    EXPECT_TRUE(v.outcome == assay::Outcome::kPassed || undecided) << line << ": " << v.reason;
  }
}

TEST_P(Variants, DoNotDependOnTheBatch) {
  for (const char* line : kRelatedLines) {
    const assay::Verdict v = judged(GetParam(), line);
    EXPECT_EQ(v.outcome, assay::Outcome::kPassed) << line << ": " << v.reason;
    EXPECT_EQ(v.batch_invariant, std::optional<bool>(true)) << line;
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (int32_t i = 0; i < legal_variants().count; ++i) all.push_back(legal_variants().rows[i].name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST(VariantTable, DeclaresItsOrderAndKeepsTheLimits) {
  EXPECT_GE(legal_variants().count, 25);
  for (int32_t i = 0; i < legal_variants().count; ++i) {
    const Row& row = legal_variants().rows[i];
    EXPECT_EQ(row.cause, nullptr) << row.name;
    EXPECT_LE(row.arithmetic.tile_keys, kMaxTile) << row.name;
    EXPECT_EQ(row.arithmetic.split_keys % row.arithmetic.tile_keys, 0) << row.name;
    for (int32_t j = 0; j < i; ++j) EXPECT_STRNE(row.name, legal_variants().rows[j].name);
  }
}

}  // namespace
}  // namespace assay_faulty
