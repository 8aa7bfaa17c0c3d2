// SPDX-License-Identifier: Apache-2.0
// From a line to a concrete case: fields arrive, draws depend on the seed alone, draft trees have the
// properties kernels must cope with.
#include <gmock/gmock.h>

#include <cmath>

#include "harness/ops/problem_view.hpp"
#include "harness/scenario/random_scenario.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

Problem problem_of(std::string_view line) { return make_problem(parse_scenario(line)); }

TEST(MakeProblem, FieldsArrive) {
  const Problem p = problem_of(
      "paged h=12/4 d=96/64 q=fp16 kv=int8:channel/fp8_e5m2:host out=fp32 page=32 layout=hnd table=token "
      "index=swa "
      "strides=q+out window=5/2 chunk=64 cap=30 alibi=sqrt sinks=on scale=0.5 batch=3q4s50p40 input=outlier "
      "relate=chunked blocks=50 seed=9");
  EXPECT_EQ(p.op, ASSAY_OP_PAGED);
  EXPECT_EQ(p.heads_q, 12);
  EXPECT_EQ(p.heads_kv, 4);
  EXPECT_EQ(p.head_dim_qk, 96);
  EXPECT_EQ(p.head_dim_v, 64);
  EXPECT_EQ(p.q_format, ASSAY_FP16);
  EXPECT_EQ(p.q_scale, ASSAY_SCALE_NONE);
  EXPECT_EQ(p.k_format, ASSAY_INT8);
  EXPECT_EQ(p.k_scale, ASSAY_SCALE_CHANNEL);
  EXPECT_EQ(p.v_format, ASSAY_FP8_E5M2);
  EXPECT_EQ(p.v_scale, ASSAY_SCALE_HOST);
  EXPECT_EQ(p.o_format, ASSAY_FP32);
  EXPECT_EQ(p.page_size, 32);
  EXPECT_EQ(p.layout, ASSAY_LAYOUT_HND);
  EXPECT_EQ(p.table, ASSAY_TABLE_TOKEN);
  EXPECT_TRUE(p.swa_index);
  EXPECT_EQ(p.strided, (StridedOperands{true, false, true, false, false}));
  EXPECT_EQ(p.window_left, 5);
  EXPECT_EQ(p.window_right, 2);
  EXPECT_EQ(p.chunk, 64);
  EXPECT_EQ(p.softcap, 30.0f);
  EXPECT_EQ(p.softmax_scale, 0.5f);
  EXPECT_EQ(p.alibi, ASSAY_ALIBI_SQRT);
  EXPECT_TRUE(p.sinks);
  EXPECT_EQ(p.recipe, InputRecipe::kOutlier);
  EXPECT_EQ(p.relations, static_cast<uint32_t>(kRelateChunked));
  EXPECT_EQ(p.num_blocks, 50);
  EXPECT_EQ(p.seed, 9u);
  ASSERT_EQ(p.requests.size(), 3u);
  for (const Request& r : p.requests) {
    EXPECT_EQ(r.q_len, 4);
    EXPECT_EQ(r.kv_len, 50);
  }
  EXPECT_EQ(p.requests[2].shared_tokens, 40);
  EXPECT_EQ(p.pages.size(), 3u);
}

TEST(MakeProblem, AutomaticScale) {
  EXPECT_EQ(problem_of("prefill d=192/128 batch=1q1").softmax_scale,
            static_cast<float>(1 / std::sqrt(192.0)));
  const float dyadic = problem_of("prefill input=dyadic batch=1q1").softmax_scale;
  EXPECT_EQ(dyadic * 1.44269504f, 1.0f);
  EXPECT_TRUE(problem_of("prefill batch=1q1").pages.empty());
}

TEST(MakeProblem, DrawsDependOnTheSeedAlone) {
  const char* line = "paged h=2 d=8 mask=tree batch=uniform(n=20,q=1:9,s=9:300) seed=";
  const Problem a = problem_of(fmt::format("{}1", line)), b = problem_of(fmt::format("{}1", line)),
                c = problem_of(fmt::format("{}2", line));
  EXPECT_EQ(a.requests, b.requests);
  EXPECT_EQ(a.tree_mask, b.tree_mask);
  EXPECT_EQ(a.pages, b.pages);
  EXPECT_NE(a.requests, c.requests);
  // Other fields do not disturb the draws.
  const Problem d = problem_of(
      fmt::format("{}1 d=64 kv=int8", "paged h=2 mask=tree batch=uniform(n=20,q=1:9,s=9:300) seed="));
  EXPECT_EQ(a.requests, d.requests);
  EXPECT_EQ(a.tree_mask, d.tree_mask);
}

// After draft steps a row sees its branch, by bits that kernels must read; one branch of a step is as deep as
// the others where rows stand by depth.
TEST(MakeProblem, BranchesAfterDraftSteps) {
  const Problem p = problem_of("step h=1 d=8 mask=tree drafted=2 batch=200q4s40 seed=3");
  int arbitrary = 0, blind = 0;
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const uint8_t* m = p.tree_mask.data() + p.tree_indptr()[r];
    int others = 0, own = 0;
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 12; ++j) (j % 4 == i ? own : others) += m[i * 12 + j];
    arbitrary += others > 0;
    blind += others == 0 && own < 12;
  }
  EXPECT_GT(arbitrary, 20);
  EXPECT_GT(blind, 60);
  EXPECT_LT(arbitrary + blind, 200);
  const Problem deep = problem_of("step h=1 d=8 mask=tree drafted=2 positions=depth batch=3q4s40 seed=3");
  EXPECT_EQ(deep.positions, (std::vector<std::vector<int32_t>>(3, {30, 30, 30, 30})));
  for (int32_t key = 0; key < 40; ++key)
    EXPECT_EQ(visible(deep, 1, 2, key), key < 28 || (key - 28) % 4 == 2) << key;
  EXPECT_EQ(key_position(deep, 1, 27), 27);
  EXPECT_EQ(key_position(deep, 1, 31), 28);
  EXPECT_EQ(key_position(deep, 1, 34), 29);
}

TEST(MakeProblem, TreesAreNotAllDiagonalNorTriangular) {
  const Problem p = problem_of("paged h=1 d=8 mask=tree batch=400q12s40 seed=3");
  int arbitrary = 0, blind = 0, rows = 0, branching = 0, skipping = 0;
  const std::vector<int64_t> start = p.tree_indptr();
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const int n = p.requests[r].q_len;
    const uint8_t* m = p.tree_mask.data() + start[r];
    bool upper = false, chain = true;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        upper |= j > i && m[i * n + j];
        if (j < i) chain &= m[i * n + j] == 1;
      }
    arbitrary += upper;
    if (upper) continue;
    branching += !chain;
    for (int i = 0; i < n; ++i) {
      ++rows;
      // A parent further back than the row just before: its ancestors are seen, that row is not.
      bool earlier = false;
      for (int j = 0; j + 1 < i; ++j) earlier |= m[i * n + j] == 1;
      skipping += i > 1 && earlier && m[i * n + i - 1] == 0;
      blind += m[i * n + i] == 0;
      // Ancestors of an ancestor are ancestors.
      for (int j = 0; j < i; ++j)
        for (int k = 0; k < j; ++k)
          if (m[i * n + j] && m[j * n + k]) {
            EXPECT_EQ(m[i * n + k], 1);
          }
    }
  }
  EXPECT_GT(arbitrary, 50);
  EXPECT_LT(arbitrary, 150);
  EXPECT_GT(branching, 250);
  EXPECT_GT(skipping, rows / 4);
  EXPECT_GT(blind, rows / 16);
  EXPECT_LT(blind, rows / 4);
}

// Everything the rules allow can be built (check_problem() runs inside); small lengths keep it quick.
TEST(MakeProblem, EveryValidScenarioBuilds) {
  ScenarioGenerator random(5);
  int built = 0;
  while (built < 600) {
    Scenario s = random.valid();
    if (s.batch.kind == BatchSpec::Kind::kTrace || s.page_size > 2000) continue;
    for (BatchGroup& g : s.batch.groups) g.count = std::min(g.count, 3);
    s.batch.n = std::min(s.batch.n, 5);
    int32_t longest = s.batch.q.high;
    for (const BatchGroup& g : s.batch.groups) longest = std::max(longest, g.q_len);
    if (s.mask == ASSAY_MASK_TREE && longest > 600) continue;
    ASSERT_NO_THROW(make_problem(s)) << print(s);
    ++built;
  }
}

TEST(MakeProblem, RefusesBrokenScenarios) {
  Scenario s = parse_scenario("paged batch=1q1");
  s.heads_kv = 5;
  EXPECT_THROW(make_problem(s), InputError);
}

TEST(MakeProblem, TraceWithoutItsFile) {
  try {
    problem_of("paged batch=trace(no_such_file.csv,step=1)");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no_such_file.csv"));
  }
}

TEST(MakeProblem, PrefillOfATraceSharesNoPages) {
  setenv("ASSAY_TRACE_PATH", ASSAY_SOURCE_DIR "/scenarios/traces", 1);
  const Problem p = problem_of("prefill h=1 d=8 batch=trace(small.jsonl,step=175,tokens=1k,seqs=32)");
  const Problem q = problem_of("paged h=1 d=8 batch=trace(small.jsonl,step=175,tokens=1k,seqs=32)");
  ASSERT_EQ(p.requests.size(), q.requests.size());
  ASSERT_FALSE(p.requests.empty());
  for (const Request& r : p.requests) EXPECT_EQ(r.shared_tokens, 0);
}

}  // namespace
}  // namespace assay
