// SPDX-License-Identifier: Apache-2.0
// Derived problems hold the same tokens and have, by both reference implementations, the answers the
// relations say; right kernels pass every relation; a kernel that breaks one is named by it, and only by it.
// Broken kernels are wrappers round the right fake kernel, defined here. A new relation: a case in each of
// the three.
#include "harness/check/relations.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "harness/check/relations_derive.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "harness/input/stored_reader.hpp"
#include "harness/problem/names.hpp"
#include "reference/attention.hpp"
#include "reference/bounds.hpp"
#include "reference/formats.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kBudget = 1e9;
constexpr uint32_t kAll = 0xff;

// ---- Derived problems.

Problem plain(int32_t op) {
  Problem p = testing::small_problem(op);
  p.requests = {{1, 37}, {9, 9}, {0, 20}, {3, 48}, {5, 3}, {2, 0}};
  if (op == ASSAY_OP_PAGED) {
    p.requests.push_back({2, 60, 3, 33});
    p.requests.push_back({1, 34, 6, 30});
    place_pages(p);
  }
  return p;
}

std::vector<Problem> shapes() {
  std::vector<Problem> list;
  const auto add = [&](int32_t op, const std::function<void(Problem&)>& change) {
    Problem p = plain(op);
    change(p);
    if (p.mask == ASSAY_MASK_TREE) {
      p.requests[4].kv_len = 5;
      p.requests[5] = {0, 0};
      p.tree_mask.resize(p.tree_indptr().back());
      for (size_t i = 0; i < p.tree_mask.size(); ++i) p.tree_mask[i] = (i * 2654435761u >> 7) & 1;
    }
    if (op == ASSAY_OP_PAGED) place_pages(p);
    list.push_back(p);
  };
  for (const int32_t op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED}) {
    add(op, [](Problem&) {});
    add(op, [](Problem& p) { p.sinks = true, p.softcap = 20; });
    add(op, [](Problem& p) { p.mask = ASSAY_MASK_FULL, p.sinks = true; });
    add(op, [](Problem& p) { p.mask = ASSAY_MASK_CROSS; });
    add(op, [](Problem& p) { p.mask = ASSAY_MASK_TREE, p.sinks = true; });
    add(op, [](Problem& p) { p.window_left = 12, p.alibi = ASSAY_ALIBI_LINEAR; });
    add(op, [](Problem& p) { p.chunk = 10, p.sinks = true; });
    for (const int32_t scale : {ASSAY_SCALE_TENSOR, ASSAY_SCALE_HOST, ASSAY_SCALE_HEAD,
                                ASSAY_SCALE_REQUEST_HEAD, ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_CHANNEL})
      add(op, [scale](Problem& p) {
        p.q_format = p.k_format = p.v_format = ASSAY_INT8;
        p.q_scale = p.k_scale = p.v_scale = scale;
      });
    for (const InputRecipe recipe :
         {InputRecipe::kBoundary, InputRecipe::kAscending, InputRecipe::kIncidence})
      add(op, [recipe](Problem& p) { p.recipe = recipe; });
  }
  add(ASSAY_OP_PAGED, [](Problem& p) { p.window_left = 12, p.swa_index = true; });
  add(ASSAY_OP_PAGED, [](Problem& p) { p.table = ASSAY_TABLE_CSR, p.strided.kv = true; });
  add(ASSAY_OP_PAGED, [](Problem& p) {
    p.layout = ASSAY_LAYOUT_MLA, p.heads_kv = 1, p.head_dim_v = 24;
    p.k_format = p.v_format = ASSAY_FP8_E4M3, p.k_scale = p.v_scale = ASSAY_SCALE_TOKEN_HEAD;
  });
  for (Problem& p : list) p.relations = kAll;
  return list;
}

Derivation itself(const Problem& p) {
  Derivation d;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r) d.requests.push_back({r, 0, 0});
  return d;
}

TEST(DerivedProblems, HoldTheSameTokens) {
  for (const Problem& p : shapes()) {
    const InputValues values(p);
    const Inputs whole = values.build(p, itself(p));
    StoredReader of_whole(whole);
    for (const DerivedCase& derived : derive_relations(p)) {
      EXPECT_EQ(derived.calls.empty(), !derived.nothing.empty());
      for (const DerivedCall& call : derived.calls) {
        const Inputs part = values.build(call.problem, call.from);
        StoredReader of_part(part);
        int64_t different = 0;
        for (int r = 0; r < static_cast<int>(call.problem.requests.size()); ++r) {
          const RequestOrigin& from = call.from.requests[r];
          const PageRange keep =
              p.op == ASSAY_OP_PAGED ? resident_pages(call.problem, r) : PageRange{0, 1 << 20};
          for (int32_t key = keep.first * p.page_size;
               key < std::min(call.problem.requests[r].kv_len, keep.last * p.page_size); ++key)
            for (int32_t h = 0; h < p.heads_kv; ++h) {
              for (int32_t d = 0; d < p.head_dim_qk; ++d)
                different += of_part.k(r, key, h, d) != of_whole.k(from.request, from.first_key + key, h, d);
              for (int32_t d = 0; d < p.head_dim_v; ++d)
                different += of_part.v(r, key, h, d) != of_whole.v(from.request, from.first_key + key, h, d);
            }
          for (int32_t row = 0; row < call.problem.requests[r].q_len; ++row)
            for (int32_t h = 0; h < p.heads_q; ++h)
              for (int32_t d = 0; d < p.head_dim_qk; ++d)
                different += of_part.q(r, row, h, d) != of_whole.q(from.request, from.first_row + row, h, d);
        }
        ASSERT_EQ(different, 0) << name_of(relation_names(), static_cast<int32_t>(derived.relation));
      }
    }
  }
}

struct Answers {
  AttentionResult result;
  DerivedCall call;
};

Answers solve(const InputValues& values, const DerivedCall& call) {
  const Inputs in = values.build(call.problem, call.from);
  const HostOperands host{&in.tensors, in.q_scale_host, in.k_scale_host, in.v_scale_host};
  return {attention_simple(call.problem, host, select_rows(call.problem, 1e12).rows), call};
}

// Every relation is true of the reference: rows of the derived problems, merged where the context was split,
// have the answers of the whole (of each other for sinks).
TEST(DerivedProblems, HaveTheAnswersTheRelationsSay) {
  std::map<uint32_t, int64_t> compared;
  for (const Problem& p : shapes()) {
    const InputValues values(p);
    const Answers whole = solve(values, {p, itself(p)});
    std::map<std::pair<int, int>, int64_t> at;
    for (size_t n = 0; n < whole.result.rows.size(); ++n)
      at[{whole.result.rows[n].request, whole.result.rows[n].row}] = static_cast<int64_t>(n);
    for (const DerivedCase& derived : derive_relations(p)) {
      SCOPED_TRACE(name_of(relation_names(), static_cast<int32_t>(derived.relation)));
      std::vector<Answers> parts;
      for (const DerivedCall& call : derived.calls) parts.push_back(solve(values, call));
      const auto expect = [&](int64_t n, int32_t head, const std::vector<double>& o, double lse) {
        ++compared[derived.relation];
        const double right = whole.result.lse_at(n, head);
        if (right != lse) {
          ASSERT_NEAR(lse, right, 1e-9);
        }
        for (int32_t d = 0; d < p.head_dim_v; ++d)
          ASSERT_NEAR(o[d], whole.result.o_at(n, head, d), 1e-9 * (1 + std::fabs(o[d])));
      };
      const auto row_of = [&](const Answers& a, int64_t n, int32_t head) {
        const double* first = a.result.o.data() + (n * p.heads_q + head) * p.head_dim_v;
        return std::vector<double>(first, first + p.head_dim_v);
      };
      if (parts.empty()) continue;
      for (size_t i = 0; i < parts[0].result.rows.size() && derived.relation == kRelateSink; ++i)
        for (int32_t head = 0; head < p.heads_q; ++head) {
          ++compared[derived.relation];
          const double low = parts[0].result.lse_at(i, head), none = parts[1].result.lse_at(i, head);
          if (std::isinf(none)) {
            ASSERT_EQ(low, kNoSink);
          } else {
            ASSERT_NEAR(low, none, 1e-9);
          }
          ASSERT_EQ(row_of(parts[0], i, head), row_of(parts[1], i, head));
        }
      if (derived.relation == kRelateSink) continue;
      if (derived.relation == kRelateSplit) {
        ASSERT_EQ(parts.size(), 2u);
        ASSERT_EQ(parts[0].result.rows, whole.result.rows);
        for (size_t n = 0; n < whole.result.rows.size(); ++n)
          for (int32_t head = 0; head < p.heads_q; ++head) {
            const double a = parts[0].result.lse_at(n, head), b = parts[1].result.lse_at(n, head);
            const double top = std::max(a, b);
            std::vector<double> o(p.head_dim_v, 0.0);
            double lse = top;
            if (!std::isinf(top)) {
              lse = top + std::log(std::exp(a - top) + std::exp(b - top));
              const std::vector<double> oa = row_of(parts[0], n, head), ob = row_of(parts[1], n, head);
              for (int32_t d = 0; d < p.head_dim_v; ++d)
                o[d] = std::exp(a - lse) * oa[d] + std::exp(b - lse) * ob[d];
            }
            expect(n, head, o, lse);
          }
        continue;
      }
      for (const Answers& part : parts)
        for (size_t n = 0; n < part.result.rows.size(); ++n) {
          const RowId id = part.result.rows[n];
          const RequestOrigin& from = part.call.from.requests[id.request];
          for (int32_t head = 0; head < p.heads_q; ++head)
            expect(at.at({from.request, from.first_row + id.row}), head, row_of(part, n, head),
                   part.result.lse_at(n, head));
        }
    }
  }
  for (const Name& relation : relation_names()) EXPECT_GT(compared[relation.value], 500) << relation.text;
}

TEST(DerivedProblems, AloneTakesTheEdgesOfLargeBatches) {
  Problem p = testing::small_problem();
  p.requests.assign(100, {1, 20});
  p.requests[0].q_len = 0;
  p.requests[37].kv_len = 90;
  p.requests[61].kv_len = 1;
  place_pages(p);
  p.relations = kRelateAlone;
  const std::vector<DerivedCase> cases = derive_relations(p);
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].calls.size(), static_cast<size_t>(kMostAlone));
  std::set<int> chosen;
  for (const DerivedCall& call : cases[0].calls) chosen.insert(call.from.requests[0].request);
  for (const int r : {1, 99, 37, 61}) EXPECT_TRUE(chosen.count(r)) << r;
  EXPECT_FALSE(chosen.count(0));
}

// ---- Kernels. The right one is the fake kernel, given sinks; `fault` changes what it is asked or answers.

const Backend& fake() {
  static const Backend backend = Backend::load(std::string(ASSAY_BINARY_DIR) + "/testing/libassay_fake.so");
  return backend;
}

enum class Fault {
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
};
Fault fault = Fault::kNone;

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
      if (fault == Fault::kSinkFloor) sink = std::max(sink, -3.0);
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

int run(const assay_problem* given, const assay_tensors* tensors, assay_plan*, void*, char* error,
        size_t size) {
  assay_problem p = *given;
  assay_tensors t = *tensors;
  std::vector<int32_t> kv_len(p.kv_len, p.kv_len + p.requests);
  p.has_sinks = 0;
  p.kv_len = kv_len.data();
  switch (fault) {
    case Fault::kAloneDropsKey:
      if (p.requests == 1 && p.mask == ASSAY_MASK_FULL) --kv_len[0];
      break;
    case Fault::kFirstRowOfOthers:
      if (p.requests > 1 && p.kv_len[p.requests - 1] < p.kv_len[0]) p.window_left = 3;
      break;
    case Fault::kSingleRowBlind:
      if (p.max_q_len == 1) p.window_left = 5;
      break;
    case Fault::kWindowShort:
      if (p.window_left >= 0) p.window_left = p.max_kv_len - 2;
      break;
    case Fault::kPackedQ:
      t.q.stride[0] = int64_t{p.heads_q} * p.head_dim_qk;
      break;
    case Fault::kFails:
      if (p.requests == 1) return std::snprintf(error, size, "one is not enough"), ASSAY_FAILED;
      break;
    default:
      break;
  }
  const int status = right(p.op).run(&p, &t, nullptr, nullptr, error, size);
  if (given->has_sinks) add_sinks(*given, t);
  if (fault == Fault::kUlpByPage && static_cast<const int32_t*>(t.block_table.data)[0] % 2 != 0) nudge(t.lse);
  if (fault == Fault::kUlpByBatch && p.requests == 1) nudge(t.lse);
  if (fault == Fault::kShortContextLse2 && p.mask == ASSAY_MASK_FULL)
    for (int64_t row = 0; row < p.total_q; ++row)
      for (int32_t h = 0; h < p.heads_q; ++h)
        static_cast<float*>(t.lse.data)[row * t.lse.stride[0] + h * t.lse.stride[1]] *= 1.442695f;
  if (fault == Fault::kWritesGuard && p.requests == 1)
    static_cast<float*>(t.lse.data)[p.total_q * p.heads_q] = 0;
  return status;
}

int supports(const assay_problem* given, const assay_device* device, char* why, size_t size) {
  if (fault == Fault::kRefusesWindows && given->window_left >= 0)
    return std::snprintf(why, size, "no windows here"), ASSAY_UNSUPPORTED;
  assay_problem p = *given;
  p.has_sinks = 0;
  return right(p.op).supports(&p, device, why, size);
}

struct Outcome {
  std::string reason;
  RelationReport report;
  const RelationResult* find(uint32_t relation) const {
    for (const RelationResult& r : report.results)
      if (r.relation == relation) return &r;
    return nullptr;
  }
};

Outcome check(Problem p, Fault with, uint32_t promises, uint32_t relations = kAll) {
  fault = with;
  assay_kernel kernel = right(p.op);
  kernel.name = "wrapped_fake";
  kernel.promises = promises;
  kernel.run = run;
  kernel.supports = supports;
  p.relations = relations;
  assay_arithmetic arithmetic = default_arithmetic();
  Outcome out;
  out.reason = check_relations(fake(), kernel, fake().device(0), p, arithmetic, kBudget, &out.report);
  fault = Fault::kNone;
  return out;
}

Problem with_sinks(int32_t op = ASSAY_OP_PAGED) {
  Problem p = testing::small_problem(op);
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
      const Outcome out = check(p, Fault::kNone, kBothPromises);
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

TEST(Relations, NoneMeansNothingIsRun) {
  const Outcome out = check(with_sinks(), Fault::kFails, kBothPromises, 0);
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
    const Outcome out = check(p, Fault::kUlpByPage, kBothPromises, kRelatePages);
    if (odd == other) {
      EXPECT_EQ(out.reason, "");
    } else {
      ++found;
      EXPECT_THAT(out.reason,
                  StartsWith("relate=pages: equal bits are promised, but LSE at request 0 row 0 head 0 is "));
      EXPECT_EQ(check(p, Fault::kUlpByPage, 0, kRelatePages).reason, "");
    }
  }
  EXPECT_GT(found, 0);
}

// A fault fails the relation it breaks; all other relations hold.
void only(Fault fault, uint32_t breaks, const ::testing::Matcher<const std::string&>& reason,
          Problem p = with_sinks()) {
  for (const Name& relation : relation_names()) {
    const Outcome out = check(p, fault, kBothPromises, static_cast<uint32_t>(relation.value));
    if (static_cast<uint32_t>(relation.value) == breaks) {
      EXPECT_THAT(out.reason, reason);
    } else {
      EXPECT_EQ(out.reason, "") << relation.text;
    }
  }
}

TEST(Relations, EachFindsItsFault) {
  only(Fault::kSinkFloor, kRelateSink, StartsWith("relate=sink: with sinks of no weight: "));
  only(Fault::kPackedQ, kRelateStrides,
       StartsWith("relate=strides: equal bits are promised, but O at request "));
  only(Fault::kWindowShort, kRelateWindow, StartsWith("relate=window: "));
  only(Fault::kShortContextLse2, kRelateSplit,
       StartsWith("relate=split: the front of the context: LSE wrong"));
  only(Fault::kSingleRowBlind, kRelateChunked, StartsWith("relate=chunked: call 3 of 3: "), [] {
    Problem p = with_sinks();
    p.requests = {{4, 37}, {3, 48}, {9, 9}};
    place_pages(p);
    return p;
  }());
  only(Fault::kFirstRowOfOthers, kRelateOrder,
       StartsWith("relate=order: batch invariance is promised, but "));
  only(Fault::kUlpByBatch, kRelateAlone,
       StartsWith(
           "relate=alone: request 0 alone: batch invariance is promised, but LSE at request 0 row 0 head 0"));
  only(Fault::kWritesGuard, kRelateAlone,
       StartsWith("relate=alone: call 1 of 4: wrote outside its buffers: lse"));
  only(Fault::kFails, kRelateAlone, StartsWith("relate=alone: call 1 of 4: fails: one is not enough"));
}

TEST(Relations, WithoutAPromiseBitsMayDifferButNotTheAnswer) {
  Outcome out = check(with_sinks(), Fault::kUlpByBatch, 0, kRelateOrder | kRelateAlone);
  EXPECT_EQ(out.reason, "");
  EXPECT_EQ(out.report.batch_invariant(), std::optional<bool>(false));
  EXPECT_TRUE(out.find(kRelateOrder)->same_bits);
  EXPECT_FALSE(out.find(kRelateAlone)->same_bits);
  EXPECT_GT(out.find(kRelateAlone)->max_ratio, 0);
  EXPECT_LE(out.find(kRelateAlone)->max_ratio, 1);

  Problem p = with_sinks();
  p.mask = ASSAY_MASK_FULL;
  out = check(p, Fault::kAloneDropsKey, 0, kRelateAlone);
  EXPECT_THAT(out.reason, AllOf(StartsWith("relate=alone: request 0 alone: "), HasSubstr("wrong in ")));
}

TEST(Relations, ARefusalIsNotedAndNotAFailure) {
  const Outcome out =
      check(with_sinks(), Fault::kRefusesWindows, kBothPromises, kRelateWindow | kRelateStrides);
  EXPECT_EQ(out.reason, "");
  EXPECT_FALSE(out.find(kRelateWindow)->checked);
  EXPECT_THAT(out.find(kRelateWindow)->note, HasSubstr("no windows here"));
  EXPECT_TRUE(out.find(kRelateStrides)->checked);
}

}  // namespace
}  // namespace assay
