// SPDX-License-Identifier: Apache-2.0
// What is planted is found whatever the kernel's contract leaves out: the same faults with no LSE, with one
// in base 2, heads first, and over finite unused memory. Kernels of the catalogue behind a door that does it.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/faulty/model.hpp"

namespace assay_faulty {
namespace {

using assay::Verdict;

decltype(assay_kernel::run) inner = nullptr;

// Its LSE goes nowhere.
int run_without_lse(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                    assay_plan* plan, void* stream, char* error, size_t size) {
  std::vector<float> scratch(static_cast<size_t>(p->total_q) * p->heads_q + 1);
  assay_tensors with = *t;
  with.lse = {scratch.data(), ASSAY_FP32, 2, {p->total_q, p->heads_q}, {p->heads_q, 1}, ASSAY_ROLE_OUT};
  return inner(self, p, &with, plan, stream, error, size);
}

int run_in_base_2(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                  void* stream, char* error, size_t size) {
  const int status = inner(self, p, t, plan, stream, error, size);
  auto* lse = static_cast<float*>(t->lse.data);
  for (int64_t row = 0; row < p->total_q; ++row)
    for (int64_t head = 0; head < p->heads_q; ++head)
      lse[row * t->lse.stride[0] + head * t->lse.stride[1]] *= 1.44269504f;
  return status;
}

struct Contract {
  uint32_t bits;
  decltype(assay_kernel::run) run;  // null: as it is
};
constexpr Contract kContracts[] = {{ASSAY_CONTRACT_NO_LSE, run_without_lse},
                                   {ASSAY_CONTRACT_LSE_BASE_2, run_in_base_2},
                                   {ASSAY_CONTRACT_LSE_HEADS_FIRST, nullptr},
                                   {ASSAY_CONTRACT_FINITE_UNUSED, nullptr}};

// Of the checks: what only shows in the LSE, or in unused memory, is what a contract gives up.
bool of_lse(const Verdict& v) { return v.check.starts_with("lse") || v.check.starts_with("aggregate lse"); }
bool of_memory(const Verdict& v) {
  return v.check == "memory" || v.check == "finite" || v.check == "unwritten";
}

TEST(FaultContracts, LeaveTheFaultsWhereTheyAre) {
  constexpr int kEvery = 5;
  const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  const assay_device device = backend.device(0);
  int found = 0, by_lse = 0;
  for (const char* line : {"paged h=4/2 d=64 page=16 batch=2q1s130_1q20s90_1q1s1 seed=1",
                           "paged h=4/2 d=64 window=63 kv=int8:token_head batch=1q1s129_1q5s200 seed=3"}) {
    assay::Judge judge(assay::make_problem(assay::parse_scenario(line)), 1e9);
    for (int32_t i = 0; i < planted_faults().count; i += kEvery) {
      const Row& row = planted_faults().rows[i];
      const assay_kernel* kernel = backend.find(std::string("paged_") + row.name);
      // Those of state and of addresses out of range end the process or depend on the number of the call.
      if (kernel == nullptr || row.stage == std::string("state")) continue;
      const Verdict plain = judge.judge(backend, *kernel, device);
      if (plain.outcome != assay::Outcome::kWrong) continue;
      ++found;
      for (const Contract& contract : kContracts) {
        assay_kernel other = *kernel;
        other.contracts = contract.bits;
        inner = kernel->run;
        if (contract.run != nullptr) other.run = contract.run;
        const Verdict v = judge.judge(backend, other, device);
        if (contract.bits == ASSAY_CONTRACT_NO_LSE && of_lse(plain)) {
          ++by_lse;
          continue;
        }
        if (contract.bits == ASSAY_CONTRACT_FINITE_UNUSED && of_memory(plain)) continue;
        EXPECT_EQ(v.outcome, assay::Outcome::kWrong)
            << row.name << " (" << plain.check << ") under contract " << contract.bits << " on " << line;
      }
    }
  }
  EXPECT_GT(found, 20);
  EXPECT_LT(by_lse, found);
}

TEST(FaultContracts, ARightKernelPassesUnderEach) {
  const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  assay::Judge judge(
      assay::make_problem(assay::parse_scenario("paged h=4/2 d=64 batch=2q1s130_1q20s90_3q3s5 seed=1")), 1e9);
  int passed = 0;
  for (int32_t i = 0; i < legal_variants().count && i < 40; i += 4) {
    const assay_kernel* kernel = backend.find(std::string("paged_") + legal_variants().rows[i].name);
    if (kernel == nullptr) continue;
    for (const Contract& contract : kContracts) {
      assay_kernel other = *kernel;
      other.contracts = contract.bits;
      inner = kernel->run;
      if (contract.run != nullptr) other.run = contract.run;
      const Verdict v = judge.judge(backend, other, backend.device(0));
      EXPECT_EQ(v.outcome, assay::Outcome::kPassed)
          << kernel->name << " " << contract.bits << ": " << v.reason;
      passed += v.outcome == assay::Outcome::kPassed;
    }
  }
  EXPECT_GT(passed, 20);
}

}  // namespace
}  // namespace assay_faulty
