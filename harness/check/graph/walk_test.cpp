// SPDX-License-Identifier: Apache-2.0
// Walks: what they ask, and on the emulator that steps serve them while every planted stage is found: one
// that kept what stood in memory when it was captured, and one that waits for the device, by its name.
#include "harness/check/graph/walk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "harness/check/testing/planted_stage.hpp"
#include "harness/scenario/scenario.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testkit::frozen;
using testkit::plant;

Problem problem_of(const std::string& line) { return make_problem(parse_scenario(line)); }

TEST(Walks, DoWhatServersDo) {
  const Problem p = problem_of("step h=4/2 d=64 page=8 threshold=4 batch=3q4s60_2q4s33 seed=5");
  constexpr int kSteps = 200;
  const Walk walk = walk_of(p, kSteps);
  ASSERT_EQ(walk.steps.size(), size_t{kSteps}) << walk.nothing;
  ASSERT_EQ(walk.captures.size(), 4u) << "1, 2, 4 and all 5";
  std::set<int> captures;
  std::set<int32_t> rows;
  int grew = 0, ended = 0, came = 0, none = 0, one = 0, moved = 0;
  for (size_t n = 0; n < walk.steps.size(); ++n) {
    const WalkStep& s = walk.steps[n];
    const Problem &d = s.call.problem, &c = walk.captures[static_cast<size_t>(s.capture)].problem;
    captures.insert(s.capture);
    ASSERT_EQ(d.requests.size(), c.requests.size());
    ASSERT_EQ(d.num_blocks, c.num_blocks);
    ASSERT_EQ(d.rows(), c.rows()) << "what is missing is padding";
    ASSERT_LE(d.total_kv(), c.total_kv());
    ASSERT_LE(d.max_kv_len(), c.max_kv_len());
    for (size_t r = 0; r < d.requests.size(); ++r) {
      const Request& request = d.requests[r];
      none += request.q_len == 0, one += request.q_len == 1 && request.kv_len == 1;
      ASSERT_LE(request.q_len, request.kv_len);
      if (request.kv_len > 1) rows.insert(request.q_len);
      if (n == 0) continue;
      const DerivedCall& before = walk.steps[n - 1].call;
      const auto known = [&](const Problem& q, int origin, const Derivation& from) -> const Request* {
        for (size_t i = 0; i < q.requests.size(); ++i)
          if (from.requests[i].request == origin && q.requests[i].kv_len > 1) return &q.requests[i];
        return nullptr;
      };
      const Request* was = known(before.problem, s.call.from.requests[r].request, before.from);
      if (request.kv_len <= 1) continue;
      if (was == nullptr)
        ++came;
      else if (request.context_len() > was->context_len())
        ++grew, moved += before.problem.pages != d.pages;
      else
        ++ended;
    }
  }
  EXPECT_EQ(captures.size(), 4u);
  EXPECT_EQ(rows, (std::set<int32_t>{1, 2, 3, 4})) << "all rows, and those of ragged steps";
  EXPECT_GT(grew, 200);
  EXPECT_EQ(moved, grew) << "other pages in every step";
  EXPECT_GT(came, 5);
  EXPECT_GT(none, 20);
  EXPECT_GT(one, 20);
  EXPECT_EQ(walk_of(p, 7).steps[6].name, walk.steps[6].name) << "a longer walk begins alike";
}

// Draft decode of several branches: a server's step is all draft steps in turn, each a capture of its own.
TEST(Walks, ReplayEveryDraftStep) {
  const Problem p =
      problem_of("step h=4/2 d=64 page=8 mask=tree positions=depth drafted=2 batch=3q4s60_2q4s33 seed=5");
  const Walk walk = walk_of(p, 600);
  ASSERT_EQ(walk.steps.size(), 600u) << walk.nothing;
  ASSERT_EQ(walk.captures.size(), 12u) << "three draft steps for 1, 2, 4 and all 5";
  std::set<int> captures;
  for (size_t n = 0; n < walk.steps.size(); ++n) {
    const WalkStep& s = walk.steps[n];
    const Problem &d = s.call.problem, &c = walk.captures[static_cast<size_t>(s.capture)].problem;
    captures.insert(s.capture);
    ASSERT_EQ(d.drafted, static_cast<int32_t>(n % 3));
    ASSERT_EQ(c.drafted, d.drafted);
    for (size_t r = 0; r < d.requests.size(); ++r) {
      ASSERT_GE(d.first_draft(d.requests[r]), 0);
      ASSERT_LE(d.requests[r].kv_len, c.max_kv_len());
      for (const int32_t position : d.positions[r])
        ASSERT_EQ(position, d.first_draft(d.requests[r]) + d.drafted) << s.name;
      if (n % 3 == 0) continue;
      const Problem& before = walk.steps[n - 1].call.problem;
      ASSERT_EQ(d.first_draft(d.requests[r]), before.first_draft(before.requests[r])) << "the same context";
    }
    ASSERT_EQ(static_cast<int64_t>(d.tree_mask.size()), d.tree_indptr().back());
  }
  EXPECT_EQ(captures.size(), 12u);
  EXPECT_THAT(walk.steps[4].name, HasSubstr("step 1 of drafts after 1"));
}

TEST(Walks, NeedOneNumberOfRows) {
  EXPECT_THAT(walk_of(problem_of("step h=4/2 d=64 batch=3q4s60_2q3s33"), 5).nothing,
              HasSubstr("it has 4 and 3 rows of 33 keys"));
  EXPECT_THAT(walk_of(problem_of("step h=4/2 d=64 batch=3q0s60"), 5).nothing, HasSubstr("with rows"));
}

// With the checker: what stale lengths and tables lead to is an error there, and not the end of the process.
const char* const kCheckedLibrary = ASSAY_BINARY_DIR "/emulator/libassay_emu32_check.so";

class StepWalks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kCheckedLibrary))
      GTEST_SKIP() << kCheckedLibrary << " is not part of this build";
  }
  static const Backend& emulator() {
    static const Backend backend = Backend::load(kCheckedLibrary);
    return backend;
  }
  static std::string check(const assay_kernel& kernel, const std::string& line, int steps,
                           RelationResult& result) {
    return check_walk(emulator(), kernel, emulator().device(0), problem_of(line), steps, default_arithmetic(),
                      1e9, result);
  }
};

const std::string kDecodes = "step h=4/2 d=16 page=4 batch=3q1s40_2q1s23 seed=1";
const std::string kParts = "step h=2/1 d=64 page=16 batch=2q1s270_2q1s30 seed=1";
const std::string kChains = "step h=4/2 d=16 page=4 threshold=4 kv=fp8_e4m3 batch=2q4s30_2q4s9 seed=2";
const std::string kTrees = "step h=4/2 d=16 page=4 threshold=6 mask=tree sinks=on batch=2q6s30_2q6s13 seed=3";
const std::string kPaths =
    "step h=4/2 d=16 page=4 threshold=6 mask=tree positions=depth window=5 batch=2q6s30_2q6s13 seed=4";
const std::string kBranches =
    "step h=4/2 d=16 page=4 threshold=3 mask=tree positions=depth drafted=2 batch=2q3s30_2q3s15 seed=6";
// Attention to an encoder, which stays while the decoder goes on, and to the decoder's tokens behind it.
const std::string kWalkCross =
    "step h=4/2 d=16 page=4 mask=cross write=off table=token batch=2q2s40_2q2s13 seed=7";
const std::string kWalkBehind = "step h=4/2 d=16 page=4 encoder=21 table=token batch=3q1s40_2q1s23 seed=8";
const std::string kWalkLocal = "step h=4/2 d=16 page=4 chunk=8 table=token batch=2q5s30_2q5s17 seed=5";

TEST_F(StepWalks, AreServedByEveryPipeline) {
  const struct {
    const char* kernel;
    std::string line;
  } cases[] = {{"step_unified_gpu", kDecodes},
               {"step_unified_gpu", kTrees},
               {"step_aiter_fa_gpu", kDecodes},
               {"step_aiter_fa_gpu", kChains},
               {"step_sglang_fa_gpu", kDecodes},
               {"step_sglang_fa_gpu", kChains},
               {"step_sglang_fa_gpu", kTrees},
               {"step_sglang_fa_gpu", kPaths},
               {"step_sglang_fa_gpu", kWalkLocal},
               {"step_sglang_fa_gpu", kWalkLocal + " pool=full"},
               {"step_unified_gpu", kWalkCross},
               {"step_sglang_fa_gpu", kWalkCross},
               {"step_sglang_fa_gpu", kWalkBehind},
               {"step_sglang_fa_gpu", kBranches},
               {"step_sglang_fa_gpu", kBranches + " window=5"}};
  for (const auto& c : cases) {
    RelationResult result;
    EXPECT_EQ(check(*emulator().find(c.kernel), c.line, 6, result), "") << c.kernel << " " << c.line;
    EXPECT_EQ(result.calls, 6) << result.note;
    EXPECT_EQ(result.note, "");
    EXPECT_LE(result.max_ratio, 1);
    EXPECT_GT(result.max_ratio, 0) << "bounds were asked";
  }
}

// A schedule lies in room for the largest batch, and is made anew in every replay, for 16 heads of 4.
TEST_F(StepWalks, FollowASchedule) {
  const std::string line =
      "step h=4/1 d=96/64 layout=mla page=8 workers=5 sources=2 batch=2q1s200_2q1s60 seed=7";
  const assay_kernel& step = *emulator().find("step_aiter_mla_gpu");
  const assay_stage place = {"decode", emulator().find("persistent_paged_gpu")};
  const assay_kernel* scheduled = nullptr;
  char error[400] = "";
  ASSERT_EQ(step.with_stages(&step, "scheduled", &place, 1, &scheduled, error, sizeof error), ASSAY_OK)
      << error;
  RelationResult result;
  EXPECT_EQ(check(*scheduled, line, 12, result), "");
  EXPECT_EQ(result.calls, 12) << result.note;
  // What a schedule of fewer keys leaves out is missing.
  const assay_kernel* stale =
      plant(*scheduled, "schedule", "schedule_of_earlier_lengths", [](assay_problem& p, assay_tensors& t) {
        static const std::vector<int32_t> earlier(64, 8);
        t.kv_len = testkit::list_of(earlier.data(), p.requests);
      });
  ASSERT_NE(stale, nullptr);
  EXPECT_THAT(check(*stale, line, 12, result), HasSubstr("replayed for step "));
}

TEST_F(StepWalks, OfBatchesThatAreNotCapturedSaySo) {
  RelationResult result;
  EXPECT_EQ(check(*emulator().find("step_aiter_fa_gpu"), "step h=4/2 d=16 batch=2q4s30", 5, result), "");
  EXPECT_FALSE(result.checked);
  EXPECT_THAT(result.note, HasSubstr("supported graphs of decodes of at most 1 (contract graph_decodes)"));
}

TEST_F(StepWalks, FindWhatWasKeptFromTheCapture) {
  using P = assay_problem;
  using T = assay_tensors;
  const struct {
    const char *step, *stage, *name;
    std::string line;
    testkit::Spoil spoil;
  } faults[] = {
      {"step_unified_gpu", "attend", "stale_lengths", kDecodes,
       [](P&, T& t) { t.kv_len = frozen(t.kv_len); }},
      {"step_unified_gpu", "attend", "stale_table", kDecodes,
       [](P&, T& t) { t.block_table = frozen(t.block_table); }},
      {"step_unified_gpu", "attend", "stale_starts", kChains, [](P&, T& t) { t.cu_q = frozen(t.cu_q); }},
      {"step_unified_gpu", "write", "stale_slots", kDecodes,
       [](P&, T& t) { t.slot_mapping = frozen(t.slot_mapping); }},
      {"step_aiter_fa_gpu", "merge", "stale_rows", kParts, [](P&, T& t) { t.cu_q = frozen(t.cu_q); }},
      {"step_aiter_fa_gpu", "decode", "stale_parts", kParts, [](P&, T& t) { t.kv_len = frozen(t.kv_len); }},
      {"step_sglang_fa_gpu", "prefix", "stale_context", kTrees,
       [](P&, T& t) { t.kv_len = frozen(t.kv_len); }},
      {"step_sglang_fa_gpu", "drafts", "stale_tree", kTrees,
       [](P&, T& t) { t.tree_indptr = frozen(t.tree_indptr), t.tree_mask = frozen(t.tree_mask); }},
      {"step_sglang_fa_gpu", "paths", "stale_path_table", kPaths,
       [](P&, T& t) { t.block_table = frozen(t.block_table); }},
      {"step_sglang_fa_gpu", "prefix", "stale_context_of_drafts", kBranches,
       [](P&, T& t) { t.kv_len = frozen(t.kv_len); }},
      {"step_sglang_fa_gpu", "drafts", "stale_slots_of_drafts", kBranches,
       [](P&, T& t) { t.block_table = frozen(t.block_table); }},
      {"step_sglang_fa_gpu", "local", "stale_chunks", kWalkLocal,
       [](P&, T& t) { t.kv_len = frozen(t.kv_len); }},
      {"step_sglang_fa_gpu", "cross", "stale_encoder", kWalkCross,
       [](P&, T& t) { t.kv_len = frozen(t.kv_len); }},
      {"step_sglang_fa_gpu", "cross", "stale_table_of_encoder", kWalkCross,
       [](P&, T& t) { t.block_table = frozen(t.block_table); }},
      {"step_sglang_fa_gpu", "decoder", "stale_start_behind_encoder", kWalkBehind,
       [](P&, T& t) { t.encoder_len = frozen(t.encoder_len); }},
      {"step_sglang_fa_gpu", "decoder", "stale_context_behind_encoder", kWalkBehind,
       [](P&, T& t) { t.context_len = frozen(t.context_len); }},
      {"step_sglang_fa_gpu", "extend", "padding_rows", kWalkLocal,
       [](P& p, T& t) { t.o.data = static_cast<char*>(t.o.data) + (p.total_q > 5 ? t.o.stride[0] * 2 : 0); }},
  };
  for (const auto& f : faults) {
    const assay_kernel* kernel = plant(*emulator().find(f.step), f.stage, f.name, f.spoil);
    ASSERT_NE(kernel, nullptr);
    RelationResult result;
    EXPECT_THAT(check(*kernel, f.line, 20, result), HasSubstr("replayed for step ")) << f.name;
  }
}

TEST_F(StepWalks, NameTheStageThatWaitsForTheDevice) {
  static const assay_backend* const table = emulator().table();
  static char text[200];
  static int32_t length;
  const std::pair<const char*, testkit::Spoil> waits[] = {
      {"synchronizes", [](assay_problem&, assay_tensors&) { table->synchronize(text, sizeof text); }},
      {"reads_a_length",
       [](assay_problem&, assay_tensors& t) {
         table->copy_to_host(&length, t.kv_len.data, 4, text, sizeof text);
       }},
      {"allocates", [](assay_problem&, assay_tensors&) {
         void* memory = nullptr;
         if (table->allocate(4, &memory, text, sizeof text) == ASSAY_OK)
           table->release(memory, text, sizeof text);
       }}};
  for (const auto& [name, spoil] : waits) {
    const assay_kernel* kernel = plant(*emulator().find("step_sglang_fa_gpu"), "draft", name, spoil);
    ASSERT_NE(kernel, nullptr);
    RelationResult result;
    EXPECT_THAT(check(*kernel, kTrees, 20, result),
                AllOf(HasSubstr("capture of 1 requests: capture: stage draft, " + std::string(name)),
                      HasSubstr("waits for the device, copies or allocates")));
  }
  // The seed cuts the encoder's part of a table at a length in device memory.
  const assay_kernel* kernel = plant(*emulator().find("step_sglang_fa_gpu"), "decoder", "reads_the_encoder",
                                     [](assay_problem&, assay_tensors& t) {
                                       table->copy_to_host(&length, t.encoder_len.data, 4, text, sizeof text);
                                     });
  ASSERT_NE(kernel, nullptr);
  RelationResult result;
  EXPECT_THAT(check(*kernel, kWalkBehind, 20, result),
              HasSubstr("capture of 1 requests: capture: stage decoder, reads_the_encoder"));
}

// An encoder's tokens are as many as they are until its request ends; every row of a step sees all of them.
TEST(Walks, KeepTheirEncoders) {
  const Problem p = problem_of("step h=4/2 d=64 page=8 mask=cross write=off batch=3q2s60_2q2s33 seed=5");
  const Walk walk = walk_of(p, 100);
  ASSERT_EQ(walk.steps.size(), 100u) << walk.nothing;
  int kept = 0, others = 0;
  for (size_t n = 1; n < walk.steps.size(); ++n) {
    const DerivedCall &now = walk.steps[n].call, &before = walk.steps[n - 1].call;
    for (size_t r = 0; r < now.problem.requests.size(); ++r)
      for (size_t i = 0; i < before.problem.requests.size(); ++i)
        if (now.from.requests[r].request == before.from.requests[i].request &&
            now.problem.requests[r].kv_len > 1 && before.problem.requests[i].kv_len > 1)
          ++(now.problem.requests[r].kv_len == before.problem.requests[i].kv_len ? kept : others);
  }
  EXPECT_GT(kept, 100);
  EXPECT_LT(others, kept / 4) << "a place that another request took";
}

}  // namespace
}  // namespace assay
