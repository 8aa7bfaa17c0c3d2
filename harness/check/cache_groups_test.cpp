// SPDX-License-Identifier: Apache-2.0
// Two groups of a cache, as hybrid models have them: the same requests and lengths, a table, slots and a
// cache of their own each. Both calls are planned before either runs, and run in turns. Pipelines serve both;
// one whose decodes keep the table of the group that came first (metadata handed on whose nested copy
// nobody changed) is wrong in the other.
#include <algorithm>

#include "harness/check/expectations/expectation.hpp"
#include "harness/check/expectations/run_outputs.hpp"
#include "harness/check/session/session.hpp"
#include "harness/check/testing/judged_step.hpp"
#include "harness/input/inputs.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

using testkit::cpu;

class Group {
 public:
  Group(const assay_kernel& kernel, const std::string& line)
      : kernel_(kernel),
        inputs_(build_inputs(make_problem(parse_scenario(line)))),
        session_(cpu(), kernel, inputs_) {}
  const Inputs& inputs() const { return inputs_; }
  CallResult plan() { return session_.plan(); }
  // Why what the run leaves is wrong, or "".
  std::string run() {
    if (const CallResult r = session_.run(); !r.ok()) return r.error;
    if (const Objection damage = session_.damage()) return damage.reason;
    const std::unique_ptr<Expectation> expected = make_expectation(inputs_, 1e7);
    assay_arithmetic arithmetic = default_arithmetic();
    call_arithmetic(cpu(), kernel_, inputs_.view->get(), arithmetic);
    expected->prepare(arithmetic);
    RunOutputs all(inputs_, session_.outputs());
    expected->survey(all);
    if (const Objection wrong = objection_of(all, *expected)) return wrong.reason;
    RunOutputs bounded(inputs_, session_.outputs());
    expected->ask(bounded);
    return objection_of(bounded, *expected).reason;
  }

 private:
  const assay_kernel& kernel_;
  Inputs inputs_;
  Session session_;
};

// What goes wrong in the first group and in the second.
std::pair<std::string, std::string> in_turns(const assay_kernel& kernel, const std::string& line) {
  Group first(kernel, line + " seed=1"), second(kernel, line + " seed=2");
  EXPECT_EQ(first.inputs().problem.kv_lens(), second.inputs().problem.kv_lens());
  EXPECT_NE(first.inputs().problem.pages, second.inputs().problem.pages);
  for (Group* group : {&first, &second})
    if (const CallResult r = group->plan(); !r.ok()) return {r.error, r.error};
  const std::string of_first = first.run();
  return {of_first, second.run()};
}

struct GroupedStep {
  const char *kernel, *line;
};
constexpr GroupedStep kGroupedSteps[] = {
    {"step_aiter_fa_cpu", "step h=4/2 d=64 page=8 batch=2q1s40_1q9s30_1q12"},
    {"step_ixformer_fa_cpu", "step h=4/2 d=64 page=16 batch=2q1s40_1q9s30_1q12"},
    {"step_sglang_fa_cpu", "step h=4/2 d=64 page=8 batch=2q1s40_1q1s90"},
    {"step_aiter_mla_cpu", "step h=16/1 d=96/64 layout=mla page=8 batch=2q1s40_1q1s90"}};

TEST(CacheGroups, EachHasATableOfItsOwn) {
  for (const GroupedStep& c : kGroupedSteps) {
    const auto wrong = in_turns(*cpu().find(c.kernel), c.line);
    EXPECT_EQ(wrong.first, "") << c.kernel;
    EXPECT_EQ(wrong.second, "") << c.kernel;
  }
}

TEST(CacheGroups, ATableOfTheOtherGroupIsWrong) {
  for (const GroupedStep& c : kGroupedSteps) {
    assay_tensor kept{};
    const bool csr = std::string(c.kernel) == "step_aiter_mla_cpu";  // whose stages read lists of tokens
    const assay_kernel* stale = testkit::plant(*cpu().find(c.kernel), "decode", "table_of_the_first_group",
                                               [&kept, csr](assay_problem&, assay_tensors& t) {
                                                 assay_tensor& own = csr ? t.indices : t.block_table;
                                                 if (kept.data == nullptr) kept = testkit::frozen(own);
                                                 own = kept;
                                               });
    const auto wrong = in_turns(*stale, c.line);
    EXPECT_EQ(wrong.first, "") << c.kernel;
    EXPECT_NE(wrong.second, "") << c.kernel;
  }
}

}  // namespace
}  // namespace assay
