// SPDX-License-Identifier: Apache-2.0
// Deterministic mode of a served step: attention in one part, or in parts that are the same whatever else is
// in the batch, gives a request the same bits alone and beside others; attention that cuts a request as the
// device has room does not, and then the step promises nothing. On the emulator.
#include <gtest/gtest.h>

#include "harness/check/relations/relations_compare.hpp"
#include "harness/check/relations/relations_derive.hpp"
#include "harness/check/relations/relations_run.hpp"
#include "harness/check/testing/planted_stage.hpp"
#include "harness/device/backend.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

struct Found {
  std::string wrong;       // a run
  std::string other_bits;  // where the first request alone differs from the same beside others
  bool promised = false;
};

// The first request alone has the new keys that it has in the batch: those of the first rows.
const Backend& emulator() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/emulator/libassay_emu32.so");
  return backend;
}

constexpr double kRowKeys = 1e6;  // every row of lines as small as these

Found found(const assay_kernel* kernel, const std::string& line) {
  if (kernel == nullptr) return {"no such kernel", {}};
  const Problem problem = make_problem(parse_scenario(line));
  const InputValues values(problem);
  DerivedCall itself{problem, {}}, alone = reshaped(problem, {0}, {problem.requests[0]});
  place_pages(alone.problem);
  for (int r = 0; r < static_cast<int>(problem.requests.size()); ++r)
    itself.from.requests.push_back({r, 0, 0});
  RelationRun whole(values, itself), first(values, alone);
  Found f{whole.run(emulator(), *kernel, kRowKeys), {}};
  f.promised = (promises_of(*kernel) & ASSAY_PROMISE_BATCH_INVARIANT) != 0;
  if (f.wrong.empty()) f.wrong = first.run(emulator(), *kernel, kRowKeys);
  int64_t rows = 0;
  if (f.wrong.empty()) f.other_bits = difference(problem, whole, first, &rows);
  if (f.wrong.empty() && rows == 0) f.wrong = "no rows to compare";
  return f;
}

// Decodes, verification of a chain, of a tree: a request of several parts beside many short ones.
const char* const kDeterministicLines[] = {
    "step h=4/2 d=64 page=16 batch=1q1s600_8q1s40 seed=1",
    "step h=4/2 d=64 page=16 threshold=4 batch=1q4s600_4q3s33 seed=2",
    "step h=4/2 d=64 page=16 threshold=4 mask=tree batch=1q4s600_4q3s33 seed=3"};

TEST(DeterministicStep, FixedPartsGiveARequestTheSameBitsInEveryBatch) {
  for (const char* line : kDeterministicLines)
    for (const char* kernel : {"step_sglang_fa_gpu(decode=paged_tiled_gpu)", "step_sglang_fa_gpu"}) {
      const Found f = found(emulator().find(kernel), line);
      EXPECT_EQ(f.wrong, "") << kernel << ' ' << line;
      EXPECT_TRUE(f.promised) << kernel;
      EXPECT_EQ(f.other_bits, "") << kernel << ' ' << line;
    }
}

TEST(DeterministicStep, PartsThatFollowFromTheBatchPromiseNothing) {
  const Found f =
      found(emulator().find("step_sglang_fa_gpu(decode=paged_splitkv_gpu)"), kDeterministicLines[0]);
  EXPECT_EQ(f.wrong, "");
  EXPECT_FALSE(f.promised);
}

TEST(DeterministicStep, ABitThatFollowsFromTheBatchIsSeen) {
  const assay_kernel* other = testkit::plant(
      *emulator().find("step_sglang_fa_gpu"), "decode", "scale_by_the_batch",
      [](assay_problem& p, assay_tensors&) { p.softmax_scale *= p.requests > 1 ? 1.001f : 1.0f; });
  EXPECT_NE(found(other, kDeterministicLines[0]).other_bits, "");
}

}  // namespace
}  // namespace assay
