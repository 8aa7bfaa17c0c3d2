// SPDX-License-Identifier: Apache-2.0
// Drawn variants declare possible arithmetics, differ, stay what they are, and are called right on lines that
// mix features.
#include "kernels/faulty/drawn.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "harness/check/expectations/reasons.hpp"
#include "harness/check/verdict.hpp"
#include "harness/run/arithmetic.hpp"
#include "harness/scenario/scenario.hpp"
#include "kernels/faulty/testing/case_run.hpp"

namespace assay_faulty {
namespace {

const char* const kDrawnLines[] = {
    "paged h=4/2 d=64 batch=2q1s90_1q7s20 seed=1",
    "prefill h=4/2 d=48 q=fp8_e4m3 kv=fp8_e4m3 sinks=on batch=1q9s70 seed=2",
    "paged h=2 d=32 q=int8:token_head kv=int8:head cap=20 batch=2q3s40 seed=3",
    "prefill h=3 d=40 q=fp32 kv=fp16 out=fp32 alibi=linear batch=1q20 seed=4",
    "paged h=4/1 d=64 kv=int8:channel/int8:token_head q=fp16 batch=3q1s33 seed=5"};

TEST(Drawn, DeclarePossibleArithmeticsAllDifferent) {
  std::set<std::string> seen;
  for (const char* line : kDrawnLines) {
    const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
    const assay::ProblemView view(problem);
    for (int32_t i = 0; i < kDrawnVariants; ++i) {
      const assay_arithmetic d = declared_arithmetic(drawn_arithmetic(i), *view.get());
      ASSERT_EQ(assay::impossible_arithmetic(d), "") << "drawn_" << i << " " << line;
      if (line == kDrawnLines[0]) seen.insert(std::string(reinterpret_cast<const char*>(&d), sizeof d));
    }
  }
  EXPECT_GT(seen.size(), kDrawnVariants * 99u / 100);
}

TEST(Drawn, KeepTheLimitsOfTheModel) {
  for (int32_t i = 0; i < kDrawnVariants; ++i) {
    const Arithmetic a = drawn_arithmetic(i);
    EXPECT_GE(a.tile_keys, 1);
    EXPECT_LE(a.tile_keys, kMaxTile);
    EXPECT_LE(a.splits, kMaxSplits);
    EXPECT_EQ(a.split_keys % a.tile_keys, 0);
    // P stays below the largest number of its format.
    EXPECT_TRUE(!a.has_fp8 || a.lag_log2 + a.fp8.p_offset_log2 <= 8) << i;
    EXPECT_LE(a.lag_log2 + a.wide.p_offset_log2, 20) << i;
    EXPECT_TRUE(a.wide.p_format != ASSAY_FP8_E4M3 || a.lag_log2 + a.wide.p_offset_log2 <= 8) << i;
    EXPECT_TRUE(!a.has_int8 || a.lag_log2 == 0) << i;
    // Products of two operands are exact in fp32, so fp32 weights need fp32 lanes.
    EXPECT_TRUE(a.wide.p_format != ASSAY_FP32 || a.wide.pv.kind == ASSAY_ACC_FMA) << i;
  }
}

// A number in an alarm must mean the same kernel next year.
TEST(Drawn, StayWhatTheyAre) {
  const Arithmetic a = drawn_arithmetic(696);
  EXPECT_EQ(a.exp_error, drawn_arithmetic(696).exp_error);
  uint64_t sum = 0;
  for (int32_t i = 0; i < kDrawnWithItems; ++i) {
    const Arithmetic x = drawn_arithmetic(i);
    sum = sum * 31 + static_cast<uint64_t>(x.tile_keys) * 7 + static_cast<uint64_t>(x.splits) * 3 +
          static_cast<uint64_t>(x.wide.pv.fraction_bits) + static_cast<uint64_t>(x.p_truncated);
  }
  EXPECT_EQ(sum, 9527777817622823875u);
  for (int32_t i = kDrawnWithItems; i < kDrawnWithScales; ++i) {
    const Arithmetic x = drawn_arithmetic(i);
    sum = sum * 31 + static_cast<uint64_t>(x.item_rows) * 7 + static_cast<uint64_t>(x.shares) * 3 +
          static_cast<uint64_t>(x.rescale_inexact) * 5 + static_cast<uint64_t>(x.sink_in_parts);
  }
  EXPECT_EQ(sum, 13412794076202490833u);
  for (int32_t i = kDrawnWithScales; i < kDrawnWithLse; ++i) {
    const Arithmetic x = drawn_arithmetic(i);
    sum = sum * 31 + static_cast<uint64_t>(x.wide.p_format) * 7 + static_cast<uint64_t>(x.tile_keys);
  }
  EXPECT_EQ(sum, 8630683548094029986u);
  for (int32_t i = kDrawnWithLse; i < kDrawnVariants; ++i) {
    const Arithmetic x = drawn_arithmetic(i);
    sum = sum * 31 + static_cast<uint64_t>(x.weights_lse_format) * 7 +
          static_cast<uint64_t>(x.merge_lse_format) * 3 + static_cast<uint64_t>(x.splits);
  }
  EXPECT_EQ(sum, 12566867028772843027u);
}

// Every field of the declaration that the model knows is drawn, and declared by somebody.
TEST(Drawn, UseTheWholeDeclaration) {
  const assay::Problem paged = assay::make_problem(assay::parse_scenario(kDrawnLines[0]));
  const assay::Problem biased = assay::make_problem(assay::parse_scenario(kDrawnLines[3]));
  const assay::Problem by_channel =
      assay::make_problem(assay::parse_scenario("paged h=2 d=32 kv=int8:channel batch=1q3s300 seed=11"));
  const assay::ProblemView view(paged), with_bias(biased), channels(by_channel);
  int promoted = 0, folded = 0, p_twice = 0, parts_twice = 0, by_column = 0, q_again = 0;
  for (int32_t i = 0; i < kDrawnVariants; ++i) {
    const assay_arithmetic d = declared_arithmetic(drawn_arithmetic(i), *view.get());
    promoted += d.promote_every > 1;
    p_twice += d.p_roundings > 1 && d.p_format != ASSAY_FP32;
    parts_twice += d.partial_roundings > 1 && d.splits > 1;
    q_again += d.q_replayed_format != ASSAY_FORMAT_NONE;
    folded += declared_arithmetic(drawn_arithmetic(i), *channels.get()).q_replayed_scales;
    by_column += declared_arithmetic(drawn_arithmetic(i), *with_bias.get()).bias_form == ASSAY_BIAS_COLUMN;
  }
  for (const int count : {promoted, p_twice, parts_twice, by_column, q_again, folded})
    EXPECT_GT(count, kDrawnVariants / 20);
}

// No field of the declaration is left to kernels of devices, whatever the mask: a field that nobody draws
// under a mask is one whose replay no campaign ever looks at there.
TEST(Drawn, DeclareEveryFieldUnderEveryMask) {
  const std::map<std::string, const char*> never = {{"instructions", "names of a device's instructions"},
                                                    {"growth", "follows from the others"},
                                                    {"dequant_replayed", "as dequant_format"},
                                                    {"chained_requests", "of steps, which are not drawn"}};
  // Columns are distances only where no row sees a key behind its own.
  const auto impossible = [](const std::string& field, const std::string& mask) {
    return field == "bias_form" && (mask == "mask=full" || mask == "mask=tree");
  };
  const char* const lines[] = {"paged h=4/2 d=64 %s sinks=on cap=9 alibi=linear batch=2q3s90",
                               "paged h=4/2 d=64 %s kv=fp8_e4m3:head batch=2q3s90",
                               "paged h=4/2 d=64 %s q=int8:head kv=int8:head batch=2q3s90",
                               "paged h=4/2 d=64 %s q=fp16 kv=int8:channel batch=2q3s90"};
  for (const char* mask : {"mask=causal", "mask=full", "mask=tree", "window=20", "chunk=32"}) {
    std::map<std::string, int> declared;
    for (const char* line : lines) {
      char text[200];
      snprintf(text, sizeof text, line, mask);
      const assay::Problem problem = assay::make_problem(assay::parse_scenario(text));
      const assay::ProblemView view(problem);
      const nlohmann::json none = assay::arithmetic_json(problem, assay_default_arithmetic());
      for (int32_t i = 0; i < kDrawnVariants; i += 3) {
        const nlohmann::json own =
            assay::arithmetic_json(problem, declared_arithmetic(drawn_arithmetic(i), *view.get()));
        for (const auto& [field, value] : own.items()) declared[field] += value != none[field];
      }
    }
    for (const auto& [field, count] : declared)
      if (never.count(field) == 0 && !impossible(field, mask)) {
        EXPECT_GT(count, 10) << field << " under " << mask;
      }
  }
}

// What changes the declaration changes the result.
struct Saying {
  const char* name;
  const char* line;
  Arithmetic plain, doing;
};
const Unit kNarrow{.qk = kHopper, .pv = {ASSAY_ACC_BLOCK, 16, 13, 13}, .promote_pv = true};
Arithmetic with(Arithmetic a, void (*change)(Arithmetic&)) {
  change(a);
  return a;
}
const Saying kSayings[] = {
    {"promote_every",
     "prefill h=2 d=32 batch=1q3s400 seed=6",
     {.wide = kNarrow, .tile_keys = 16},
     with({.wide = kNarrow, .tile_keys = 16}, [](Arithmetic& a) { a.wide.promote_every = 5; })},
    {"p_roundings",
     "prefill h=2 d=32 batch=1q3s100 seed=7",
     {},
     with({}, [](Arithmetic& a) { a.p_roundings = 3; })},
    {"partial_roundings",
     "paged h=2 d=32 batch=1q3s300 seed=8",
     {.tile_keys = 16, .splits = 9, .partial_format = ASSAY_BF16},
     with({.tile_keys = 16, .splits = 9, .partial_format = ASSAY_BF16},
          [](Arithmetic& a) { a.partial_roundings = 3; })},
    {"bias_by_column",
     "prefill h=2 d=32 alibi=linear batch=1q3s3k seed=9",
     {},
     with({}, [](Arithmetic& a) { a.bias_by_column = true; })},
    {"q_replayed",
     "paged h=2 d=32 batch=1q3s300 seed=10",
     {},
     with({}, [](Arithmetic& a) { a.q_replayed = true; })},
    {"channels_in_q",
     "paged h=2 d=32 kv=int8:channel batch=1q3s300 seed=11",
     {.wide = {.qk = kHopper, .pv = kHopper}},
     with({.wide = {.qk = kHopper, .pv = kHopper}}, [](Arithmetic& a) { a.channels_in_q = true; })},
    {"item_rows",
     "paged h=4/2 d=32 out=fp32 mask=tree batch=2q5s57 seed=12",
     {.tile_keys = 4, .splits = 3},
     with({.tile_keys = 4, .splits = 3}, [](Arithmetic& a) { a.item_rows = 3; })},
    {"shares",
     "paged h=4/2 d=32 out=fp32 mask=tree batch=2q5s57 seed=13",
     {.tile_keys = 4, .splits = 3, .item_rows = 3},
     with({.tile_keys = 4, .splits = 5, .item_rows = 3}, [](Arithmetic& a) { a.shares = 5; })},
    {"share_turns",
     "paged h=4/2 d=32 out=fp32 mask=tree batch=2q5s57 seed=14",
     {.tile_keys = 4, .splits = 5, .item_rows = 3, .shares = 5},
     with({.tile_keys = 4, .splits = 10, .item_rows = 3, .shares = 5},
          [](Arithmetic& a) { a.share_turns = 2; })},
    {"share_tiles",
     "paged h=4/2 d=32 out=fp32 mask=tree batch=2q5s57 seed=15",
     {.tile_keys = 4, .splits = 5, .item_rows = 3, .shares = 5},
     with({.tile_keys = 4, .splits = 5, .item_rows = 3, .shares = 5},
          [](Arithmetic& a) { a.share_tiles = 2; })},
    {"rescale_inexact",
     "paged h=2 d=32 out=fp32 batch=1q3s300 seed=16",
     {.tile_keys = 16, .exp_error = 0x1p-14, .exp_form = ErrorForm::kLow},
     with({.tile_keys = 16, .exp_error = 0x1p-14, .exp_form = ErrorForm::kLow},
          [](Arithmetic& a) { a.rescale_inexact = true; })},
    {"sink_in_parts",
     "paged h=2 d=32 out=fp32 sinks=on batch=1q3s300 seed=17",
     {.tile_keys = 16, .splits = 3, .sink_first = true},
     with({.tile_keys = 16, .splits = 3, .sink_first = true}, [](Arithmetic& a) { a.sink_in_parts = true; })},
    {"weights_lse_format",
     "paged h=2 d=32 out=fp32 batch=1q3s300 seed=18",
     {.tile_keys = 16},
     with({.tile_keys = 16}, [](Arithmetic& a) { a.weights_lse_format = ASSAY_FP32; })},
    {"merge_lse_format",
     "paged h=2 d=32 out=fp32 batch=1q3s300 seed=19",
     {.tile_keys = 16, .splits = 3},
     with({.tile_keys = 16, .splits = 3}, [](Arithmetic& a) { a.merge_lse_format = ASSAY_FP32; })},
    {"q_times_log2e", "paged h=2 d=32 batch=1q3s300 seed=10",
     with({}, [](Arithmetic& a) { a.q_replayed = true; }),
     with({}, [](Arithmetic& a) { a.q_replayed = a.q_times_log2e = true; })},
};

TEST(Drawn, DoWhatTheyDeclare) {
  for (const Saying& s : kSayings) {
    CaseRun run(s.line);
    Row plain{}, doing{};
    plain.arithmetic = s.plain, doing.arithmetic = s.doing;
    EXPECT_FALSE(run.run(plain) == run.run(doing)) << s.name << " changes no bit";
    const assay_arithmetic before = declared_arithmetic(s.plain, *run.problem()),
                           after = declared_arithmetic(s.doing, *run.problem());
    EXPECT_NE(memcmp(&before, &after, sizeof after), 0) << s.name;
  }
}

// What a kernel does with a request follows from the request, whatever its batch makes of it.
TEST(Drawn, DoNotDependOnTheBatch) {
  const assay::Backend drawn = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_drawn.so");
  const char* const lines[] = {
      "paged h=1 d=23 sinks=on batch=1q1s26_1q1s269 relate=order+alone seed=1046753",
      "prefill h=2 d=16 sinks=on kv=fp8_e4m3:head batch=2q3s40_1q1s300 relate=alone seed=8"};
  for (const char* line : lines) {
    const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
    assay::Judge judge(problem, 1e9);
    for (int32_t i = 0; i < kDrawnVariants; i += i < 128 ? 8 : 61) {
      char name[32];
      snprintf(name, sizeof name, "%s_drawn_%04d", problem.op == ASSAY_OP_PAGED ? "paged" : "prefill", i);
      const assay_kernel& kernel = *drawn.find(name);
      const assay::Verdict v = judge.judge(drawn, kernel, drawn.device(0));
      EXPECT_TRUE(v.outcome == assay::Outcome::kPassed || v.outcome == assay::Outcome::kUntrusted)
          << name << " " << line << ": " << v.reason;
      // But where the list of all tiles is cut, which it does not promise.
      const bool promised = (kernel.promises & ASSAY_PROMISE_BATCH_INVARIANT) != 0;
      EXPECT_EQ(promised, drawn_arithmetic(i).shares == 0);
      EXPECT_TRUE(!promised || v.batch_invariant.value_or(true)) << name << " " << line;
    }
  }
}

// Nothing is said of what lies beyond the range of a format that a kernel rounds to, so none does that may.
TEST(Drawn, FoldNoScaleIntoQThatMayOverflowIt) {
  int folded = 0;
  for (const char* scale : {"0.25", "1.02e9"}) {
    const assay::Problem problem = assay::make_problem(
        assay::parse_scenario(std::string("prefill h=1 d=4 q=fp16 batch=1q1s3 seed=1 scale=") + scale));
    const assay::ProblemView view(problem);
    for (int32_t i = 0; i < kDrawnVariants; ++i) {
      const bool rounds = declared_arithmetic(drawn_arithmetic(i), *view.get()).q_rounding > 0x1p-13;
      folded += rounds;
      EXPECT_FALSE(rounds && problem.softmax_scale > 1) << i;
    }
  }
  EXPECT_GT(folded, 100);
}

TEST(Drawn, AreCalledRight) {
  const assay::Backend drawn = assay::Backend::load(ASSAY_BINARY_DIR "/faulty/libassay_drawn.so");
  int passed = 0;
  for (const char* line : kDrawnLines) {
    const assay::Problem problem = assay::make_problem(assay::parse_scenario(line));
    assay::Judge judge(problem, 1e9);
    for (int32_t i = 0; i < kDrawnVariants; i += 97) {
      char name[32];
      snprintf(name, sizeof name, "%s_drawn_%04d", problem.op == ASSAY_OP_PAGED ? "paged" : "prefill", i);
      const assay::Verdict v = judge.judge(drawn, *drawn.find(name), drawn.device(0));
      EXPECT_TRUE(v.outcome == assay::Outcome::kPassed || v.outcome == assay::Outcome::kUntrusted)
          << name << " " << line << ": " << v.reason;
      passed += v.outcome == assay::Outcome::kPassed;
    }
  }
  EXPECT_GT(passed, 150);
}

}  // namespace
}  // namespace assay_faulty
