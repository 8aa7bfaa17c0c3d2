// SPDX-License-Identifier: Apache-2.0
// Steps of the CPU by name: judged, and what they enqueue; what is expected of a step in every branch, of
// lines that it does not take, and of wrong stages planted in it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "harness/check/testing/planted_stage.hpp"
#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay::testkit {

inline const Backend& cpu() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/libassay_cpu.so");
  return backend;
}

inline Verdict judge(const Backend& backend, const std::string& line, const std::string& kernel) {
  Judge judge(make_problem(parse_scenario(line)), 1e9);
  const assay_kernel* found = backend.find(kernel);
  EXPECT_NE(found, nullptr) << kernel;
  return judge.judge(backend, *found, backend.device(0));
}

// Lines "stage: kernel, of what".
inline std::string dispatch(const std::string& kernel, const std::string& line) {
  const Problem problem = make_problem(parse_scenario(line));
  const ProblemView view(problem);
  const assay_kernel* found = cpu().find(kernel);
  EXPECT_NE(found, nullptr) << kernel;
  if (found == nullptr) return "";
  char text[4000] = "";
  found->dispatch(found, view.get(), text, sizeof text);
  return text;
}

// The stages alone, with spaces between them.
inline std::string stages_of(const std::string& kernel, const std::string& line) {
  std::string stages;
  const std::string text = dispatch(kernel, line);
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    stages += (stages.empty() ? "" : " ") + text.substr(at, text.find(':', at) - at);
  return stages;
}

// Of each case {line, stages}: every kernel is right on its line, and the last enqueues its stages, in order.
template <class Cases>
void expect_right(const std::vector<const char*>& kernels, const Cases& cases) {
  for (const auto& c : cases) {
    for (const char* kernel : kernels) {
      const Verdict v = judge(cpu(), c.line, kernel);
      EXPECT_EQ(v.outcome, Outcome::kPassed) << c.line << ": " << kernel << ": " << v.reason;
    }
    EXPECT_EQ(stages_of(kernels.back(), c.line), c.stages) << c.line;
  }
}

// Of lines and what the reason of a refusal says.
inline void expect_refused(const char* kernel,
                           const std::vector<std::pair<std::string, const char*>>& refusals) {
  for (const auto& [line, why] : refusals) {
    const Verdict v = judge(cpu(), line, kernel);
    EXPECT_EQ(v.outcome, Outcome::kUnsupported) << line;
    EXPECT_THAT(v.reason, ::testing::HasSubstr(why)) << line;
  }
}

// A wrong kernel, and the line on which it shows.
struct KernelFault {
  const char *kernel, *name;
  std::string line;
  Spoil spoil;
};
inline void expect_rejected(const std::vector<KernelFault>& faults) {
  for (const KernelFault& f : faults) {
    Judge judge(make_problem(parse_scenario(f.line)), 1e9);
    const Verdict v = judge.judge(cpu(), *spoilt(*cpu().find(f.kernel), f.name, f.spoil), cpu().device(0));
    EXPECT_EQ(v.outcome, Outcome::kWrong) << f.name << ": " << v.reason;
  }
}

// A wrong stage, and the line on which it shows.
struct StageFault {
  const char *stage, *name;
  std::string line;
  Spoil spoil;
};
inline void expect_rejected(const char* kernel, const std::vector<StageFault>& faults) {
  for (const StageFault& f : faults) {
    const assay_kernel* planted = plant(*cpu().find(kernel), f.stage, f.name, f.spoil);
    ASSERT_NE(planted, nullptr);
    Judge judge(make_problem(parse_scenario(f.line)), 1e9);
    const Verdict v = judge.judge(cpu(), *planted, cpu().device(0));
    EXPECT_EQ(v.outcome, Outcome::kWrong) << f.name << ": " << v.reason;
  }
}

}  // namespace assay::testkit
