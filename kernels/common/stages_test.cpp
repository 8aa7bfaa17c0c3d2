// SPDX-License-Identifier: Apache-2.0
// Calls of a step that may run beside each other: whatever one of them writes, none of the others touches,
// and the caller's stream has followed all of them at the end. Of every pipeline, from the operands of its
// calls.
#include "kernels/common/stages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/common/group.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/common/testing/fake_step.hpp"

namespace assay_kernels {
namespace {

struct Bytes {
  uintptr_t begin, end;
  bool written;
};

// Of an operand, plane by plane where there are few: states of a merge may have others between them.
void add_bytes(const assay_tensor& t, std::vector<Bytes>& to) {
  constexpr int64_t kPlanes = 8;
  if (t.data == nullptr) return;
  if (t.rank > 1 && t.shape[0] <= kPlanes) {
    for (int64_t plane = 0; plane < t.shape[0]; ++plane) add_bytes(entry_of(t, plane), to);
    return;
  }
  int64_t elements = 1;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] == 0) return;
    elements += (t.shape[axis] - 1) * t.stride[axis];
  }
  const auto begin = reinterpret_cast<uintptr_t>(t.data);
  to.push_back(
      {begin, begin + static_cast<uintptr_t>(elements * element_bytes(t.format)), t.role != ASSAY_ROLE_IN});
}

std::vector<Bytes> touched(const StageCall& call) {
  std::vector<Bytes> all;
  for (const assay_tensor* t = &call.tensors.q; t != reinterpret_cast<const assay_tensor*>(&call.tensors + 1);
       ++t)
    add_bytes(*t, all);
  return all;
}

std::string name(const StageCall& call) { return std::string(call.stage) + ", " + call.what; }

// "" or the first two calls that share what one of them writes, or a lane that is left behind.
std::string what_is_shared(Calls& calls) {
  std::vector<StageCall*> list;
  for (StageCall& call : calls.calls()) list.push_back(&call);
  std::map<const StageCall*, std::vector<bool>> before;  // which calls have ended when one begins
  std::map<int32_t, const StageCall*> last;
  const auto number = [&](const StageCall* call) {
    return static_cast<size_t>(std::find(list.begin(), list.end(), call) - list.begin());
  };
  for (StageCall* call : list) {
    std::vector<bool> ended(list.size());
    const auto add = [&](const StageCall* other) {
      if (other == nullptr) return;
      ended[number(other)] = true;
      for (size_t i = 0; i < list.size(); ++i) ended[i] = ended[i] || before[other][i];
    };
    add(last[call->lane]);
    for (const StageCall* other : call->behind) add(other);
    before[call] = ended, last[call->lane] = call;
  }
  for (const StageCall* call : list)
    if (call != last[0] && (last[0] == nullptr || !before[last[0]][number(call)]))
      return name(*call) + ": nobody waits for it";
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      if (before[list[i]][j]) continue;
      for (const Bytes& a : touched(*list[i]))
        for (const Bytes& b : touched(*list[j]))
          if ((a.written || b.written) && a.begin < b.end && b.begin < a.end)
            return name(*list[j]) + " beside " + name(*list[i]);
    }
  return "";
}

const std::vector<int32_t> kRows = {1, 1, 9, 16, 17, 40}, kKeys = {16, 170, 90, 320, 333, 40};

// Calls of a step of `pipeline` with chunks of a budget, over operands that lie apart and are never looked
// at.
struct Step : FakeStep {
  Step(const Pipeline& of, int32_t budget)
      : FakeStep(
            of, [](const assay_problem&, assay_arithmetic&) {}, kRows, kKeys) {
    p.token_budget = budget, p.ranks = 2, p.interleave = 4;
    if (&of != &kIxformerDcp) p.ranks = p.interleave = 0;
  }
  template <class Work>
  void with_calls(const Work& work) const {
    assay_tensors t{};
    t.struct_size = sizeof t;
    uintptr_t next = uintptr_t{1} << 30;
    const auto operand = [&](assay_tensor& x, int32_t format, int32_t role, std::vector<int64_t> shape) {
      x.format = format, x.role = role, x.rank = static_cast<int32_t>(shape.size());
      int64_t elements = 1;
      for (int axis = x.rank - 1; axis >= 0; --axis)
        x.shape[axis] = shape[static_cast<size_t>(axis)], x.stride[axis] = elements,
        elements *= x.shape[axis];
      x.data = reinterpret_cast<void*>(next), next += uintptr_t{1} << 30;
    };
    const std::vector<int64_t> cache = {200, p.page_size, p.heads_kv, p.head_dim_qk},
                               fresh = {p.rows, p.heads_kv, p.head_dim_qk};
    operand(t.k, ASSAY_BF16, ASSAY_ROLE_IN_OUT, cache), operand(t.v, ASSAY_BF16, ASSAY_ROLE_IN_OUT, cache);
    operand(t.dense_k, ASSAY_BF16, ASSAY_ROLE_IN, fresh),
        operand(t.dense_v, ASSAY_BF16, ASSAY_ROLE_IN, fresh);
    operand(t.cu_q, ASSAY_INT32, ASSAY_ROLE_IN, {p.requests + 1});
    operand(t.kv_len, ASSAY_INT32, ASSAY_ROLE_IN, {p.requests});
    operand(t.context_len, ASSAY_INT32, ASSAY_ROLE_IN, {p.requests});
    operand(t.o, ASSAY_BF16, ASSAY_ROLE_OUT, {p.rows, p.heads_q, p.head_dim_v});
    operand(t.workspace, ASSAY_UINT8, ASSAY_ROLE_OUT, {int64_t{1} << 40});
    Calls calls(*kernel, p, &t, 0);
    pipeline.add_calls(calls);
    work(calls);
  }
};

TEST(StageLanes, ShareNothingThatOneOfThemWrites) {
  int beside = 0;  // calls of lanes, so that there is something to look at
  for (const Pipeline* of : {&kUnifiedStep, &kAiterFa, &kMlaPrefill, &kIxformerDcp})
    for (const int32_t budget : {4, 40, 100, 400, 600, 900, 1400, 4096})
      Step(*of, budget).with_calls([&](Calls& calls) {
        EXPECT_EQ(what_is_shared(calls), "") << of->description << ", budget " << budget;
        for (const StageCall& call : calls.calls()) beside += call.lane > 0 ? 1 : 0;
      });
  EXPECT_GT(beside, 100);
}

// A group of two whose exchanges are never called; wide ones take anything.
void join_fake(bool wide) {
  static assay_group group{};
  static const WideExchanges exchanges = {[](const HeadRows&) { return true; },
                                          [](const RankParts&) { return true; }};
  group.struct_size = sizeof group, group.ranks = 2;
  group.all_gather = [](const assay_group*, const void*, void*, int64_t, void*, char*, size_t) {
    return int{ASSAY_FAILED};
  };
  group.reduce_scatter = [](const assay_group*, const float*, float*, int64_t, void*, char*, size_t) {
    return int{ASSAY_FAILED};
  };
  ASSERT_EQ(join_group(&group, nullptr, 0, wide ? &exchanges : nullptr), ASSAY_OK);
}

TEST(StageLanes, ShareNothingWhereExchangesAreWide) {
  const auto stages = [] {
    std::string all;
    Step(kIxformerDcp, 100).with_calls([&](Calls& calls) {
      EXPECT_EQ(what_is_shared(calls), "");
      for (const StageCall& call : calls.calls())
        if (call.lane == 0) all += std::string(call.stage) + " ";
    });
    return all;
  };
  join_fake(true);
  EXPECT_EQ(stages(), "gather_q context scatter merge ");
  join_fake(false);
  EXPECT_EQ(stages(), "q_heads gather_q context gather_lse correct scatter merge ");
}

// Every wait there is is one that the test above would miss.
TEST(StageLanes, AreSeenWhereAWaitIsMissing) {
  std::set<std::string> seen;
  for (const Pipeline* of : {&kAiterFa, &kIxformerDcp}) {
    const Step step(*of, 100);  // of four extends: 25 tokens each
    std::vector<size_t> waits;
    step.with_calls([&](Calls& calls) {
      for (const StageCall& call : calls.calls()) waits.push_back(call.behind.size());
    });
    for (size_t at = 0; at < waits.size(); ++at)
      for (size_t wait = 0; wait < waits[at]; ++wait)
        step.with_calls([&](Calls& calls) {
          StageCall& call = *std::next(calls.calls().begin(), static_cast<std::ptrdiff_t>(at));
          call.behind.erase(call.behind.begin() + static_cast<std::ptrdiff_t>(wait));
          EXPECT_NE(what_is_shared(calls), "") << name(call) << " without wait " << wait;
          seen.insert(call.stage);
        });
  }
  EXPECT_THAT(seen, ::testing::ElementsAre("context", "gather", "merge"));
}

}  // namespace
}  // namespace assay_kernels
