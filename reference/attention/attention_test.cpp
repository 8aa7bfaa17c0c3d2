// SPDX-License-Identifier: Apache-2.0
// The two implementations against quad precision and against each other, on seeded random problems that
// combine every mask, bias, head shape, format, scale, layout, storage, page table and stride. The
// tolerance is 1e-13 of sum p|v| (and of the LSE): a rule that is a little wrong is off by far more.
#include "reference/attention/attention.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "harness/ops/problem_view.hpp"
#include "reference/attention/quad_attention.hpp"
#include "reference/attention/test_operands.hpp"
#include "reference/bounds/bounds_rows.hpp"

namespace assay {
namespace {

using test::TestOperands;

constexpr double kTolerance = 1e-13;

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed, 77) {}
  int32_t below(int32_t n) { return int32_t(rng_.below(next_++, n)); }
  bool chance(int32_t one_in) { return below(one_in) == 0; }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(int32_t(list.size()))];
  }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

int32_t draw_scale(Draw& draw, int32_t format) {
  if (!format_is_quantized(format)) return ASSAY_SCALE_NONE;
  return draw.pick<int32_t>({ASSAY_SCALE_TENSOR, ASSAY_SCALE_HOST, ASSAY_SCALE_HEAD, ASSAY_SCALE_REQUEST_HEAD,
                             ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_CHANNEL});
}

void draw_storage(Draw& draw, Problem& p) {
  p.layout = draw.pick<int32_t>(
      {ASSAY_LAYOUT_NHD, ASSAY_LAYOUT_HND, ASSAY_LAYOUT_X, ASSAY_LAYOUT_SHUFFLED, ASSAY_LAYOUT_MLA});
  p.table = draw.pick<int32_t>({ASSAY_TABLE_BLOCK, ASSAY_TABLE_CSR, ASSAY_TABLE_TOKEN});
  p.page_size = draw.pick({1, 8, 16, 64});
  if (p.layout == ASSAY_LAYOUT_SHUFFLED && p.page_size < 16) p.page_size = 16;
  if (p.layout == ASSAY_LAYOUT_X || p.layout == ASSAY_LAYOUT_SHUFFLED) p.head_dim_qk = draw.pick({16, 32});
  if (p.layout == ASSAY_LAYOUT_MLA) {
    p.heads_q = p.group();
    p.heads_kv = 1;
    p.head_dim_qk = 24;
    p.head_dim_v = 16;
    p.v_format = p.k_format;
    p.v_scale = p.k_scale;
  } else if (p.k_format == p.v_format) {
    p.storage = draw.pick({Storage::kSplit, Storage::kStacked, Storage::kInterleaved});
    if (p.storage != Storage::kSplit) p.head_dim_v = p.head_dim_qk;
  }
}

void draw_requests(Draw& draw, Problem& p) {
  const int32_t requests = 1 + draw.below(3);
  for (int32_t r = 0; r < requests; ++r) {
    Request request;
    request.kv_len = draw.chance(4) ? draw.below(4) : draw.chance(5) ? draw.below(300) : draw.below(60);
    request.q_len = draw.chance(4) ? request.kv_len : draw.pick({0, 1, 1, 2, 5});
    request.q_len = std::min(request.q_len, 12);
    if (r > 0 && p.op == ASSAY_OP_PAGED && draw.chance(2)) {
      request.shared_with = r - 1;
      request.shared_tokens = std::min(request.kv_len, p.requests[r - 1].kv_len) / 2;
    }
    p.requests.push_back(request);
  }
}

Problem draw_problem(uint64_t seed) {
  Draw draw(seed);
  Problem p;
  p.seed = seed;
  p.op = draw.pick<int32_t>({ASSAY_OP_PREFILL, ASSAY_OP_PAGED, ASSAY_OP_PAGED});
  p.heads_kv = draw.pick({1, 2, 3});
  p.heads_q = p.heads_kv * draw.pick({1, 2, 5});
  p.head_dim_qk = draw.pick({7, 16, 33});
  p.head_dim_v = draw.pick({5, 16, 20});
  const auto format = [&] {
    return draw.pick<int32_t>({ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2,
                               ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8});
  };
  p.q_format = format();
  p.k_format = format();
  p.v_format = draw.chance(2) ? p.k_format : format();
  p.q_scale = draw_scale(draw, p.q_format);
  p.k_scale = draw_scale(draw, p.k_format);
  p.v_scale = draw_scale(draw, p.v_format);
  if (p.op == ASSAY_OP_PAGED) draw_storage(draw, p);
  draw_requests(draw, p);

  p.mask = draw.pick<int32_t>(
      {ASSAY_MASK_CAUSAL, ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL, ASSAY_MASK_CROSS, ASSAY_MASK_TREE});
  if (draw.chance(3)) p.window_left = draw.pick({0, 1, 15, 100});
  if (draw.chance(5)) p.window_right = draw.pick({0, 3, 40});
  if (draw.chance(5)) p.chunk = draw.pick({1, 4, 32, 100});
  if (draw.chance(4)) p.softcap = draw.pick({1.0f, 30.0f});
  p.alibi = draw.pick<int32_t>({ASSAY_ALIBI_NONE, ASSAY_ALIBI_NONE, ASSAY_ALIBI_LINEAR, ASSAY_ALIBI_SQRT});
  p.sinks = draw.chance(3);
  p.softmax_scale = draw.pick({0.125f, 0.5f, 0.37f});
  p.strided = {draw.chance(2), draw.chance(2), false, draw.chance(2), draw.chance(2)};
  if (p.mask == ASSAY_MASK_TREE)
    for (int64_t i = 0; i < p.tree_indptr().back(); ++i) p.tree_mask.push_back(uint8_t(draw.below(2)));
  if (draw.chance(3))
    for (size_t r = 0; r < p.requests.size(); ++r) p.first_key.push_back(draw.below(200));
  if (draw.chance(3) && (p.mask != ASSAY_MASK_TREE || p.chunk == 0))
    for (size_t r = 0; r < p.requests.size(); ++r) {
      const Request& request = p.requests[r];
      const int32_t first = p.first_key.empty() ? 0 : p.first_key[r];
      const int32_t least = p.mask == ASSAY_MASK_TREE ? std::max(0, first + request.context_len()) : 0;
      std::vector<int32_t>& rows = p.positions.emplace_back();
      for (int32_t i = 0; i < request.q_len; ++i)
        rows.push_back(least + draw.below(first + request.kv_len + 30 - least));
    }
  return p;
}

std::string describe(const Problem& p) {
  std::string text = fmt::format(
      "seed {} op {} mask {} window ({}, {}) chunk {} cap {} alibi {} sinks {} heads {}/{} d {}/{} layout {} "
      "table {} "
      "page {} storage {} formats {} {} {} scales {} {} {} requests",
      p.seed, p.op, p.mask, p.window_left, p.window_right, p.chunk, p.softcap, p.alibi, p.sinks, p.heads_q,
      p.heads_kv, p.head_dim_qk, p.head_dim_v, p.layout, p.table, p.page_size, int(p.storage), p.q_format,
      p.k_format, p.v_format, p.q_scale, p.k_scale, p.v_scale);
  for (const Request& r : p.requests) text += fmt::format(" {}q{}k", r.q_len, r.kv_len);
  text += fmt::format(" {} first keys, positions of {}", p.first_key.size(), p.positions.size());
  return text;
}

// Largest error of either kind in units of the tolerance.
double worst_error(const TestOperands& operands, const AttentionResult& result) {
  const Problem& p = operands.problem();
  double worst = 0;
  for (size_t n = 0; n < result.rows.size(); ++n) {
    const test::QuadRow exact = test::quad_attention(operands, result.rows[n]);
    for (int32_t h = 0; h < p.heads_q; ++h) {
      const double got = result.lse_at(int64_t(n), h);
      if (isinfq(exact.lse[h]) || std::isinf(got)) {
        if (double(exact.lse[h]) != got) return 1e300;
      } else {
        const double scale = std::max(1.0, std::fabs(got));
        worst = std::max(worst, double(fabsq(exact.lse[h] - got)) / scale / kTolerance);
      }
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        const double o = result.o_at(int64_t(n), h, d);
        const auto error = double(fabsq(exact.o[h * p.head_dim_v + d] - o));
        const auto scale = double(exact.abs[h * p.head_dim_v + d]);
        if (!(error <= kTolerance * scale))
          worst = std::max(worst, error / std::max(scale, 1e-300) / kTolerance);
        if (std::isnan(o)) return 1e300;
      }
    }
  }
  return worst;
}

uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }

class RandomProblems : public ::testing::TestWithParam<int> {};

TEST_P(RandomProblems, BothImplementationsAgreeWithQuadPrecision) {
  int64_t rows = 0, moved = 0;
  for (int i = 0; i < 50; ++i) {
    const TestOperands operands(draw_problem(GetParam() * 1000 + i),
                                test::random_values(draw_problem(GetParam() * 1000 + i), 7 + i));
    const Problem& p = operands.problem();
    check_problem(p);
    const std::vector<RowId> ids = test::all_rows(p);
    rows += int64_t(ids.size());
    const AttentionResult simple = attention_simple(p, operands.host(), ids);
    const AttentionResult fast = attention_fast(p, operands.host(), ids);
    ASSERT_LE(worst_error(operands, simple), 1.0) << "simple: " << describe(p);
    ASSERT_LE(worst_error(operands, fast), 1.0) << "fast: " << describe(p);
    moved += !p.first_key.empty() || !p.positions.empty();
  }
  EXPECT_GT(rows, 100) << "the draw has become trivial";
  EXPECT_GT(moved, 10) << "problems with positions";
}

TEST_P(RandomProblems, LogitsHaveTheBitsOfScores) {
  int64_t finite = 0;
  for (int i = 0; i < 50; ++i) {
    const TestOperands operands(draw_problem(GetParam() * 1000 + i),
                                test::random_values(draw_problem(GetParam() * 1000 + i), 7 + i));
    const Problem& p = operands.problem();
    const OperandReader reader(p, operands.host());
    for (const RowId id : test::all_rows(p))
      for (int32_t head = 0; head < p.heads_q; ++head) {
        const RowScores scores = row_scores(p, reader, id, head);
        const RowLogits logits = row_logits(p, reader, id, head);
        ASSERT_EQ(logits.begin, scores.begin);
        ASSERT_TRUE(std::ranges::equal(logits.x, scores.x, {}, bits_of, bits_of)) << describe(p);
        finite += std::ranges::count_if(logits.x, [](double x) { return std::isfinite(x); });
      }
  }
  EXPECT_GT(finite, 10000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProblems, ::testing::Range(0, 8));

// The draw must reach everything, or agreement above means little.
TEST(RandomProblemsCoverage, EveryRuleAndStorageOccurs) {
  std::set<std::string> seen;
  const auto note = [&](const char* what, int32_t value) { seen.insert(fmt::format("{} {}", what, value)); };
  for (int seed = 0; seed < 8; ++seed)
    for (int i = 0; i < 50; ++i) {
      const Problem p = draw_problem(seed * 1000 + i);
      note("op", p.op);
      note("mask", p.mask);
      note("alibi", p.alibi);
      note("sinks", p.sinks);
      note("cap", p.softcap > 0);
      note("chunk", p.chunk > 0);
      note("left", p.window_left >= 0);
      note("right", p.window_right >= 0);
      note("format", p.k_format);
      note("format", p.v_format);
      note("q format", p.q_format);
      note("q scale", p.q_scale);
      note("k scale", p.k_scale);
      note("v scale", p.v_scale);
      for (const Request& r : p.requests) {
        note("empty request", r.q_len == 0);
        note("no keys", r.kv_len == 0);
        note("more rows than keys", r.q_len > r.kv_len);
        note("shared", r.shared_tokens > 0);
      }
      if (p.op != ASSAY_OP_PAGED) continue;
      note("layout", p.layout);
      note("table", p.table);
      note("storage", int32_t(p.storage));
    }
  // 2 + 4 + 3 + 5 x 2 + 8 + 8 + 3 x 7 + 4 x 2 + 5 + 3 + 3
  EXPECT_EQ(seen.size(), 75u);
}

Problem long_problem() {
  Problem p;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 16;
  p.softmax_scale = 0.25f;
  p.sinks = true;
  p.requests = {{3, 9000}, {1, 4097}, {2, 128}};
  return p;
}

TEST(AttentionFast, KeySplitsAgreeWithQuadPrecision) {
  const TestOperands operands(long_problem(), test::random_values(long_problem(), 5));
  const std::vector<RowId> rows = {{0, 0}, {0, 2}, {1, 0}, {2, 1}};
  EXPECT_LE(worst_error(operands, attention_fast(operands.problem(), operands.host(), rows)), 1.0);
}

TEST(AttentionFast, BitsDoNotDependOnTheNumberOfThreads) {
  const TestOperands operands(long_problem(), test::random_values(long_problem(), 5));
  const std::vector<RowId> rows = test::all_rows(operands.problem());
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const AttentionResult one = attention_fast(operands.problem(), operands.host(), rows);
  omp_set_num_threads(7);
  const AttentionResult seven = attention_fast(operands.problem(), operands.host(), rows);
  omp_set_num_threads(threads);
  EXPECT_EQ(one.o, seven.o);
  EXPECT_EQ(one.lse, seven.lse);
}

TEST(AttentionFast, AnyOrderAndChoiceOfRowsGivesTheSameRows) {
  Problem p = draw_problem(3);
  p.requests = {{40, 300}, {1, 20}};
  p.mask = ASSAY_MASK_CAUSAL;
  p.tree_mask.clear();
  p.window_left = 10;
  const TestOperands operands(p, test::random_values(p, 4));
  const std::vector<RowId> rows = {{1, 0}, {0, 39}, {0, 0}, {0, 20}};
  const AttentionResult fast = attention_fast(operands.problem(), operands.host(), rows);
  EXPECT_EQ(fast.rows, rows);
  EXPECT_LE(worst_error(operands, fast), 1.0);
}

TEST(AttentionFast, InTurnEveryRowHasTheHeadsOfOneKvHead) {
  Problem p = long_problem();
  p.requests = {{300, 400}, {70, 70}};
  const TestOperands operands(p, test::random_values(p, 6));
  const std::vector<RowId> rows = test::all_rows(operands.problem());
  const AttentionResult all = attention_fast(operands.problem(), operands.host(), rows);
  std::vector<int32_t> kv_head;
  const AttentionResult some = attention_in_turn(operands.problem(), operands.host(), rows, &kv_head);
  ASSERT_EQ(kv_head.size(), rows.size());
  for (size_t n = 0; n < rows.size(); ++n)
    for (int32_t h = kv_head[n] * p.group(); h < (kv_head[n] + 1) * p.group(); ++h)
      for (int32_t d = 0; d < p.head_dim_v; ++d)
        ASSERT_NEAR(some.o_at(int64_t(n), h, d), all.o_at(int64_t(n), h, d), 1e-12) << n << " " << h;
  EXPECT_EQ(std::set<int32_t>(kv_head.begin(), kv_head.end()).size(), 2u) << "heads take turns";
}

// Keys outside every window may be poison (hybrid caches free those pages): they must not be touched.
TEST(AttentionFast, KeysNobodySeesMayBeNan) {
  Problem p;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 8;
  p.softmax_scale = 1;
  p.window_left = 3;
  p.requests = {{1, 200}};
  TestOperands operands(p, test::random_values(p, 4));
  const std::vector<RowId> rows = {{0, 0}};
  const AttentionResult clean = attention_fast(operands.problem(), operands.host(), rows);
  for (int32_t j = 0; j < 196; ++j) {
    const int64_t at = (operands.problem().pages[0][j / 16] * 16 + j % 16) * 8;
    for (int64_t d = 0; d < 8; ++d) {
      store(ASSAY_BF16, operands.tensors().k.data, at + d, NAN);
      store(ASSAY_BF16, operands.tensors().v.data, at + d, NAN);
    }
  }
  EXPECT_EQ(attention_fast(operands.problem(), operands.host(), rows).o, clean.o);
  EXPECT_EQ(attention_simple(operands.problem(), operands.host(), rows).lse.size(), 1u);
  // One key further and the poison is visible: that is a broken input, not a result.
  store(ASSAY_BF16, operands.tensors().v.data, (operands.problem().pages[0][196 / 16] * 16 + 196 % 16) * 8,
        NAN);
  EXPECT_THROW(attention_fast(operands.problem(), operands.host(), rows), CheckError);
}

// The same between the windows of two rows of one block, where the tile is read for both.
TEST(AttentionFast, KeysBetweenTheWindowsOfTwoRowsMayBeNan) {
  Problem p;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 8;
  p.softmax_scale = 1;
  p.window_left = 3;
  p.requests = {{160, 200}};
  TestOperands operands(p, test::random_values(p, 4));
  const std::vector<RowId> rows = {{0, 0}, {0, 159}};  // see keys 37 to 40 and 196 to 199
  const AttentionResult clean = attention_fast(operands.problem(), operands.host(), rows);
  for (int32_t j = 41; j < 196; ++j) {
    const int64_t at = (operands.problem().pages[0][j / 16] * 16 + j % 16) * 8;
    for (int64_t d = 0; d < 8; ++d) {
      store(ASSAY_BF16, operands.tensors().k.data, at + d, NAN);
      store(ASSAY_BF16, operands.tensors().v.data, at + d, NAN);
    }
  }
  EXPECT_EQ(attention_fast(operands.problem(), operands.host(), rows).o, clean.o);
}

// A token table may send neighbours anywhere, not only to neighbouring slots.
TEST(AttentionFast, TokenTablesAreFollowedKeyByKey) {
  Problem p;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 16;
  p.softmax_scale = 1;
  p.table = ASSAY_TABLE_TOKEN;
  p.mask = ASSAY_MASK_CAUSAL;
  p.requests = {{3, 60}};
  TestOperands operands(p, test::random_values(p, 4));
  const std::vector<RowId> rows = {{0, 0}, {0, 2}};
  const AttentionResult before = attention_fast(operands.problem(), operands.host(), rows);
  // Only the last row sees key 59: with key 5 in its place, the first row has lost one it saw.
  auto* table = static_cast<int32_t*>(operands.tensors().block_table.data);
  std::swap(table[5], table[59]);
  const AttentionResult fast = attention_fast(operands.problem(), operands.host(), rows);
  const AttentionResult simple = attention_simple(operands.problem(), operands.host(), rows);
  EXPECT_GT(std::fabs(fast.lse[0] - before.lse[0]), 1e-6);
  for (size_t i = 0; i < fast.o.size(); ++i) ASSERT_NEAR(fast.o[i], simple.o[i], 1e-12) << i;
  for (size_t i = 0; i < fast.lse.size(); ++i) ASSERT_NEAR(fast.lse[i], simple.lse[i], 1e-12) << i;
}

TEST(AttentionFast, NanInQueriesIsRefused) {
  Problem p;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 8;
  p.softmax_scale = 1;
  p.requests = {{1, 20}};
  TestOperands operands(p, test::random_values(p, 4));
  store(ASSAY_BF16, operands.tensors().q.data, 0, NAN);
  EXPECT_THROW(attention_fast(operands.problem(), operands.host(), {{0, 0}}), CheckError);
}

TEST(Operands, DisagreementsBetweenProblemAndTensorsAreRefused) {
  Problem p;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 8;
  p.softmax_scale = 1;
  p.requests = {{2, 40}};
  const std::vector<RowId> rows = {{0, 0}};
  {
    TestOperands operands(p, test::random_values(p, 4));
    store(ASSAY_INT32, operands.tensors().cu_q.data, 1, 3);
    EXPECT_THROW(attention_simple(operands.problem(), operands.host(), rows), CheckError);
  }
  {
    TestOperands operands(p, test::random_values(p, 4));
    store(ASSAY_INT32, operands.tensors().kv_len.data, 0, 39);
    EXPECT_THROW(attention_simple(operands.problem(), operands.host(), rows), CheckError);
  }
  {
    TestOperands operands(p, test::random_values(p, 4));
    store(ASSAY_INT32, operands.tensors().block_table.data, 1, operands.problem().num_blocks);
    EXPECT_THROW(gather_kv(operands.problem(), operands.host(), 0, 0), CheckError);
  }
  p.table = ASSAY_TABLE_CSR;
  TestOperands operands(p, test::random_values(p, 4));
  store(ASSAY_INT32, operands.tensors().last_page_len.data, 0, 7);
  EXPECT_THROW(attention_simple(operands.problem(), operands.host(), rows), CheckError);
}

TEST(Operands, GatheredVectorsAreTheStoredValues) {
  for (int i = 0; i < 100; ++i) {
    const Problem drawn = draw_problem(90000 + i);
    const TestOperands operands(drawn, test::random_values(drawn, i));
    const Problem& p = operands.problem();
    for (int r = 0; r < int(p.requests.size()); ++r) {
      const int32_t kv_head = p.heads_kv - 1;
      const DenseKv dense = gather_kv(p, operands.host(), r, kv_head);
      for (int32_t j = 0; j < p.requests[r].kv_len; ++j) {
        for (int32_t d = 0; d < p.head_dim_qk; ++d)
          ASSERT_EQ(dense.k[j * p.head_dim_qk + d], operands.k(r, j, kv_head, d)) << describe(p);
        for (int32_t d = 0; d < p.head_dim_v; ++d)
          ASSERT_EQ(dense.v[j * p.head_dim_v + d], operands.v(r, j, kv_head, d)) << describe(p);
      }
      if (p.requests[r].q_len == 0) continue;
      const RowId last{r, p.requests[r].q_len - 1};
      const std::vector<double> q = gather_q(p, operands.host(), last);
      for (int32_t h = 0; h < p.heads_q; ++h)
        for (int32_t d = 0; d < p.head_dim_qk; ++d)
          ASSERT_EQ(q[h * p.head_dim_qk + d], operands.q(last, h, d)) << describe(p);
    }
  }
}

}  // namespace
}  // namespace assay
