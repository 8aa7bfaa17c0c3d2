// SPDX-License-Identifier: Apache-2.0
// Right kernels that declare what is not true: the failure names the declaration under which they are right.
// Wrong kernels stay wrong whatever they might have declared.
#include "harness/check/declarations/redeclared.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <map>
#include <string>

#include "harness/check/testing/fake_library.hpp"
#include "harness/check/testing/judged_step.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "harness/input/contracts.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using testkit::fake;
using testkit::kBudget;
using testkit::small_problem;

const Backend& declared_steps() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_step_faults.so");
  return backend;
}

// The verdict, and what another declaration would have made of it.
struct Told {
  Verdict verdict;
  std::string otherwise;
};
Told told(const Backend& backend, const Problem& problem, const assay_kernel& kernel) {
  Judge judge(problem, kBudget);
  Told t;
  t.verdict = judge.judge(backend, kernel, backend.device(0));
  t.otherwise = judge.otherwise_declared();
  return t;
}
Told told(const Backend& backend, const std::string& line, const std::string& kernel) {
  const assay_kernel* found = backend.find(kernel);
  EXPECT_NE(found, nullptr) << kernel;
  return told(backend, make_problem(parse_scenario(line)), *found);
}

// The kernel with a declaration of somebody else's.
using Declare = std::function<void(assay_arithmetic&)>;
const assay_kernel& declaring(const assay_kernel& right, Declare declare) {
  struct Declared {
    assay_kernel kernel;
    const assay_kernel* right;
    Declare declare;
  };
  static std::list<Declared> all;
  Declared& made = all.emplace_back(Declared{right, &right, std::move(declare)});
  made.kernel.arithmetic = [](const assay_kernel* self, const assay_problem* p, assay_arithmetic* a) {
    const auto& own = *reinterpret_cast<const Declared*>(self);
    if (own.right->arithmetic != nullptr) own.right->arithmetic(own.right, p, a);
    own.declare(*a);
    return static_cast<int>(ASSAY_OK);
  };
  return made.kernel;
}
Told told_declaring(const std::string& line, const std::string& kernel, Declare declare) {
  const assay_kernel* found = testkit::cpu().find(kernel);
  EXPECT_NE(found, nullptr) << kernel;
  return told(testkit::cpu(), make_problem(parse_scenario(line)), declaring(*found, std::move(declare)));
}

TEST(Redeclared, NewKeysOfAStepAsTheyCameOrFromTheCache) {
  const std::string coded = "step h=4/2 d=64 kv=fp8_e4m3:head page=4 batch=2q1s33_2q5s37_1q9 seed=3";
  const struct {
    const char *kernel, *line_more, *says;
  } cases[] = {{"step_says_cache", "", "dense_new_keys were 6 (declared: 0)"},
               {"step_says_dense", "", "dense_new_keys were 0 (declared: 6)"},
               {"step_decode_dense", "", "dense_new_keys were 7 (declared: 6)"}};
  for (const auto& c : cases) {
    const Told t = told(declared_steps(), coded, c.kernel);
    EXPECT_EQ(t.verdict.outcome, Outcome::kWrong) << c.kernel;
    EXPECT_THAT(t.otherwise, HasSubstr(c.says)) << c.kernel << ": " << t.verdict.reason;
  }
  // A layer that shares its cache has nothing dense to be read: the declaration of every class is not true.
  const std::string shared = coded + " write=off";
  EXPECT_EQ(told(declared_steps(), coded, "step_right").otherwise, "");
  const Told t = told_declaring(shared, "step_unified_cpu",
                                [](assay_arithmetic& a) { a.dense_new_keys = ASSAY_REQUEST_ANY; });
  EXPECT_EQ(t.verdict.outcome, Outcome::kWrong);
  EXPECT_THAT(t.otherwise, HasSubstr("dense_new_keys were 0 (declared: 7)")) << t.verdict.reason;
}

TEST(Redeclared, AnLseOfAnotherBaseLayoutOrNone) {
  for (const auto op : {ASSAY_OP_PAGED, ASSAY_OP_PREFILL}) {
    const std::string name = op == ASSAY_OP_PAGED ? "paged_" : "prefill_";
    const struct {
      const char *behaviour, *says;
    } cases[] = {{"lse2", "the contract lse_base_2 were declared"},
                 {"lse2lie", "the contract lse_base_2 were not declared"},
                 {"headsfirst", "the contract lse_heads_first were declared"},
                 {"nolse", "the contract no_lse were declared"}};
    for (const auto& c : cases) {
      const assay_kernel* kernel = fake().find(name + c.behaviour + "_fake");
      ASSERT_NE(kernel, nullptr) << c.behaviour;
      const Told t = told(fake(), small_problem(op), *kernel);
      EXPECT_EQ(t.verdict.outcome, Outcome::kWrong) << c.behaviour;
      EXPECT_THAT(t.otherwise, HasSubstr(c.says)) << c.behaviour << ": " << t.verdict.reason;
    }
  }
}

// Legal kernels of all classes (kernels/faulty/variants.cpp), a word of whose declaration is not true.
const Backend& variants() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_faulty.so");
  return backend;
}

const std::string kLong = "prefill h=4/2 d=64 batch=1q20s400_2q1s300 seed=5";

TEST(Redeclared, OrdersRoundingsAndUnitsThatAreNotAsDeclared) {
  const std::string fp8 = "prefill h=4/2 d=64 q=fp8_e4m3 kv=fp8_e4m3:head batch=1q20s400_2q1s300 seed=5";
  const std::string int8 = "prefill h=4/2 d=64 q=int8:tensor kv=int8:tensor batch=1q20s400_2q1s300 seed=5";
  const std::string coded = "prefill h=4/2 d=64 kv=fp8_e4m3:head batch=1q20s400_2q1s300 seed=5";
  const std::string sinks = "prefill h=4/2 d=64 sinks=on batch=1q20s400_2q1s300 seed=5";
  const std::string odd = "prefill h=4/2 d=96 batch=1q20s400_2q1s300 seed=5";  // its scale is no power of two
  const auto nothing = [](assay_arithmetic& a) { a = default_arithmetic(); };
  const struct {
    std::string line;
    const char* kernel;
    Declare declare;
    const char* says;
  } cases[] = {
      {kLong, "hopper_tile128", [](auto& a) { a.tile_reverse = 0; }, "tile_reverse were 1 (declared: 0)"},
      {kLong, "hopper_tile128", [](auto& a) { a.tile_keys = 64; }, "tile_keys were 128 (declared: 64)"},
      {kLong, "hopper_tile96", [](auto& a) { a.tile_keys = 64; }, "order_declared were 0 (declared: 1)"},
      {kLong, "ampere_rounded_sum", [](auto& a) { a.row_sum_from_rounded_p = 0; },
       "row_sum_from_rounded_p were 1 (declared: 0)"},
      {kLong, "p_toward_zero", [](auto& a) { a.p_truncated = 0; }, "p_truncated were 1 (declared: 0)"},
      {kLong, "p_fp16", [](auto& a) { a.p_format = ASSAY_FP32; }, "p_format were fp16 (declared: fp32)"},
      {kLong, "split4_bf16_partials", [](auto& a) { a.partial_format = ASSAY_FP32; },
       "partial_format were bf16 (declared: fp32)"},
      {coded, "dequant", [](auto& a) { a.dequant_format = 0, a.dequant_replayed = 0; },
       "dequant_format were bf16 and replayed (declared: none)"},
      {odd, "q_prescaled", [](auto& a) { a.q_rounding = 0, a.q_replayed_format = 0; },
       "q_replayed_format were bf16, of Q times"},
      {sinks, "sink_first", [](auto& a) { a.sink_first = 0; }, "sink_first were 1 (declared: 0)"},
      {kLong, "hopper", nothing, "p_format were bf16 (declared: fp32)"},
      {int8, "int8_tile_max", [](auto& a) { a.p_int8_tile_max = 0; }, "p_int8_tile_max were 1 (declared: 0)"},
      {fp8, "fp8_blackwell", [](auto& a) { a.p_offset_log2 = 0; }, "p_offset_log2 were 8 (declared: 0)"},
  };
  for (const auto& c : cases) {
    const assay_kernel* found = variants().find(std::string("prefill_") + c.kernel);
    ASSERT_NE(found, nullptr) << c.kernel;
    const Problem problem = make_problem(parse_scenario(c.line));
    EXPECT_EQ(told(variants(), problem, *found).verdict.outcome, Outcome::kPassed) << c.kernel;
    const Told t = told(variants(), problem, declaring(*found, c.declare));
    EXPECT_EQ(t.verdict.outcome, Outcome::kWrong) << c.kernel << ", " << c.says;
    EXPECT_THAT(t.otherwise, HasSubstr(c.says)) << c.kernel << ": " << t.verdict.reason;
  }
}

// An error that several fields allow for names each: partial results in bf16 bring about no more than a
// coarse tanh does where the cap is large, and who reads of one alone takes it for the cause.
TEST(Redeclared, NamesEveryFieldThatAllowsForTheError) {
  const std::string line = "prefill h=4/2 d=64 cap=30 batch=1q20s400_2q1s300 seed=5";
  const assay_kernel* found = variants().find("prefill_split4_bf16_partials");
  ASSERT_NE(found, nullptr);
  const Problem problem = make_problem(parse_scenario(line));
  EXPECT_EQ(told(variants(), problem, *found).verdict.outcome, Outcome::kPassed);
  const Told t = told(variants(), problem, declaring(*found, [](auto& a) { a.partial_format = ASSAY_FP32; }));
  EXPECT_EQ(t.verdict.outcome, Outcome::kWrong);
  EXPECT_THAT(t.otherwise,
              HasSubstr("partial_format were bf16 (declared: fp32), or if tanh_relative_error were "))
      << t.verdict.reason;
  EXPECT_THAT(t.otherwise, ::testing::Not(HasSubstr("order_declared")));
}

// What is wrong in another way stays so: of the planted faults those alone are called a declaration's that a
// field describes, and one scale of V that is off by less than its rounding, where an order is given up for
// it.
TEST(Redeclared, FaultsStayFaults) {
  const std::string line =
      "paged h=2/1 d=64 window=40 kv=fp8_e4m3:head page=16 batch=1q5s90_1q1s60_1q9s20 seed=3";
  const std::map<std::string, std::string> described = {
      {"paged_weights_truncated", "p_truncated were 1"},
      {"paged_l_of_rounded_p", "row_sum_from_rounded_p were 1"},
      {"paged_partials_in_bf16", "partial_format were bf16"},
      {"paged_partials_in_fp16", "partial_format were fp16"},
      {"paged_lse_base_2", "the contract lse_base_2"},
      {"paged_lse_unwritten", "the contract no_lse"},
      {"paged_v_scale_quarter_ulp", "order_declared were 0"}};
  const Problem problem = make_problem(parse_scenario(line));
  int wrong = 0, turn = 0;
  size_t named = 0;
  for (const assay_kernel* kernel : variants().kernels()) {
    const auto says = described.find(kernel->name);
    if (kernel->op != problem.op || (says == described.end() && ++turn % 4 != 0)) continue;
    const Told t = told(variants(), problem, *kernel);
    if (t.verdict.outcome != Outcome::kWrong) continue;
    ++wrong;
    if (says == described.end()) {
      EXPECT_EQ(t.otherwise, "") << kernel->name << ": " << t.verdict.reason;
    } else {
      EXPECT_THAT(t.otherwise, HasSubstr(says->second)) << kernel->name << ": " << t.verdict.reason;
      ++named;
    }
  }
  EXPECT_GT(wrong, 20);
  EXPECT_EQ(named, described.size());
}

}  // namespace
}  // namespace assay
