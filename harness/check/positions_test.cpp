// SPDX-License-Identifier: Apache-2.0
// Operands first_key and positions from a line to a verdict: the naive CPU kernel, which knows them, passes;
// the same kernel blind to either is wrong; every kernel of every library knows them or refuses, none ignores
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

const char* const kLines[] = {
    "prefill h=4/2 d=64 first=7 chunk=16 batch=1q33s40_2q5",
    "paged h=4/2 d=64 first=drawn window=20 alibi=linear batch=2q9s40_1q1s65 seed=1",
    "paged h=4/2 d=64 first=5000 alibi=sqrt positions=5100 mask=full window=110/0 batch=3q5s64 seed=2",
    "prefill h=4/2 d=64 positions=drawn window=9 batch=2q9s65_1q40s33 seed=3",
    "paged h=4/2 d=64 mask=full positions=drawn window=9/3 cap=20 sinks=on batch=2q9s65 seed=4",
    "paged h=4/2 d=64 mask=tree positions=depth window=3 alibi=linear batch=2q8s72_1q33s64 seed=5",
    "prefill h=4/2 d=64 mask=tree first=100 positions=drawn window=20/2 alibi=sqrt batch=2q8s72 seed=6",
    "paged h=4/2 d=64 first=drawn positions=drawn mask=full window=9/9 relate=pages+order+alone+strides "
    "batch=2q5s40_1q1s65 seed=7",
};

std::string library(const char* name) { return std::string(ASSAY_BINARY_DIR "/") += name; }

Verdict verdict(const std::string& line, const Backend& backend, const assay_kernel& kernel) {
  Judge judge(make_problem(parse_scenario(line)), 1e9);
  return judge.judge(backend, kernel, backend.device(0));
}

const assay_kernel& naive(const Backend& backend, const std::string& line) {
  return *backend.find(line.starts_with("paged") ? "paged_naive_cpu" : "prefill_naive_cpu");
}

TEST(Positions, AreWhatTheReferenceTakesThemFor) {
  const Backend cpu = Backend::load(library("libassay_cpu.so"));
  for (const char* line : kLines) {
    const Verdict v = verdict(line, cpu, naive(cpu, line));
    EXPECT_EQ(v.outcome, Outcome::kPassed) << line << ": " << v.reason;
  }
  const Verdict parts = verdict("decode_splitkv h=4/2 d=64 first=drawn window=30 alibi=linear batch=3q1s100",
                                cpu, *cpu.find("decode_splitkv_cpu"));
  EXPECT_EQ(parts.outcome, Outcome::kPassed) << parts.reason;
}

// What a kernel does that looks at one of the two only, or at none.
const assay_kernel* seeing = nullptr;
bool no_first_key = false, no_positions = false;
int blind(const assay_kernel*, const assay_problem* given, const assay_tensors* t, assay_plan* plan,
          void* stream, char* error, size_t size) {
  assay_problem p = *given;
  if (no_first_key) p.first_key = nullptr;
  if (no_positions) p.positions = nullptr;
  return seeing->run(seeing, &p, t, plan, stream, error, size);
}

TEST(Positions, AKernelThatIgnoresThemIsWrong) {
  const Backend cpu = Backend::load(library("libassay_cpu.so"));
  for (const char* line : kLines) {
    seeing = &naive(cpu, line);
    assay_kernel kernel = *seeing;
    kernel.run = blind;
    const Problem p = make_problem(parse_scenario(line));
    // Rows move with the keys: only chunks tell where the first one stands.
    no_first_key = !p.first_key.empty() && (p.chunk > 0 || !p.positions.empty());
    no_positions = false;
    if (no_first_key) {
      EXPECT_EQ(verdict(line, cpu, kernel).outcome, Outcome::kWrong) << line;
    }
    no_first_key = false, no_positions = !p.positions.empty();
    if (no_positions) {
      EXPECT_EQ(verdict(line, cpu, kernel).outcome, Outcome::kWrong) << line;
    }
  }
}

class EveryKernel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryKernel, KnowsThemOrRefuses) {
  if (!std::filesystem::exists(library(GetParam())))
    GTEST_SKIP() << GetParam() << " is not part of this build";
  const Backend backend = Backend::load(library(GetParam()));
  const char* const lines[] = {
      kLines[0], kLines[3], "paged h=4/2 d=64 first=7 chunk=16 batch=1q33s40_2q5",     kLines[4],
      kLines[5], kLines[6], "decode_splitkv h=4/2 d=64 first=7 chunk=16 batch=2q1s100"};
  int refused = 0, passed = 0;
  for (const char* line : lines) {
    const Problem problem = make_problem(parse_scenario(line));
    const ProblemView view(problem);
    for (const assay_kernel* kernel : backend.kernels()) {
      if (kernel->op != problem.op) continue;
      const CallResult r = call_supports(*kernel, view.get(), nullptr, backend.device(0));
      if (r.ok()) {
        const Verdict v = verdict(line, backend, *kernel);
        EXPECT_EQ(v.outcome, Outcome::kPassed) << kernel->name << " on " << line << ": " << v.reason;
        ++passed;
      } else {
        EXPECT_THAT(r.error, HasSubstr("missing")) << kernel->name;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused + passed, 0);
}

INSTANTIATE_TEST_SUITE_P(Libraries, EveryKernel,
                         ::testing::Values("libassay_cpu.so", "testing/libassay_fake.so",
                                           "testing/libassay_data_op_faults.so", "emulator/libassay_emu32.so",
                                           "faulty/libassay_faulty.so"));

}  // namespace
}  // namespace assay
