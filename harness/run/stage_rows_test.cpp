// SPDX-License-Identifier: Apache-2.0
// Stages in place: a stage alone reads what those before it left and writes its own part only, its work is
// that of its part, and every stage that runs has a row.
#include "harness/run/stage_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/run/stages_in_place.hpp"
#include "harness/run/timed_call.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr double kBudget = 1e9;
constexpr const char* kMixedStep = "step h=4/2 d=64 budget=16 batch=2q1s300_1q9s30_1q12 seed=70";

struct Judged {
  explicit Judged(const std::string& line, const char* name)
      : cpu(Backend::load(ASSAY_BINARY_DIR "/libassay_cpu.so")),
        problem(make_problem(parse_scenario(line))),
        judge(problem, kBudget),
        kernel(*cpu.find(name)) {
    const Verdict v = judge.judge(cpu, kernel, cpu.device(0));
    EXPECT_EQ(v.outcome, Outcome::kPassed) << v.reason;
  }
  const assay_problem* view() const { return judge.inputs().view->get(); }
  Backend cpu;
  Problem problem;
  Judge judge;
  const assay_kernel& kernel;
};

// One run of the place that stop_before() left open.
void run_open(Judged& j, StagesInPlace& stages) {
  TimedCall call(j.cpu, j.cpu.device(0), stages.kernel(), j.view(), j.judge.device_case().tensors(), "hot",
                 nullptr);
  call.sample();
}

TEST(StagesInPlace, AStageRunsAloneOnWhatThoseBeforeItLeft) {
  Judged j(kMixedStep, "step_unified_cpu");
  StagesInPlace stages(j.cpu, j.kernel, j.problem, j.view(), j.judge.device_case().tensors());
  EXPECT_EQ(j.judge.recheck().outcome, Outcome::kPassed);
  stages.stop_before("attend");
  j.judge.device_case().poison_outputs();  // the new keys are gone with O
  run_open(j, stages);
  EXPECT_NE(j.judge.recheck().outcome, Outcome::kPassed) << "the write ran too";
  stages.stop_before("attend");
  run_open(j, stages);
  EXPECT_EQ(j.judge.recheck().outcome, Outcome::kPassed);
  stages.run_whole();
  EXPECT_EQ(j.judge.recheck().outcome, Outcome::kPassed);
}

TEST(StagesInPlace, RunsAndTheirWorkAreThoseOfTheParts) {
  Judged j(kMixedStep, "step_aiter_fa_cpu");
  StagesInPlace stages(j.cpu, j.kernel, j.problem, j.view(), j.judge.device_case().tensors());
  std::vector<std::string> places;
  for (const StagesInPlace::Run& run : stages.runs()) places.push_back(run.place);
  EXPECT_THAT(places,
              ::testing::ElementsAre("write", "split", "prefill", "chunks", "window", "extend", "gather",
                                     "context", "gather", "context", "merge", "merge", "decode", "merge"));
  double pairs = 0;  // of row and key; decodes see all, extends context and themselves
  for (const StagesInPlace::Run& run : stages.runs()) pairs += static_cast<double>(run.work.visible_pairs);
  EXPECT_EQ(pairs, 2 * 300 + 9 * 21 + 45 + 78);
  EXPECT_EQ(pairs, static_cast<double>(work_of(j.problem).visible_pairs));
}

// The host's lengths of these stages are bounds.
TEST(StagesInPlace, LengthsAreThoseInMemory) {
  const char* tree = "step h=4/2 d=64 threshold=8 page=8 mask=tree batch=3q6s70_1q8 seed=25";
  Judged j(tree, "step_sglang_fa_cpu");
  StagesInPlace stages(j.cpu, j.kernel, j.problem, j.view(), j.judge.device_case().tensors());
  int64_t pairs = 0;
  for (const StagesInPlace::Run& run : stages.runs()) pairs += run.work.visible_pairs;
  EXPECT_EQ(pairs, work_of(j.problem).visible_pairs);
}

TEST(StageRows, EveryStageThatRunsHasOne) {
  Judged j(kMixedStep, "step_aiter_fa_cpu");
  std::vector<Row> rows;
  const Say say = [&](const WorkerAnswer& answer) {
    if (const auto* row = std::get_if<RowAnswer>(&answer)) rows.push_back(row->row);
  };
  const Work work = work_of(j.problem);
  StoppingRule rule;
  rule.max_seconds = rule.min_seconds = rule.warmup_seconds = 0.002, rule.min_samples = 1, rule.noise = 1e9;
  const assay_device device = j.cpu.device(0);
  const Limits limits;
  Row checked = row_of_line(kMixedStep, "");
  checked.outcome = "passed", checked.kernel = j.kernel.name;
  time_stages({j.cpu, device, j.problem, work, limits, rule, nullptr, say}, j.kernel, j.judge, "hot",
              checked);
  std::vector<std::string> names;
  for (const Row& row : rows) {
    names.push_back(row.kernel);
    EXPECT_EQ(row.outcome, "passed") << row.kernel << ": " << row.reason;
    EXPECT_EQ(row.mode(), "hot");
    EXPECT_GT(row.time_us, 0) << row.kernel;
    EXPECT_GT(row.gbytes_per_s, 0) << row.kernel;
    EXPECT_EQ(whole_kernel(row.kernel), "step_aiter_fa_cpu");
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("step_aiter_fa_cpu:write", "step_aiter_fa_cpu:split",
                                                     "step_aiter_fa_cpu:prefill", "step_aiter_fa_cpu:chunks",
                                                     "step_aiter_fa_cpu:window", "step_aiter_fa_cpu:extend",
                                                     "step_aiter_fa_cpu:gather", "step_aiter_fa_cpu:context",
                                                     "step_aiter_fa_cpu:merge", "step_aiter_fa_cpu:decode"));
}

TEST(StageRows, TheWholeIsWhatStandsBeforeTheStage) {
  EXPECT_EQ(whole_kernel("a:b"), "a");
  EXPECT_EQ(whole_kernel("a"), "a");
  EXPECT_EQ(whole_kernel("a(s=k@./x:y.so):b"), "a(s=k@./x:y.so)");
  EXPECT_EQ(whole_kernel("a(s=k@./x:y.so)"), "a(s=k@./x:y.so)");
}

}  // namespace
}  // namespace assay
