// SPDX-License-Identifier: Apache-2.0
// The kernel of this folder is right without a fault, on the line of every fault and on lines that mix
// features; with a fault the judge finds its line wrong. Names and museum ids are what they claim.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "harness/check/verdict.hpp"
#include "harness/explain/causes.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/faulty/unseen/accepted.hpp"
#include "kernels/faulty/unseen/faults.hpp"

namespace assay_unseen {
namespace {

constexpr double kBudget = 1e9;

const assay::Backend& unseen() {
  static const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_unseen.so");
  return backend;
}

assay::Verdict judged(const std::string& name, const std::string& line) {
  const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
  const std::string kernel = (problem.op == ASSAY_OP_PAGED ? "paged_" : "prefill_") + name;
  const assay_kernel* found = unseen().find(kernel);
  if (found == nullptr) throw std::runtime_error("no kernel " + kernel);
  return assay::Judge(problem, kBudget).judge(unseen(), *found, unseen().device(0));
}

TEST(Unseen, WithoutAFaultTheKernelIsRight) {
  for (const Fault& fault : kFaults) {
    const assay::Verdict v = judged("plain", fault.line);
    EXPECT_EQ(v.outcome, assay::Outcome::kPassed) << fault.line << ": " << v.reason;
  }
  for (const char* line :
       {"paged h=4/2 d=64 kv=int8:token_head/bf16 page=32 layout=shuffled batch=2q1s200_1q9s45",
        "paged h=4/2 d=64 storage=interleaved kv=fp8_e4m3:head cap=20 alibi=linear sinks=on "
        "batch=3q1s130",
        "paged h=16/1 d=96/64 layout=mla table=token batch=1q1s130_1q2s40_1q0s9_1q3s0",
        "prefill h=4/2 d=64 q=int8:token_head kv=int8:token_head/int8:channel batch=1q30s140",
        "prefill h=4/2 d=64 mask=tree sinks=on window=20 batch=3q8s9_1q33s64"}) {
    const assay::Verdict v = judged("plain", line);
    EXPECT_EQ(v.outcome, assay::Outcome::kPassed) << line << ": " << v.reason;
  }
}

TEST(Unseen, EveryFaultIsWrongOnItsLine) {
  for (const Fault& fault : kFaults) {
    const assay::Verdict v = judged(fault.name, fault.line);
    EXPECT_EQ(v.outcome, assay::Outcome::kWrong) << fault.name << ": " << assay::outcome_name(v.outcome);
  }
}

TEST(Unseen, ThereAreAHundredAndTheirNamesAndSourcesAreSpelled) {
  EXPECT_EQ(kFaultCount, 100);
  const std::set<std::string> stages = {"metadata", "addressing", "dequant", "mask", "scores",
                                        "softmax",  "merge",      "output",  "state"};
  std::set<std::string> names, truths;
  for (const Fault& fault : kFaults) {
    EXPECT_TRUE(std::regex_match(fault.name, std::regex("[a-z][a-z0-9_]*"))) << fault.name;
    EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
    EXPECT_TRUE(truths.insert(fault.truth).second) << fault.name;
    EXPECT_TRUE(stages.contains(fault.stage)) << fault.name;
    std::istringstream ids(fault.museum);
    for (std::string id; ids >> id;)
      EXPECT_TRUE(std::regex_match(id, std::regex("[A-Z]{2}-[0-9]{2}|T[0-9]{2}")))
          << fault.name << ": " << id;
  }
}

TEST(Unseen, EveryAcceptedCauseExists) {
  int none = 0;
  for (const Fault& fault : kFaults) {
    const char* causes = accepted_causes(fault.name);
    ASSERT_NE(causes, nullptr) << fault.name;
    none += std::string(causes) == "none";
    std::istringstream names(causes);
    for (std::string name; names >> name;)
      EXPECT_TRUE(name == "none" || assay::find_cause(name)) << fault.name << ": " << name;
  }
  EXPECT_GE(none, 15) << "too few faults that explain has no cause for, to see whether it says so";
}

}  // namespace
}  // namespace assay_unseen
