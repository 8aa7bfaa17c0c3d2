// SPDX-License-Identifier: Apache-2.0
// A right kernel that also looks at one place nobody may read: the verdict names the operand and the place.
#include "harness/check/session/unused_reads.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "harness/check/testing/fake_library.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "harness/input/poison.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testkit::fake;
using testkit::kBudget;
using testkit::small_problem;

using Peek = std::function<void(const assay_tensors&, float* lse)>;
Peek peeks;
decltype(assay_kernel::run) run_unpeeked = nullptr;

int run_and_peek(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                 void* stream, char* error, size_t size) {
  const int status = run_unpeeked(self, p, t, plan, stream, error, size);
  if (status == ASSAY_OK && p->total_q > 0) peeks(*t, static_cast<float*>(t->lse.data));
  return status;
}

int64_t some_workspace(const assay_kernel*, const assay_problem*) { return 64; }

std::string reason_of(const Problem& problem, const Peek& peek, bool workspace = false) {
  assay_kernel kernel = *fake().find("paged_ok_fake");
  run_unpeeked = kernel.run, peeks = peek;
  kernel.run = run_and_peek;
  if (workspace) kernel.workspace_bytes = some_workspace;
  const Verdict v = Judge(problem, kBudget).judge(fake(), kernel, fake().device(0));
  EXPECT_EQ(v.outcome, Outcome::kWrong) << v.reason;
  return v.reason;
}

double at(const assay_tensor& t, int64_t element) { return load(t.format, t.data, element); }

// 0 x NaN, as who multiplies weights of 0 with what lies there.
Peek times_zero(const std::function<double(const assay_tensors&)>& value) {
  return [value](const assay_tensors& t, float* lse) { *lse += 0.0f * static_cast<float>(value(t)); };
}

TEST(UnusedReads, NameThePlaceInTheCache) {
  const Problem p = small_problem();
  const PagedCache cache(p);
  const int64_t element = cache.v_offset(p.pages[0][2], 6, 1, 3);
  EXPECT_THAT(reason_of(p, times_zero([&](const assay_tensors& t) { return at(t.v, element); })),
              HasSubstr(fmt::format(
                  "finite when unused memory holds numbers, so it reads unused memory: v block {} slot 6 "
                  "head 1 dim 3 (behind the last key of request 0)",
                  p.pages[0][2])));
  // One that numbers tell and NaN does not, and the other way round.
  const Peek positive = [&](const assay_tensors& t, float* lse) {
    if (at(t.k, element) > 0) *lse = std::nextafter(*lse, *lse + 1);
  };
  EXPECT_THAT(reason_of(p, positive),
              AllOf(HasSubstr("the result changes with the contents of unused memory: LSE at"),
                    HasSubstr(fmt::format("; what is read: k block {} slot 6 head 1 dim 3", p.pages[0][2]))));
  const Peek wrong_too = [&](const assay_tensors& t, float* lse) {
    *lse += 1;
    if (at(t.k, element) > 0) *lse += 1;
  };
  EXPECT_THAT(reason_of(p, wrong_too),
              AllOf(HasSubstr("LSE wrong in"),
                    HasSubstr("; it changes with the contents of unused memory: k block")));
}

TEST(UnusedReads, NameTheOperandWhateverItIs) {
  Problem p = small_problem();
  // Request 1 has one page, the longest three.
  const Peek tail = [&](const assay_tensors& t, float* lse) {
    const int32_t* entries = static_cast<const int32_t*>(t.block_table.data) + t.block_table.stride[0];
    if (entries[2] == kAbsurdBlock) *lse = std::nextafter(*lse, *lse + 1);
  };
  EXPECT_THAT(reason_of(p, tail),
              HasSubstr("; what is read: block_table request 1 entry 2 (behind its last page)"));
  p.strided.q = true;
  EXPECT_THAT(reason_of(p, times_zero([](const assay_tensors& t) { return at(t.q, t.q.stride[0] - 1); })),
              HasSubstr("so it reads unused memory: q, the gap behind request 0 row 0 head 3 dim 31"));
  EXPECT_THAT(reason_of(small_problem(), times_zero([](const assay_tensors& t) {
                          return static_cast<float*>(t.workspace.data)[3];
                        }),
                        true),
              HasSubstr("so it reads unused memory: what the workspace held before the call"));
}

// Two places are two; a place that is only read beside another is said with what shows it.
TEST(UnusedReads, NameEachOperand) {
  const Problem p = small_problem();
  const PagedCache cache(p);
  const int64_t element = cache.v_offset(p.pages[0][2], 6, 1, 3);
  EXPECT_THAT(
      reason_of(p, times_zero([&](const assay_tensors& t) { return at(t.v, element) + at(t.k, element); })),
      AllOf(HasSubstr(": k block "), HasSubstr(", and v block ")));
  const Peek both = [&](const assay_tensors& t, float* lse) {
    if (std::isnan(at(t.v, element)) && std::isnan(at(t.v, element + 1))) *lse = NAN;
  };
  EXPECT_THAT(reason_of(p, both), AllOf(HasSubstr(": v block "), HasSubstr(" elements from there on)"),
                                        Not(HasSubstr("k block"))));
}

}  // namespace
}  // namespace assay
