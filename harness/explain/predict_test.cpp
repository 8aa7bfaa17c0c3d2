// SPDX-License-Identifier: Apache-2.0
// Without hooks the predictor is a right kernel: in exact arithmetic it agrees with the definition on every
// rule, in a declared arithmetic it stays inside the bounds. With a hook it gives the answer worked out by
// hand.
#include "harness/explain/predict.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "harness/base/random.hpp"
#include "harness/explain/cut.hpp"
#include "harness/explain/families/mask_rule.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/families/row_places.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/rounding.hpp"
#include "harness/input/inputs.hpp"
#include "harness/scenario/scenario.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

struct Case {
  explicit Case(const std::string& line)
      : problem(make_problem(parse_scenario(line))), inputs(build_inputs(problem)) {}
  HostOperands host() const {
    return {&inputs.tensors, inputs.q_scale_host, inputs.k_scale_host, inputs.v_scale_host};
  }
  std::vector<RowId> rows() const {
    std::vector<RowId> list;
    for (size_t r = 0; r < problem.requests.size(); ++r)
      for (int32_t i = 0; i < problem.requests[r].q_len; ++i) list.push_back({static_cast<int32_t>(r), i});
    return list;
  }
  Problem problem;
  Inputs inputs;
};

const char* const kLines[] = {
    "paged h=4/2 d=32 q=fp32 window=20 batch=2q1s70_1q9s40_1q4s2 seed=1",
    "paged h=4/2 d=32 q=fp32 mask=tree cap=5 alibi=sqrt sinks=on page=4 batch=2q5s30_1q1s9 seed=2",
    "prefill h=4/4 d=48/32 q=fp32 mask=full window=7/3 alibi=linear batch=1q20s33_1q3 seed=3",
    "paged h=6/2 d=32 q=fp32 kv=int8:token_head chunk=16 table=token batch=2q1s40_1q20s45 seed=4",
    "paged h=4/1 d=40/32 q=fp32 layout=mla kv=fp8_e4m3 sinks=on table=csr batch=2q1s40_1q3s20_1q0s0 seed=5",
    "paged h=4/2 d=32 q=fp32 mask=tree positions=depth alibi=linear window=12 batch=2q5s30_1q6s20 seed=6",
    "paged h=4/2 d=32 q=fp32 first=50 window=9 batch=2q5s30_1q6s20 seed=7",
};

// The mask rule with nothing changed is that of the case, and a block of rows sees what any of its rows sees.
TEST(Predict, MaskRulesAndBlocksOfRowsAgreeWithTheDefinition) {
  for (const char* line : kLines) {
    const Case c(line);
    const Problem& p = c.problem;
    Predictor predictor(p, c.host(), default_arithmetic());
    const MaskRule given = given_mask(p);
    for (const RowId& row : c.rows()) {
      const Cell cell{row.request, row.row, 0};
      KvStore& store = predictor.store(cell.request, 0);
      const int64_t first = p.first_key.empty() ? 0 : p.first_key[cell.request];
      const Scene scene{p, cell, store, store.keys(),
                        static_cast<int32_t>(row_position(p, cell.request, cell.row) - first)};
      for (int32_t j = 0; j < store.keys(); ++j)
        ASSERT_EQ(given.sees(scene, j), visible(p, cell.request, cell.row, j)) << line << " key " << j;
      for (const RowBlock& block : row_blocks(p)) {
        const auto [from, to] = block.rows(p, cell);
        ASSERT_LE(from, cell.row);
        ASSERT_GE(to, cell.row);
        const KeyRange keys = block.keys(p, cell);
        for (int32_t r = from; r <= to; ++r)
          for (int32_t j = 0; j < store.keys(); ++j)
            if (visible(p, cell.request, r, j) && p.mask != ASSAY_MASK_TREE) {
              ASSERT_TRUE(j >= keys.begin && j < keys.end) << line << ": " << block.words() << " key " << j;
            }
      }
    }
  }
}

TEST(Predict, AgreesWithTheDefinition) {
  for (const char* line : kLines) {
    const Case c(line);
    assay_arithmetic a = default_arithmetic();
    a.order_declared = 0;
    Predictor predictor(c.problem, c.host(), a);
    const AttentionResult exact = attention_simple(c.problem, c.host(), c.rows());
    for (size_t n = 0; n < exact.rows.size(); ++n)
      for (int32_t h = 0; h < c.problem.heads_q; ++h) {
        const Prediction p =
            predictor.predict(predictor.right(), {exact.rows[n].request, exact.rows[n].row, h});
        const double lse = exact.lse_at(static_cast<int64_t>(n), h);
        ASSERT_TRUE(p.lse == lse || std::fabs(p.lse - lse) < 1e-12 * (1 + std::fabs(lse)))
            << line << ": " << p.lse << " " << lse;
        for (int32_t d = 0; d < c.problem.head_dim_v; ++d) {
          const double o = exact.o_at(static_cast<int64_t>(n), h, d);
          ASSERT_NEAR(p.o[d], round_to(ASSAY_FP32, o), 1e-6 * (std::fabs(o) + 1e-6)) << line;
        }
      }
  }
}

TEST(Predict, DeclaredArithmeticStaysInItsBounds) {
  const Case c("paged h=4/2 d=64 sinks=on batch=2q1s300_1q9s130 seed=6");
  assay_arithmetic a = default_arithmetic();
  a.qk = a.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
  a.tile_keys = 64;
  a.splits = 3;
  a.p_format = ASSAY_BF16;
  a.order_declared = 1;
  Predictor predictor(c.problem, c.host(), a);
  const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), a);
  int64_t coarse = 0;
  for (size_t n = 0; n < b.value.rows.size(); ++n)
    for (int32_t h = 0; h < 4; ++h) {
      const Prediction p =
          predictor.predict(predictor.right(), {b.value.rows[n].request, b.value.rows[n].row, h});
      for (int32_t d = 0; d < 64; ++d) {
        const int64_t at = (static_cast<int64_t>(n) * 4 + h) * 64 + d;
        EXPECT_LE(round_to(ASSAY_BF16, b.o_low[at]), p.o[d]);
        EXPECT_GE(round_to(ASSAY_BF16, b.o_high[at]), p.o[d]);
        coarse += p.o[d] != round_to(ASSAY_BF16, b.value.o[at]);
      }
    }
  EXPECT_GT(coarse, 0) << "P was not rounded at all";
}

// Places that masks and the position bias may count a row from, by hand.
TEST(RowPlaces, ByHand) {
  const Case c("paged h=4/2 d=32 mask=full positions=drawn alibi=linear batch=1q3s20_1q5s30 seed=3");
  assay_arithmetic a = default_arithmetic();
  a.order_declared = 0;
  Predictor predictor(c.problem, c.host(), a);
  KvStore& store = predictor.store(1, 0);
  const Cell cell{1, 2, 0};
  const Scene scene{c.problem, cell, store, store.keys(), place_of_row(c.problem, cell)};
  std::map<std::string, int32_t> at;
  for (const RowPlace& place : row_places(c.problem)) at[place.name] = place.at(scene);
  EXPECT_EQ(at.at("rows at the end of the keys, the given positions not read"), 27);
  EXPECT_NE(scene.position, 27) << "positions are drawn";
  EXPECT_EQ(at.at("the last row for all"), 29);
  EXPECT_EQ(at.at("the first row for all"), 25);
  EXPECT_EQ(at.at("rows from the last to the first"), 27);
  EXPECT_EQ(at.at("the context of the first request"), 19);
  EXPECT_EQ(at.at("the row behind all keys"), 32);
}

// Worlds come and go with the hypotheses that hold them, and each is that of its own numbers.
TEST(Predict, AWorldIsNoOtherThatStoodAtItsPlace) {
  const Case c("paged h=2/1 d=32 q=fp32 out=fp32 batch=1q1s10 seed=7");
  assay_arithmetic a = default_arithmetic();
  a.order_declared = 0;
  const Cell cell{0, 0, 1};
  const auto predicted = [&](Predictor& by, int32_t format) {
    Rules rules = by.right();
    auto world = std::make_shared<World>();
    world->dequant_format = format;
    rules.world = world;
    return by.predict(rules, cell).o[0];
  };
  Predictor one(c.problem, c.host(), a), other(c.problem, c.host(), a);
  const double coarse = predicted(one, ASSAY_FP8_E4M3), fine = predicted(other, ASSAY_FP16);
  EXPECT_NE(coarse, fine);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(predicted(one, ASSAY_FP16), fine);
}

// K and V of codes times scales, cut toward zero: both, or one of them beside the other one rounded.
TEST(Predict, WhatIsDequantisedIsCut) {
  const Case c("paged h=2/1 d=32 q=fp32 out=fp32 kv=int8:head batch=1q1s10 seed=7");
  assay_arithmetic a = default_arithmetic();
  a.order_declared = 1, a.dequant_format = ASSAY_BF16, a.dequant_replayed = 1;
  Predictor rounded(c.problem, c.host(), a);
  a.dequant_format = ASSAY_FORMAT_NONE, a.dequant_replayed = 0;
  Predictor exact(c.problem, c.host(), a);
  for (const int32_t cut : {0, kCutK, kCutV, kCut}) {
    a.dequant_format = ASSAY_BF16 | cut, a.dequant_replayed = 1;
    Predictor predictor(c.problem, c.host(), a);
    KvStore &store = predictor.store(0, 0), &whole = exact.store(0, 0), &nearest = rounded.store(0, 0);
    int differ = 0;
    for (int32_t j = 0; j < 10; ++j)
      for (int32_t d = 0; d < 32; ++d) {
        const double k = whole.k(j)[d], v = whole.v(j)[d];
        EXPECT_EQ(store.k(j)[d], cut & kCutK ? truncate_to(ASSAY_BF16, k) : round_to(ASSAY_BF16, k));
        EXPECT_EQ(store.v(j)[d], cut & kCutV ? truncate_to(ASSAY_BF16, v) : round_to(ASSAY_BF16, v));
        differ += store.k(j)[d] != nearest.k(j)[d] || store.v(j)[d] != nearest.v(j)[d];
      }
    EXPECT_EQ(differ > 0, cut != 0);
  }
}

TEST(Predict, HooksChangeWhatTheySay) {
  const Case c("paged h=2/1 d=32 q=fp32 batch=1q1s10 seed=7");
  assay_arithmetic a = default_arithmetic();
  a.order_declared = 0;
  Predictor predictor(c.problem, c.host(), a);
  const Cell cell{0, 0, 1};
  const Predictor::Weights w = predictor.weights(cell);
  Rules rules = predictor.right();
  // Without its last key the other weights grow by 1 / (1 - p).
  rules.edit_terms = [](Scene&, std::vector<Term>& t) { t.pop_back(); };
  const Prediction without = predictor.predict(rules, cell),
                   right = predictor.predict(predictor.right(), cell);
  EXPECT_NEAR(without.lse, right.lse + std::log1p(-w.p.back()), 1e-12);
  const double* v = predictor.store(0, 0).v(9);
  for (int32_t d = 0; d < 32; ++d)
    EXPECT_NEAR(without.o[d], (right.o[d] - w.p.back() * v[d]) / (1 - w.p.back()), 2e-6);
  rules = predictor.right();
  rules.divide = false;
  double top = -1e300;
  for (double x : w.scores) top = std::max(top, x);
  for (int32_t d = 0; d < 32; ++d)
    EXPECT_NEAR(predictor.predict(rules, cell).o[d], right.o[d] * std::exp(right.lse - top), 1e-5);
}

// A rule that reads a shorter request, and one that counts the row's own keys.
TEST(Predict, KeysThatTheRequestReadHasNotAreNotNumbers) {
  const Case c("paged h=2/1 d=32 q=fp32 batch=1q1s1100_1q1s10 seed=7");
  assay_arithmetic a = default_arithmetic();
  a.order_declared = 0;
  Predictor predictor(c.problem, c.host(), a);
  KvStore& store = predictor.store(1, 0);
  for (const int32_t row : {-1, store.rows(), 1100})
    EXPECT_TRUE(std::isnan(store.k(row)[31]) && std::isnan(store.v(row)[31])) << row;
  EXPECT_FALSE(std::isnan(store.k(9)[31]) || std::isnan(store.v(0)[31]));
  Rules rules = predictor.right();
  rules.kv_request_of = [](const Cell&) { return 1; };
  rules.finish = [](const Scene& s, std::vector<double>& o, double&) {
    for (const int32_t position : s.predictor->weights(s.cell).positions)
      for (size_t d = 0; d < o.size(); ++d) o[d] += s.keys.v(position)[d];
  };
  for (const double x : predictor.predict(rules, Cell{0, 0, 1}).o) EXPECT_TRUE(std::isnan(x));
}

// Tiles 2 to 12, eleven of them, in each of the ways.
TEST(Predict, KeysAreDealtToPartsAsTheCutSays) {
  Rules rules;
  rules.arithmetic.tile_keys = 16, rules.arithmetic.splits = 4;
  const auto dealt = [&](const Cut& cut) {
    rules.cut = cut;
    const PartsOf parts(rules, KeyRange{40, 200});
    std::vector<int32_t> held(parts.count(), 0);
    for (int32_t tile = parts.first_tile(); tile < parts.end_tile(); ++tile) ++held[parts.of(16 * tile)];
    return held;
  };
  using List = std::vector<int32_t>;
  EXPECT_EQ(dealt({}), (List{2, 3, 3, 3}));
  EXPECT_EQ(dealt({.whole = true}), (List{3, 3, 3, 2}));
  EXPECT_EQ(dealt({.rest_first = true}), (List{3, 3, 3, 2}));
  EXPECT_EQ(dealt({.least = 4}), (List{3, 4, 4}));
  EXPECT_EQ(dealt({.least = 4, .least_met = true}), (List{5, 6}));
  EXPECT_EQ(dealt({.least = 5, .rest_first = true}), (List{4, 4, 3}));
  EXPECT_EQ(dealt({.interleaved = true}), (List{3, 3, 3, 2}));
  // Tiles of a part in turn to its states, from its first one on; merged as parts are they are parts.
  rules.arithmetic.splits = 2, rules.cut = {.states = 3};
  List states;
  const PartsOf joined(rules, KeyRange{40, 200});
  for (int32_t tile = 2; tile < 13; ++tile)
    states.push_back(10 * joined.of(16 * tile) + joined.state(16 * tile));
  EXPECT_EQ(states, (List{0, 1, 2, 0, 1, 10, 11, 12, 10, 11, 12}));
  EXPECT_EQ(dealt({.states = 3, .states_merge = true}), (List{2, 2, 1, 2, 2, 2}));
  // Of a block of rows what they see.
  const Case c("paged h=4/2 d=32 window=20 batch=1q20s90 seed=3");
  const HostOperands host = c.host();
  Predictor predictor(c.problem, host, assay_default_arithmetic());
  const Scene scene{c.problem, {0, 9, 1}, predictor.store(0, 0), 90, 79, 0};
  rules.cut = {.block_rows = 8};
  // Rows 8 to 15 stand at 78 to 85: keys from 58 on.
  EXPECT_EQ(PartsOf(rules, scene).first_tile(), 58 / 16);
  EXPECT_EQ(PartsOf(rules, scene).end_tile(), 85 / 16 + 1);
}

// However keys are dealt to running states, what they are joined to is what one state holds: with sinks, and
// a maximum that lags. Where a weight is rounded by its own state's maximum it is not.
TEST(Predict, RunningStatesAreJoinedToWhatOneHolds) {
  const Case c("paged h=4/2 d=32 sinks=on window=150 batch=1q1s300_1q20s190 seed=3");
  const HostOperands host = c.host();
  Predictor predictor(c.problem, host, assay_default_arithmetic());
  const Cell cells[] = {{0, 0, 1}, {1, 4, 2}};
  for (const Cell& cell : cells) {
    Rules rules = predictor.right();
    const Prediction one = predictor.predict(rules, cell);
    rules.arithmetic.tile_keys = 16;
    for (const int32_t splits : {1, 3})
      for (const bool merged : {false, true}) {
        rules.arithmetic.splits = splits;
        rules.cut = {.block_rows = 4, .states = 3, .states_merge = merged};
        const Prediction several = predictor.predict(rules, cell);
        EXPECT_NEAR(several.lse, one.lse, 1e-12);
        for (int32_t d = 0; d < 32; ++d)
          EXPECT_NEAR(several.o[d], one.o[d], 1e-2 * std::fabs(one.o[d]) + 1e-6);
      }
    rules.arithmetic.splits = 1, rules.arithmetic.p_format = ASSAY_FP8_E4M3;
    rules.cut.states_merge = false;
    const Prediction three = predictor.predict(rules, cell);
    rules.cut.states = 1;
    EXPECT_NE(predictor.predict(rules, cell).o, three.o);
  }
}

// A lone part that goes by the merge has its sink weighed against its LSE, not against a running maximum.
TEST(Predict, ALonePartMayGoByTheMerge) {
  const Case c("paged h=4/2 d=32 sinks=on batch=1q1s30 seed=3");
  const HostOperands host = c.host();
  Predictor predictor(c.problem, host, assay_default_arithmetic());
  const Cell cell{0, 0, 1};
  Rules rules = predictor.right();
  const double sink = predictor.reader().sink(cell.head), right = predictor.predict(rules, cell).lse;
  rules.one_part_too = true;
  EXPECT_NEAR(predictor.predict(rules, cell).lse, right, 1e-12);
  rules.sink_unshifted = true;
  const double keys = right + std::log1p(-std::exp(sink - right)), top = std::max(keys, sink);
  EXPECT_NEAR(predictor.predict(rules, cell).lse, top + std::log(std::exp(keys - top) + std::exp(sink)),
              1e-9);
}

TEST(Predict, TruncationIsTowardsZero) {
  for (double x : {1.00390625, -1.00390625, 3.14159, -1e-3, 0.0, 1e-42}) {
    const double t = truncate_to(ASSAY_BF16, x);
    EXPECT_LE(std::fabs(t), std::fabs(x));
    EXPECT_EQ(t, round_to(ASSAY_BF16, t)) << "not a bf16 number";
    EXPECT_LE(std::fabs(x - t), std::max(std::fabs(x) * 0x1p-7, 0x1p-133));
  }
}

TEST(Predict, FastRoundingIsRounding) {
  const CounterRng rng(7, 0);
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP32, ASSAY_FP8_E4M3})
    for (uint64_t i = 0; i < 4000; ++i) {
      const double wide =
          std::ldexp(rng.uniform(2 * i) - 0.5, static_cast<int>(rng.uniform(2 * i + 1) * 80) - 50);
      // Ties and neighbours of them, and numbers of any size.
      const double tie = round_to(ASSAY_FP16, wide) * (1 + 0x1p-11);
      for (double x : {wide, tie, std::nextafter(tie, 0.0), 65504.0, 65519.0, 65520.0, 3.4e38, 0.0})
        ASSERT_EQ(round_fast(format, x), round_to(format, x)) << format << " " << x;
    }
  EXPECT_TRUE(std::isnan(round_fast(ASSAY_BF16, std::nan(""))));
  EXPECT_EQ(round_fast(ASSAY_FP16, -std::numeric_limits<double>::infinity()),
            -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace assay
