// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as one scenario and as a suite: nothing but InputError may come out, and whatever is
// accepted must survive print and parse unchanged. Expansion is bounded; covering arrays only for axes
// small enough to stay quick. Includes are cut so that no file of the machine is read.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "harness/scenario/suite.hpp"

namespace {

constexpr int kMaxCases = 200;

void check_round_trip(const assay::Scenario& s) {
  const std::string text = assay::print(s);
  const assay::Scenario again = assay::parse_scenario(text);
  if (again == s && assay::print(again) == text) return;
  std::fprintf(stderr, "round trip failed: %s\n", text.c_str());
  std::abort();
}

void try_scenario(std::string_view text) {
  try {
    check_round_trip(assay::parse_scenario(text));
  } catch (const assay::InputError&) {
  }
}

void try_suite(std::string text) {
  for (size_t at; (at = text.find("include")) != std::string::npos;) text[at] = '#';
  // cover= over many axes is slow by nature, not by fault; strength 2 of short lines is covered.
  for (size_t at = 0; (at = text.find("cover=", at)) != std::string::npos; at += 6)
    if (text.size() > 120) text[at] = '#';
  try {
    assay::Suite suite = assay::Suite::from_text(text, {"fuzz", 1, 1});
    for (int i = 0; i < kMaxCases; ++i) {
      const auto c = suite.next();
      if (!c) break;
      check_round_trip(c->scenario);
    }
  } catch (const assay::InputError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_scenario(text);
  try_suite(std::string(text));
  return 0;
}
