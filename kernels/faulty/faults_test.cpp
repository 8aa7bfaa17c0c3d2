// SPDX-License-Identifier: Apache-2.0
// Every planted fault against the same kernel without it, byte for byte (O, LSE, guards, inputs, status): it
// differs on some line that it claims to reach, and nowhere that it does not claim. One test per stage.
#include "kernels/faulty/faults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "kernels/faulty/testing/case_run.hpp"

namespace assay_faulty {
namespace {

// Small lines, so chosen that every fault is reached by one and missed by another where it can be missed.
const char* const kLines[] = {
    "paged h=4/2 d=64 batch=3q1s130_1q20s90_1q1s1_2q1s300 seed=1",
    "prefill h=4/2 d=64 batch=1q20s45_1q33s200_1q3 seed=2",
    "paged h=4/2 d=64 window=63 batch=2q1s129_1q5s200_1q1s40 seed=3",
    "prefill h=4/2 d=64 mask=full window=15/7 batch=1q20s45_1q5s130 seed=4",
    "paged h=4/2 d=64 chunk=64 page=16 batch=1q1s127_1q1s128_1q1s129_1q40s150 seed=5",
    "paged h=4/2 d=64 mask=tree page=16 batch=2q8s72_1q8s100_1q5s50 seed=6",
    "prefill h=6/2 d=64 mask=cross batch=1q7s30_1q4s90 seed=7",
    "paged h=4/2 d=64 mask=full batch=2q4s100_1q1s64 seed=8",
    "paged h=4/2 d=64 index=swa window=31 page=16 batch=3q1s129_1q20s90 seed=9",
    "paged h=7/1 d=64 batch=2q5s300_1q1s70 seed=10",
    "paged h=14/2 d=64 batch=2q5s300 seed=11",
    "paged h=2/1 d=64 batch=256q1s3_4q1s20 seed=12",
    "paged h=2/1 d=24/40 batch=1q5s90_1q1s20 seed=13",
    "prefill h=4/2 d=128/64 batch=1q9s40_1q3s300 seed=14",
    "paged h=4/1 d=64/48 layout=mla batch=2q1s65_1q9s30 seed=15",
    "paged h=4/2 d=64 page=528 batch=1q1s600_1q1s1100 seed=16",
    "paged h=4/2 d=64 table=csr page=16 batch=2q1s33_1q1s47_1q9s20 seed=17",
    "paged h=4/2 d=64 table=token page=16 strides=q+kv+out+table batch=2q1s70_1q9s20 seed=18",
    "paged h=4/2 d=64 layout=hnd storage=interleaved page=16 batch=2q1s70_1q9s20 seed=19",
    "prefill h=4/2 d=64 strides=q+kv+out batch=1q9s70_1q20 seed=20",
    "paged h=4/2 d=64 kv=fp8_e4m3:head q=fp8_e4m3:head batch=2q1s200_1q9s90 seed=21",
    "paged h=4/2 d=64 kv=fp8_e4m3:request_head q=fp8_e4m3:request_head batch=2q1s200_1q9s90 seed=22",
    "paged h=4/2 d=64 kv=int8:token_head q=int8:token_head strides=scales batch=2q1s200_1q9s90 seed=23",
    "paged h=4/2 d=64 kv=int8:channel batch=2q1s200_1q9s90 seed=24",
    "paged h=4/2 d=64 q=int8:tensor kv=int8:tensor input=ascending batch=2q1s200_1q9s90 seed=25",
    ("prefill h=4/2 d=64 q=fp8_e4m3:tensor kv=fp8_e4m3:tensor input=ascending scale=0.02 batch=1q9s600 "
     "seed=26"),
    "paged h=4/2 d=64 kv=fp8_e4m3fnuz:head batch=2q1s100_1q9s90 seed=27",
    "paged h=4/2 d=64 cap=5 scale=0.3 batch=2q1s100_1q9s90 seed=28",
    "paged h=4/2 d=64 cap=0.5 scale=4 batch=2q1s90_1q5s40 seed=29",
    "paged h=4/2 d=64 alibi=linear batch=2q1s100_1q9s90 seed=30",
    "prefill h=4/2 d=64 alibi=sqrt batch=1q9s70_1q20 seed=31",
    "paged h=4/2 d=64 sinks=on batch=2q1s300_1q9s90 seed=32",
    "prefill h=4/2 d=64 sinks=on batch=1q9s70_1q20 seed=33",
    "paged h=4/2 d=80 batch=2q1s100_1q9s90 seed=34",
    "paged h=4/2 d=64 batch=1q3s0_1q9s4_1q1s70_1q0_1q5s100 seed=35",
    "paged h=12/4 d=64 batch=40q1s300 seed=36",
    "prefill h=4/2 d=64 input=ascending batch=1q9s300 seed=37",
    "paged h=4/2 d=64 out=fp32 scale=0.2 batch=2q1s300_1q9s90 seed=38",
    "paged h=4/2 d=64 q=fp16 kv=fp16 batch=2q1s200_1q9s90 seed=39",
    "paged h=4/2 d=64 page=1 batch=2q1s100_1q9s90 seed=40",
    // beyond the boundaries of faults_boundary.cpp
    "prefill h=2/1 d=16 batch=1q530s540 seed=41",
    "paged h=1 d=16 page=256 batch=1q1s33000 seed=42",
    "paged h=1 d=16 batch=1030q1s3 seed=43",
    "paged h=2/1 d=16 batch=1q1s70_70q1s90 seed=44",
    "paged h=144/8 d=16 batch=2q1s40 seed=45",
    "paged h=2/1 d=16 page=1k batch=1q1s2100 seed=46",
    "paged h=12/4 d=32 alibi=linear batch=2q1s90_1q5s40 seed=47",
    "prefill h=2/1 d=32 window=20/3 batch=1q40s60 seed=48",
    "paged h=2/1 d=192 kv=int8:channel batch=2q1s90 seed=49",
    "paged h=1 d=16 page=256 window=100 batch=1q1s8300 seed=50",
    "paged h=72/8 d=16 sinks=on batch=2q1s40 seed=51",
    "paged h=34/17 d=16 kv=fp8_e4m3:head batch=2q1s40 seed=52",
    "paged h=2 d=16 kv=fp8_e4m3:request_head batch=270q1s5 seed=53",
    "prefill h=1 d=16 mask=tree batch=1q130s140 seed=54",
    "paged h=1 d=16 page=64 cap=1 alibi=linear batch=1q1s4200 seed=55",
    "paged h=2/1 d=16 page=7 batch=2q1s40 seed=56",
    // on the ways of faults_paths.cpp, and codes of every kind
    "paged h=4/2 d=64 kv=fp8_e4m3:head window=31 alibi=linear cap=5 sinks=on batch=2q1s100_1q9s90 seed=57",
    "paged h=4/2 d=64 table=csr page=16 window=21 batch=2q1s100_1q9s90 seed=58",
    "paged h=4/1 d=64/48 layout=mla mask=tree kv=int8:token_head scale=0.3 batch=1q8s72_1q5s50 seed=59",
    "prefill h=4/2 d=64 q=fp16 kv=fp16 window=70 batch=1q9s200 seed=60",
    "paged h=4/1 d=64 q=fp8_e4m3:head kv=fp8_e4m3:head batch=1q1s1_1q5s40 seed=61",
    "paged h=4/2 d=64 layout=hnd kv=int8:token_head batch=2q1s100_1q9s90 seed=62",
    "paged h=4/2 d=64 chunk=16 sinks=on batch=2q1s100_1q9s90 seed=63",
    "paged h=4/2 d=64 kv=fp8_e4m3 input=codes batch=2q1s40_1q9s30_1q1s50 seed=64",
    "prefill h=4/2 d=64 q=fp16 kv=fp16 input=codes batch=1q9s40_1q5s30_1q4s50 seed=65",
    "paged h=4/2 d=64 input=steep batch=1q1s300 seed=66",
};

struct Case {
  explicit Case(const char* text) : line(text), run(line) {}
  std::string line;
  CaseRun run;
  std::vector<std::pair<Arithmetic, CaseRun::Left>> right;

  const CaseRun::Left& without_fault(const Row& row) {
    for (const auto& [arithmetic, left] : right)
      if (std::memcmp(&arithmetic, &row.arithmetic, sizeof arithmetic) == 0) return left;
    Row good = row;
    good.switches = Switches{};
    return right.emplace_back(row.arithmetic, run.run(good)).second;
  }
  bool serves(const Row& row) const { return (row.ops & (run.problem()->op == ASSAY_OP_PAGED ? 2 : 1)) != 0; }
  bool reached_by(const Row& row) const { return row.reached(run.problem()) != 0; }
  // In the first call or, for what depends on the number of the call, in the second.
  bool differs(const Row& row) {
    State state;
    if (!(run.run(row, state) == without_fault(row))) return true;
    return row.stage == std::string("state") && !(run.run(row, state) == without_fault(row));
  }
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  if (all.empty()) {
    all.reserve(std::size(kLines));
    for (const char* line : kLines) all.emplace_back(line);
  }
  return all;
}

bool needs_an_earlier_call(const Row& row) {
  const Switches& s = row.switches;
  return s.plan_from_first_call || s.scale_from_first_call || s.softcap_from_first_call ||
         s.mask_from_first_call || s.strides_from_first_call;
}

// Exchanging keys that all rows see changes the order of additions: other bits, nothing wrong. Its control
// and that of the position bias differ in bits wherever they act.
bool may_differ_unreached(const Row& row) {
  return row.equivalent || row.switches.page_swapped != Pick::kNone;
}

class FaultStage : public ::testing::TestWithParam<std::string> {};

TEST_P(FaultStage, DiffersWhereItIsReachedAndNowhereElse) {
  constexpr int kMissesLookedAt = 3;
  int looked_at = 0;
  for (int32_t i = 0; i < planted_faults().count; ++i) {
    const Row& row = planted_faults().rows[i];
    if (row.stage != GetParam() || needs_an_earlier_call(row)) continue;
    ++looked_at;
    std::string shown;
    int misses = 0;
    for (size_t n = 0; n < cases().size(); ++n) {
      Case& c = cases()[(n + static_cast<size_t>(i)) % cases().size()];
      if (!c.serves(row)) continue;
      ASSERT_EQ(c.without_fault(row).status, ASSAY_OK) << c.line << ": " << c.without_fault(row).error;
      if (c.reached_by(row)) {
        if (shown.empty() && c.differs(row)) shown = c.line;
      } else if (misses < kMissesLookedAt && !may_differ_unreached(row)) {
        ++misses;
        EXPECT_FALSE(c.differs(row)) << row.name << " acts on a line that it does not claim: " << c.line;
      }
    }
    EXPECT_FALSE(shown.empty()) << row.name << " changes nothing on any line that it claims";
  }
  EXPECT_GT(looked_at, 0);
}

INSTANTIATE_TEST_SUITE_P(All, FaultStage,
                         ::testing::Values("metadata", "mask", "addressing", "dequant", "scores", "softmax",
                                           "values", "merge", "output", "state"),
                         [](const auto& info) { return info.param; });

const Row& fault(const std::string& name) {
  for (int32_t i = 0; i < planted_faults().count; ++i)
    if (planted_faults().rows[i].name == name) return planted_faults().rows[i];
  throw std::runtime_error("no fault " + name);
}

// Right in a fresh process, wrong after a call that differs in what is kept, right after an equal one.
void expect_kept(const char* name, const char* first, const char* second) {
  const Row& row = fault(name);
  Case one(first), two(second);
  State fresh, used, same;
  EXPECT_TRUE(two.run.run(row, fresh) == two.without_fault(row)) << name;
  EXPECT_TRUE(two.run.run(row, same) == two.run.run(row, same)) << name;
  one.run.run(row, used);
  EXPECT_FALSE(two.run.run(row, used) == two.without_fault(row)) << name << " after " << first;
}

TEST(FaultState, FirstCallIsKept) {
  expect_kept("lengths_of_first_call", "paged h=2/1 d=64 batch=2q1s40 seed=1",
              "paged h=2/1 d=64 batch=2q1s90 seed=2");
  expect_kept("scale_of_first_call", "prefill h=2/1 d=64 scale=1 batch=1q9 seed=1",
              "prefill h=2/1 d=64 batch=1q9 seed=2");
  expect_kept("cap_of_first_call", "prefill h=2/1 d=64 cap=1 batch=1q9 seed=1",
              "prefill h=2/1 d=64 cap=5 batch=1q9 seed=2");
  expect_kept("mask_of_first_call", "prefill h=2/1 d=64 mask=full batch=1q9 seed=1",
              "prefill h=2/1 d=64 batch=1q9 seed=2");
  expect_kept("strides_of_first_call", "prefill h=2/1 d=64 batch=1q9 seed=1",
              "prefill h=2/1 d=64 strides=q batch=1q9 seed=2");
}

// Faults of memory, each by what it leaves behind.
TEST(FaultMemory, GuardAndInputAreWrittenBesideTheOutputs) {
  const Row &guard = fault("guard_written"), &input = fault("input_written");
  CaseRun run("prefill h=2/1 d=64 batch=1q9 seed=1");
  const auto payload = [&](assay::Operand operand) { return static_cast<int>(operand); };
  const auto o = payload(assay::Operand::kO), q = payload(assay::Operand::kQ);
  const CaseRun::Left wrote = run.run(guard), changed = run.run(input);
  EXPECT_NE(assay::broken_guard(wrote.bytes[o].data(), run.inputs().buffers[o].bytes()), INT64_MAX);
  EXPECT_EQ(assay::broken_guard(changed.bytes[o].data(), run.inputs().buffers[o].bytes()), INT64_MAX);
  EXPECT_NE(wrote.bytes[q], changed.bytes[q]);
}

TEST(FaultMemory, WhatNoKeyOccupiesShowsUnderNaNOnly) {
  for (const char* name : {"tail_slots_read", "freed_pages_read"}) {
    const Row& row = fault(name);
    CaseRun run("paged h=2/1 d=64 index=swa window=31 page=16 batch=3q1s129 seed=9");
    ASSERT_TRUE(row.reached(run.problem())) << name;
    EXPECT_FALSE(run.run(row) == run.run(healthy(row))) << name;
    run.repoison(assay::Poison::kLow);
    EXPECT_TRUE(run.run(row) == run.run(healthy(row))) << name;
  }
}

TEST(FaultMemory, AWildFetchIsAStatusNotACrash) {
  const Row& row = fault("table_overrun");
  CaseRun run("paged h=2/1 d=64 page=16 batch=1q1s20_1q1s100 seed=3");
  const CaseRun::Left left = run.run(row);
  EXPECT_EQ(left.status, ASSAY_FAILED);
  EXPECT_THAT(left.error, ::testing::HasSubstr("request 0 fetches a page behind its last one"));
}

// A control is right by construction: the judge accepts it where it is reached (mutants campaigns), and it is
// not the healthy kernel in disguise.
TEST(FaultControls, DifferInBitsOnly) {
  for (const char* name : {"page_swapped_whole", "alibi_shift_hidden"}) {
    const Row& row = fault(name);
    EXPECT_TRUE(row.equivalent);
    int differing = 0;
    for (Case& c : cases())
      if (c.serves(row) && c.reached_by(row)) differing += c.differs(row);
    EXPECT_GT(differing, 0) << name;
  }
}

}  // namespace
}  // namespace assay_faulty
