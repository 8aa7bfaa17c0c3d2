// SPDX-License-Identifier: Apache-2.0
// Steps of the CPU by name: judged, and what they enqueue.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay::testing {

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

}  // namespace assay::testing
