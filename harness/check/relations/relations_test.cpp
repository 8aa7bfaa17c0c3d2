// SPDX-License-Identifier: Apache-2.0
// Right kernels pass every relation; a kernel that breaks one is named by it, and only by it. Broken kernels
// are wrappers round the right fake kernel, defined here. A new relation: a fault that only it finds.
#include "harness/check/relations/relations.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>

#include "harness/check/relations/relations_compare.hpp"
#include "harness/check/relations/relations_derive.hpp"
#include "harness/check/testing/fake_library.hpp"
#include "harness/check/testing/itself.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "harness/problem/names.hpp"
#include "reference/attention/attention.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using testkit::fake;
using testkit::kBudget;

// The right kernel is the fake kernel, given sinks; `fault` changes what it is asked or answers.

enum class RelationFault {
  kNone,
  kUlpByPage,         // the last bit of an LSE follows where a page lies
  kUlpByBatch,        // the last bit of an LSE follows the size of the batch
  kAloneDropsKey,     // a single request loses its last key
  kFirstRowOfOthers,  // the longest request must not stand last
  kShortContextLse2,  // LSE in base 2 where every row sees all keys
  kSingleRowBlind,    // with one new token per request, the newest key is not seen
  kWindowShort,       // a window is one key shorter
  kSinkFloor,         // sinks count as -3 at least
  kPackedQ,           // Q is read without its strides
  kWritesGuard,       // writes behind the LSE when the batch has one request
  kFails,             // fails when the batch has one request
  kRefusesWindows,
  kRefusesOne,  // run() refuses when the batch has one request
};
RelationFault fault = RelationFault::kNone;

const assay_kernel& right(int32_t op) {
  return *fake().find(op == ASSAY_OP_PAGED ? "paged_ok_fake" : "prefill_ok_fake");
}

void nudge(const assay_tensor& lse) {
  auto* x = static_cast<float*>(lse.data);
  if (std::isfinite(*x)) *x = std::nextafter(*x, *x + 1);
}

void add_sinks(const assay_problem& p, const assay_tensors& t) {
  for (int64_t row = 0; row < p.total_q; ++row)
    for (int32_t h = 0; h < p.heads_q; ++h) {
      auto* lse = static_cast<float*>(t.lse.data) + row * t.lse.stride[0] + h * t.lse.stride[1];
      double sink = static_cast<const float*>(t.sinks.data)[h];
      if (fault == RelationFault::kSinkFloor) sink = std::max(sink, -3.0);
      const double top = std::max<double>(*lse, sink);
      const double all = top + std::log(std::exp(*lse - top) + std::exp(sink - top));
      const double keep = std::exp(*lse - all);
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        const int64_t at = row * t.o.stride[0] + h * t.o.stride[1] + d * t.o.stride[2];
        store(t.o.format, t.o.data, at, load(t.o.format, t.o.data, at) * keep);
      }
      *lse = static_cast<float>(all);
    }
}

int run(const assay_kernel*, const assay_problem* given, const assay_tensors* tensors, assay_plan*, void*,
        char* error, size_t size) {
  assay_problem p = *given;
  assay_tensors t = *tensors;
  std::vector<int32_t> kv_len(p.kv_len, p.kv_len + p.requests);
  p.has_sinks = 0;
  p.kv_len = kv_len.data();
  t.kv_len.data = kv_len.data(), t.kv_len.stride[0] = 1;  // the fake reads the lengths of its device
  switch (fault) {
    case RelationFault::kAloneDropsKey:
      if (p.requests == 1 && p.mask == ASSAY_MASK_FULL) --kv_len[0];
      break;
    case RelationFault::kFirstRowOfOthers:
      if (p.requests > 1 && p.kv_len[p.requests - 1] < p.kv_len[0]) p.window_left = 3;
      break;
    case RelationFault::kSingleRowBlind:
      if (p.max_q_len == 1) p.window_left = 5;
      break;
    case RelationFault::kWindowShort:
      if (p.window_left >= 0) p.window_left = p.max_kv_len - 2;
      break;
    case RelationFault::kPackedQ:
      t.q.stride[0] = int64_t{p.heads_q} * p.head_dim_qk;
      break;
    case RelationFault::kRefusesOne:
      if (p.requests == 1) return std::snprintf(error, size, "not one alone"), ASSAY_UNSUPPORTED;
      break;
    case RelationFault::kFails:
      if (p.requests == 1) return std::snprintf(error, size, "one is not enough"), ASSAY_FAILED;
      break;
    default:
      break;
  }
  const int status = right(p.op).run(&right(p.op), &p, &t, nullptr, nullptr, error, size);
  if (given->has_sinks) add_sinks(*given, t);
  if (fault == RelationFault::kUlpByPage && static_cast<const int32_t*>(t.block_table.data)[0] % 2 != 0)
    nudge(t.lse);
  if (fault == RelationFault::kUlpByBatch && p.requests == 1) nudge(t.lse);
  if (fault == RelationFault::kShortContextLse2 && p.mask == ASSAY_MASK_FULL)
    for (int64_t row = 0; row < p.total_q; ++row)
      for (int32_t h = 0; h < p.heads_q; ++h)
        static_cast<float*>(t.lse.data)[row * t.lse.stride[0] + h * t.lse.stride[1]] *= 1.442695f;
  if (fault == RelationFault::kWritesGuard && p.requests == 1)
    static_cast<float*>(t.lse.data)[p.total_q * p.heads_q] = 0;
  return status;
}

int supports(const assay_kernel*, const assay_problem* given, const assay_tensors* tensors,
             const assay_device* device, char* why, size_t size) {
  if (fault == RelationFault::kRefusesWindows && given->window_left >= 0)
    return std::snprintf(why, size, "no windows here"), ASSAY_UNSUPPORTED;
  assay_problem p = *given;
  p.has_sinks = 0;
  return right(p.op).supports(&right(p.op), &p, tensors, device, why, size);
}

struct RelationOutcome {
  std::string reason;
  RelationReport report;
  const RelationResult* find(uint32_t relation) const {
    for (const RelationResult& r : report.results)
      if (r.relation == relation) return &r;
    return nullptr;
  }
};

RelationOutcome check(Problem p, RelationFault with, uint32_t promises,
                      uint32_t relations = testkit::kAllRelations) {
  fault = with;
  assay_kernel kernel = right(p.op);
  kernel.name = "wrapped_fake";
  kernel.promises = promises;
  kernel.run = run;
  kernel.supports = supports;
  p.relations = relations;
  assay_arithmetic arithmetic = default_arithmetic();
  RelationOutcome out;
  out.reason = check_relations(fake(), kernel, fake().device(0), p, arithmetic, kBudget, &out.report);
  fault = RelationFault::kNone;
  return out;
}

Problem with_sinks(int32_t op = ASSAY_OP_PAGED) {
  Problem p = testkit::small_problem(op);
  p.requests = {{1, 37}, {3, 48}, {9, 9}, {2, 60}};
  p.sinks = true;
  p.o_format = ASSAY_FP32;  // sinks are added to rounded outputs here
  if (op == ASSAY_OP_PAGED) place_pages(p);
  return p;
}

constexpr uint32_t kBothPromises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT;

TEST(Relations, RightKernelsPassThemAll) {
  for (const int32_t op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED})
    for (const int32_t mask : {ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL}) {
      Problem p = with_sinks(op);
      p.mask = mask;
      const RelationOutcome out = check(p, RelationFault::kNone, kBothPromises);
      EXPECT_EQ(out.reason, "");
      ASSERT_EQ(out.report.results.size(), 8u);
      for (const RelationResult& r : out.report.results) {
        const bool skipped = (r.relation == kRelatePages && op == ASSAY_OP_PREFILL) ||
                             (r.relation == kRelateChunked && mask == ASSAY_MASK_FULL);
        EXPECT_EQ(r.checked, !skipped) << r.relation;
        EXPECT_EQ(r.note.empty(), !skipped) << r.note;
        EXPECT_EQ(r.rows, skipped ? 0 : 15) << r.relation;
        EXPECT_LE(r.max_ratio, 1);
      }
      EXPECT_EQ(out.report.batch_invariant(), std::optional<bool>(true));
      EXPECT_EQ(out.find(kRelateAlone)->calls, 4);
      EXPECT_GT(out.find(kRelateSplit)->max_ratio, 0);
    }
}

// Logits below -65536 are as legal as others: there a sink of that size has all the weight.
TEST(Relations, SinksOfNoWeightBesideLowerLogits) {
  for (const int32_t op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED})
    for (const float scale : {2e4f, 1e5f, 1e6f}) {
      Problem p = with_sinks(op);
      p.requests.assign(8, {1, 1});
      p.softmax_scale = scale;
      if (op == ASSAY_OP_PAGED) place_pages(p);
      const RelationOutcome out = check(p, RelationFault::kNone, kBothPromises, kRelateSink);
      EXPECT_EQ(out.reason, "");
      EXPECT_TRUE(out.find(kRelateSink)->checked);
    }
}

TEST(Relations, NoneMeansNothingIsRun) {
  const RelationOutcome out = check(with_sinks(), RelationFault::kFails, kBothPromises, 0);
  EXPECT_EQ(out.reason, "");
  EXPECT_TRUE(out.report.results.empty());
  EXPECT_EQ(out.report.batch_invariant(), std::nullopt);
}

// A fault that follows the parity of a block shows where the two placements differ in it.
TEST(Relations, PagesFindWhatFollowsTheirPlace) {
  Problem p = with_sinks();
  p.relations = kRelatePages;
  int found = 0;
  for (p.seed = 0; p.seed < 8; ++p.seed) {
    place_pages(p);
    const bool odd = p.pages[0][0] % 2 != 0;
    const bool other = derive_relations(p)[0].calls[0].problem.pages[0][0] % 2 != 0;
    const RelationOutcome out = check(p, RelationFault::kUlpByPage, kBothPromises, kRelatePages);
    if (odd == other) {
      EXPECT_EQ(out.reason, "");
    } else {
      ++found;
      EXPECT_THAT(out.reason,
                  StartsWith("relate=pages: equal bits are promised, but LSE at request 0 row 0 head 0 is "));
      EXPECT_EQ(check(p, RelationFault::kUlpByPage, 0, kRelatePages).reason, "");
    }
  }
  EXPECT_GT(found, 0);
}

// A fault fails the relation it breaks; all other relations hold.
void only(RelationFault fault, uint32_t breaks, const ::testing::Matcher<const std::string&>& reason,
          Problem p = with_sinks()) {
  for (const Name& relation : relation_names()) {
    const RelationOutcome out = check(p, fault, kBothPromises, static_cast<uint32_t>(relation.value));
    if (static_cast<uint32_t>(relation.value) == breaks) {
      EXPECT_THAT(out.reason, reason);
    } else {
      EXPECT_EQ(out.reason, "") << relation.text;
    }
  }
}

TEST(Relations, EachFindsItsFault) {
  only(RelationFault::kSinkFloor, kRelateSink, StartsWith("relate=sink: with sinks of no weight: "));
  only(RelationFault::kPackedQ, kRelateStrides,
       StartsWith("relate=strides: equal bits are promised, but O at request "));
  only(RelationFault::kWindowShort, kRelateWindow, StartsWith("relate=window: "));
  only(RelationFault::kShortContextLse2, kRelateSplit,
       StartsWith("relate=split: the front of the context: LSE wrong"));
  only(RelationFault::kSingleRowBlind, kRelateChunked, StartsWith("relate=chunked: call 3 of 3: "), [] {
    Problem p = with_sinks();
    p.requests = {{4, 37}, {3, 48}, {9, 9}};
    place_pages(p);
    return p;
  }());
  only(RelationFault::kFirstRowOfOthers, kRelateOrder,
       StartsWith("relate=order: batch invariance is promised, but "));
  only(RelationFault::kUlpByBatch, kRelateAlone,
       StartsWith(
           "relate=alone: request 0 alone: batch invariance is promised, but LSE at request 0 row 0 head 0"));
  only(RelationFault::kWritesGuard, kRelateAlone,
       StartsWith("relate=alone: call 1 of 4: wrote outside its buffers: lse"));
  only(RelationFault::kFails, kRelateAlone,
       StartsWith("relate=alone: call 1 of 4: fails: one is not enough"));
}

TEST(Relations, WithoutAPromiseBitsMayDifferButNotTheAnswer) {
  RelationOutcome out = check(with_sinks(), RelationFault::kUlpByBatch, 0, kRelateOrder | kRelateAlone);
  EXPECT_EQ(out.reason, "");
  EXPECT_EQ(out.report.batch_invariant(), std::optional<bool>(false));
  EXPECT_TRUE(out.find(kRelateOrder)->same_bits);
  EXPECT_FALSE(out.find(kRelateAlone)->same_bits);
  EXPECT_GT(out.find(kRelateAlone)->max_ratio, 0);
  EXPECT_LE(out.find(kRelateAlone)->max_ratio, 1);

  Problem p = with_sinks();
  p.mask = ASSAY_MASK_FULL;
  out = check(p, RelationFault::kAloneDropsKey, 0, kRelateAlone);
  EXPECT_THAT(out.reason, AllOf(StartsWith("relate=alone: request 0 alone: "), HasSubstr("wrong in ")));
}

// The distance between results, without the bounds of each: other values are too far away, the same are not.
TEST(Relations, ResultsOfOneAnswerLieCloseTogether) {
  fault = RelationFault::kNone;
  Problem p = testkit::small_problem(), other = testkit::small_problem();
  p.relations = other.relations = kRelateSplit;
  other.seed = 99;
  place_pages(other);
  const std::vector<RowId> rows = select_rows(p, kBudget).rows;
  const InputValues values(p), other_values(other);
  const std::vector<DerivedCase> split = derive_relations(p);
  const DerivedCall whole_call{p, testkit::itself(p)}, other_call{other, testkit::itself(other)};
  RelationRun whole(values, whole_call), wrong(other_values, other_call), again(values, whole_call);
  RelationRun front(values, split[0].calls[0]), back(values, split[0].calls[1]);
  RelationRun wrong_front(other_values, split[0].calls[0]);
  for (RelationRun* run : {&whole, &wrong, &again, &front, &back, &wrong_front}) {
    ASSERT_EQ(run->run(fake(), right(p.op), 1e6), "");
    run->bounded(fake(), right(p.op), default_arithmetic(), rows);
  }
  EXPECT_EQ(agreement(p, rows, whole, again).ratio, 0);
  EXPECT_GT(agreement(p, rows, whole, wrong).ratio, 10);
  EXPECT_THAT(agreement(p, rows, whole, wrong).where, HasSubstr("the bounds allow"));
  EXPECT_GT(merged_agreement(p, rows, whole, front, back).ratio, 0);
  EXPECT_LE(merged_agreement(p, rows, whole, front, back).ratio, 1);
  EXPECT_GT(merged_agreement(p, rows, whole, wrong_front, back).ratio, 10);
}

TEST(Relations, ARefusalIsNotedAndNotAFailure) {
  const RelationOutcome out =
      check(with_sinks(), RelationFault::kRefusesWindows, kBothPromises, kRelateWindow | kRelateStrides);
  EXPECT_EQ(out.reason, "");
  EXPECT_FALSE(out.find(kRelateWindow)->checked);
  EXPECT_THAT(out.find(kRelateWindow)->note, HasSubstr("no windows here"));
  EXPECT_TRUE(out.find(kRelateStrides)->checked);
  const RelationOutcome run =
      check(with_sinks(), RelationFault::kRefusesOne, kBothPromises, kRelateAlone | kRelateOrder);
  EXPECT_EQ(run.reason, "");
  EXPECT_FALSE(run.find(kRelateAlone)->checked);
  EXPECT_EQ(run.find(kRelateAlone)->note, "not one alone");
  EXPECT_TRUE(run.find(kRelateOrder)->checked);
}

}  // namespace
}  // namespace assay
