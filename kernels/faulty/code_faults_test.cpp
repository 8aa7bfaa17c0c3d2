// SPDX-License-Identifier: Apache-2.0
// Faults of single kinds of codes are killed by the ordinary suites in every format that has the kind, on the
// side where they are planted; and the kernel without them passes all those lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "harness/check/verdict.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/scenario.hpp"
#include "harness/scenario/suite.hpp"
#include "kernels/faulty/faults.hpp"

namespace assay_faulty {
namespace {

using assay::Outcome;

// What the fault is met in: the formats on its sides that have the kind of code. `reached` knows them, asked
// for a problem in which one side alone has the format.
std::set<int32_t> formats_hit(const Row& row, const assay_problem& view) {
  std::set<int32_t> hit;
  const int32_t formats[] = {view.q_format, view.k_format, view.v_format};
  for (int side = 0; side < 3; ++side) {
    if ((row.switches.codes_of >> side & 1) == 0) continue;
    assay_problem alone = view;
    alone.q_format = alone.k_format = alone.v_format = ASSAY_FP32;
    (side == 0 ? alone.q_format : side == 1 ? alone.k_format : alone.v_format) = formats[side];
    if (row.reached(&alone) != 0) hit.insert(formats[side]);
  }
  return hit;
}

TEST(CodeFaults, AreKilledInEveryFormatByTheOrdinarySuites) {
  const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  const assay_device device = backend.device(0);
  // By fault and format: whether a line killed it. A side that lacks the format in all lines is not asked
  // for.
  std::map<std::pair<std::string, int32_t>, bool> killed;
  std::set<int32_t> with_codes, without;
  assay::Suite suite = assay::Suite::open("formats");
  while (const auto line = suite.next()) {
    const assay::Problem p = assay::make_problem(line->scenario);
    const bool codes = p.recipe == assay::InputRecipe::kCodes;
    for (const int32_t format : {p.k_format, p.v_format, p.q_format})
      if (assay::format_is_quantized(format) || format == ASSAY_FP16)
        (codes ? with_codes : without).insert(format);
    if (!codes) continue;
    assay::Judge judge(p, 3e6);
    const assay::ProblemView view(p);
    const std::string op = assay::op_of(p).has_cache ? "paged_" : "prefill_";
    const assay::Verdict right = judge.judge(backend, *backend.find(op + "hopper"), device);
    EXPECT_EQ(right.outcome, Outcome::kPassed) << assay::print(line->scenario) << ": " << right.reason;
    for (const Row& row : rare_faults()) {
      const std::set<int32_t> hit = formats_hit(row, *view.get());
      // One alone, so that it is this format that kills it.
      if (hit.size() != 1 || row.reached(view.get()) == 0) continue;
      bool& dead = killed[{row.name, *hit.begin()}];
      if (dead) continue;
      dead = judge.judge(backend, *backend.find(op + row.name), device).outcome == Outcome::kWrong;
    }
  }
  for (const auto& [what, dead] : killed)
    EXPECT_TRUE(dead) << what.first << " in " << assay::name_of(assay::format_names(), what.second);
  EXPECT_GE(killed.size(), 60u);
  for (const int32_t format : without)
    EXPECT_TRUE(with_codes.contains(format)) << assay::name_of(assay::format_names(), format);
}

// Sums that 16 bits do not hold: of every line of codes whose formats the integer unit multiplies, under each
// scale it takes. Of other inputs sums are small wherever a scale is that of a whole tensor or head.
TEST(CodeFaults, SumsThatSaturateAreKilledByEveryLineOfCodes) {
  const assay::Backend backend = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  const assay_device device = backend.device(0);
  const auto faults = rare_faults();
  const auto row =
      std::find_if(faults.begin(), faults.end(), [](const Row& r) { return r.switches.qk_sums_saturated; });
  ASSERT_NE(row, faults.end());
  std::set<int32_t> scales;
  assay::Suite suite = assay::Suite::open("formats");
  while (const auto line = suite.next()) {
    if (line->scenario.recipe != assay::InputRecipe::kCodes) continue;
    const assay::Problem p = assay::make_problem(line->scenario);
    const assay::ProblemView view(p);
    if (row->reached(view.get()) == 0) continue;
    const std::string op = assay::op_of(p).has_cache ? "paged_" : "prefill_";
    assay::Judge judge(p, 3e6);
    EXPECT_EQ(judge.judge(backend, *backend.find(op + row->name), device).outcome, Outcome::kWrong)
        << assay::print(line->scenario);
    scales.insert(view.get()->q_scale_kind);
  }
  EXPECT_EQ(scales, (std::set<int32_t>{ASSAY_SCALE_TENSOR, ASSAY_SCALE_HEAD, ASSAY_SCALE_TOKEN_HEAD}));
}

}  // namespace
}  // namespace assay_faulty
