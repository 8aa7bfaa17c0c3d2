// SPDX-License-Identifier: Apache-2.0
// Steps of models with an encoder, and of hybrid caches: cross attention to the encoder's tokens, which stand
// first in a request's row of the table; the decoder's own behind them; an encoder's rows among themselves; a
// table of another pool; Q cast to an 8-bit cache. Every branch is right, what is not taken is named, wrong
// stages are rejected, among them what the seeds do (T in scenarios/SEED_COVERAGE.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/check/testing/judged_step.hpp"
#include "harness/check/testing/planted_stage.hpp"
#include "harness/input/inputs.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using testkit::cpu;
using testkit::expect_refused;
using testkit::expect_rejected;
using testkit::expect_right;
using testkit::judge;
using testkit::stages_of;

struct EncoderCase {
  std::string line, stages;
};
const std::string kCross = "step h=4/2 d=64 page=8 mask=cross ";
const std::string kBehind = "step h=4/2 d=64 page=8 encoder=19 ";
const std::string kRows = "step h=4/2 d=64 mask=full write=off ";
const std::string kPool = "step h=4/2 d=64 page=4 chunk=8 pool=full ";

TEST(EncoderSteps, CrossAttentionIsRightInEveryForm) {
  const std::string batch = "batch=2q3s40_1q1s9_1q2s0_1q0s5_1q20s3";
  const std::vector<EncoderCase> cases = {
      {kCross + batch, "write cross"},
      {kCross + "table=token " + batch, "write cross"},
      {kCross + "write=off table=token " + batch, "cross"},
      {"step h=4/2 d=64 page=1 mask=cross write=off table=token " + batch, "cross"},
      {kCross + "kv=fp8_e4m3:head sinks=on cap=5 pad=3 strides=q+kv+out+table " + batch,
       "write q_cast cross"},
      {kCross + "kv=int8:token_head/int8:channel layout=hnd table=csr " + batch, "write cross"},
      {kCross + "input=exact " + batch, "write cross"},
      {kCross + "batch=2q0s40", "write"},
      {kCross + "write=off batch=2q0s40", ""},
  };
  expect_right({"step_unified_cpu", "step_sglang_fa_cpu"}, cases);
}

TEST(EncoderSteps, WriteTheEncodersKeysAndNoOthers) {
  const Inputs inputs = build_inputs(make_problem(parse_scenario(kCross + "pad=2 batch=1q3s9_1q1s0_1q2s4")));
  const assay_tensors& t = inputs.tensors;
  EXPECT_EQ(t.dense_k.shape[0], 9 + 0 + 4 + 2) << "keys of the encoders and padding";
  EXPECT_EQ(t.q.shape[0], 3 + 1 + 2 + 2);
  EXPECT_EQ(t.context_len.data, nullptr);
  EXPECT_EQ(t.slot_mapping.shape[0], t.dense_k.shape[0]);
  EXPECT_EQ(static_cast<const int64_t*>(t.slot_mapping.data)[13], -1);
  const Inputs there = build_inputs(make_problem(parse_scenario(kCross + "write=off batch=1q3s9")));
  EXPECT_EQ(there.tensors.dense_k.data, nullptr);
  EXPECT_EQ(there.tensors.slot_mapping.data, nullptr);
}

// Rows of the table begin with as many entries of somebody else as the encoder has tokens or pages.
TEST(EncoderSteps, TablesBeginWithTheEncoder) {
  for (const char* table : {"block", "token"}) {
    const Problem p = make_problem(parse_scenario(kBehind + "table=" + table + " batch=1q3s40_3q1s9 seed=2"));
    ASSERT_EQ(p.encoder_len.size(), 4u);
    EXPECT_EQ(p.encoder_len[0], 19);
    EXPECT_LE(*std::max_element(p.encoder_len.begin(), p.encoder_len.end()), 19);
    const Inputs inputs = build_inputs(p);
    const assay_tensor& t = inputs.tensors.block_table;
    const bool tokens = p.table == ASSAY_TABLE_TOKEN;
    for (size_t r = 0; r < 4; ++r) {
      const auto* row = static_cast<const int32_t*>(t.data) + static_cast<int64_t>(r) * t.stride[0];
      const int32_t before = tokens ? p.encoder_len[r] : (p.encoder_len[r] + 7) / 8;
      EXPECT_EQ(tokens ? row[before] / 8 : row[before], p.pages[r][0]) << table;
      for (int32_t i = 0; i < before; ++i)
        for (const std::vector<int32_t>& pages : p.pages)
          EXPECT_EQ(std::count(pages.begin(), pages.end(), tokens ? row[i] / 8 : row[i]), 0) << "nobody's";
    }
  }
}

TEST(EncoderSteps, DecodersStandBehindTheirEncoders) {
  const std::string mixed = "batch=2q1s40_1q9s30_1q12_1q0s5_1q1s1";
  const std::vector<EncoderCase> cases = {
      {kBehind + "batch=3q1s40_1q1s300", "write decoder decode"},
      {kBehind + mixed, "write decoder extend"},
      {kBehind + "table=token pad=3 strides=q+kv+out+table " + mixed, "write decoder extend"},
      {"step h=4/2 d=64 page=1 encoder=19 table=token alibi=linear cap=5 sinks=on " + mixed,
       "write decoder extend"},
      {"step h=4/2 d=64 page=16 encoder=1 kv=fp8_e4m3:head threshold=3 table=token batch=3q3s40_1q1s9",
       "write q_cast decoder decode"},
      {kBehind + "write=off kv=int8:token_head/int8:channel layout=hnd " + mixed, "decoder extend"},
      {kBehind + "input=exact " + mixed, "write decoder extend"},
  };
  expect_right({"step_sglang_fa_cpu"}, cases);
}

TEST(EncoderSteps, RowsOfAnEncoderSeeEachOther) {
  const std::string batch = "batch=2q9_1q40_1q1_1q0";
  expect_right(
      {"step_unified_cpu", "step_ixformer_fa_cpu"},
      std::vector<EncoderCase>{{kRows + batch, "encoder"},
                               {kRows + "window=6/6 cap=5 pad=2 strides=q+kv+out " + batch, "encoder"},
                               {kRows + "alibi=sqrt sinks=on out=fp32 " + batch, "encoder"},
                               {kRows + "batch=2q0", ""}});
}

TEST(EncoderSteps, TablesOfAnotherPoolGoThroughTheMap) {
  const std::string batch = "batch=2q6s40_1q5s9_1q1s8_1q0s5";
  std::vector<EncoderCase> cases;
  for (const char* table : {"block", "csr", "token"})
    cases.push_back({kPool + "table=" + table + " kv=bf16 " + batch, "write local extend"});
  cases.push_back({kPool + "table=token kv=fp8_e4m3:head window=3 " + batch, "write q_cast local extend"});
  expect_right({"step_sglang_fa_cpu"}, cases);
}

// Where heads are wider than 256 dimensions, or formats differ, Q is attended as it came.
TEST(EncoderSteps, QIsCastToAnEightBitCache) {
  const std::string h = "step h=4/2 page=8 batch=2q1s40_1q9s30 ";
  expect_right(
      {"step_sglang_fa_cpu"},
      std::vector<EncoderCase>{{h + "d=256 kv=fp8_e4m3", "write q_cast extend"},
                               {h + "d=264 kv=fp8_e4m3", "write extend"},
                               {h + "d=64 kv=fp8_e5m2:head pad=2 strides=q+kv+out", "write q_cast extend"},
                               {h + "d=64 kv=fp8_e4m3fnuz:host", "write q_cast extend"},
                               // What Q spells is lost in the cast, and its answer is asked of nobody.
                               {"step h=1 d=64 kv=fp8_e5m2 scale=3.95e+20 batch=1q1s2 input=incidence "
                                "seed=705368",
                                "write q_cast decode"},
                               {h + "d=64 kv=fp8_e4m3/bf16", "write extend"},
                               {h + "d=64 kv=int8:channel", "write extend"},
                               {h + "d=64 q=fp8_e4m3:tensor kv=fp8_e4m3", "write extend"}});
}

TEST(EncoderSteps, WhatIsNotTakenIsNamed) {
  const std::string rows = "batch=1q9s30";
  expect_refused("step_sglang_fa_cpu",
                 {{kBehind + "window=7 " + rows, "a window in a model with an encoder"},
                  {kBehind + "chunk=8 " + rows, "local attention in chunks behind an encoder"},
                  {kBehind + "mask=tree " + rows, "drafts of a tree behind an encoder"},
                  {"step h=4/2 d=64 pool=full " + rows, "a table of another pool, supported that of local"},
                  {kRows + "batch=1q9", "required the rows of an encoder, supported those of a decoder"}});
  expect_refused("step_ixformer_fa_cpu",
                 {{kRows + "kv=fp8_e4m3 batch=1q9", "an encoder beside a cache of codes"},
                  {kCross + rows, "required cross attention"},
                  {kBehind + rows, "a table that begins with an encoder"}});
  for (const char* kernel : {"step_aiter_fa_cpu", "step_mla_prefill_cpu", "step_aiter_mla_prefill_cpu"})
    expect_refused(kernel, {{kCross + rows, "required cross attention"},
                            {kRows + "batch=1q9", "the rows of an encoder"},
                            {kBehind + rows, "a table that begins with an encoder"},
                            {kPool + rows, "a table of another pool"}});
  expect_refused("step_unified_cpu", {{kBehind + rows, "a table that begins with an encoder"},
                                      {kPool + rows, "a table of another pool"}});
  for (const auto& [line, why] :
       {std::pair{kCross + "window=7 " + rows, "to which rows have no distance"},
        {kCross + "alibi=linear " + rows, "to which rows have no distance"},
        {kCross + "encoder=9 " + rows, "mask=cross attends to the encoder itself"},
        {kCross + "batch=5q3s200p64", "has an encoder of its own"},
        {kBehind + "table=csr " + rows, "take table=block or token"},
        {std::string("paged encoder=9 batch=1q9s30"), "unknown"},
        {std::string("step mask=full batch=1q9"), "kept in no cache; write write=off"},
        {std::string("step mask=full write=off batch=1q9s30"), "groups without s"}})
    try {
      parse_scenario(line);
      ADD_FAILURE() << line;
    } catch (const InputError& e) {
      if (std::string(why) != "unknown") {
        EXPECT_THAT(e.what(), HasSubstr(why)) << line;
      }
    }
}

TEST(EncoderSteps, WrongStagesAreRejected) {
  using P = assay_problem;
  using T = assay_tensors;
  const std::string cross = kCross + "table=token batch=1q1s9_2q3s40 seed=3", there = cross + " write=off";
  const std::string tokens = kBehind + "table=token batch=2q3s40_1q1s9_1q2s30 seed=3";
  const std::string pages = kBehind + "batch=2q3s40_1q1s9_1q2s30 seed=3";
  // Every length as the rule has it.
  const auto encoders = [](const P& p, T& t, auto rule) {
    static std::vector<int32_t> lengths;
    lengths.clear();
    for (int32_t r = 0; r < p.requests; ++r) lengths.push_back(rule(p.encoder_len[r]));
    t.encoder_len = testkit::list_of(lengths.data(), p.requests);
  };
  expect_rejected(
      "step_sglang_fa_cpu",
      {
          {"cross", "encoder_never_pages", there,  // T: slots taken for pages
           [](P& p, T& t) {
             static std::vector<int32_t> slots;
             slots.clear();
             for (int64_t i = 0; i < t.block_table.shape[0] * t.block_table.stride[0]; ++i)
               slots.push_back(static_cast<const int32_t*>(t.block_table.data)[i] & 0x3fffffff);
             for (int32_t& slot : slots) slot %= static_cast<int32_t>(t.k.shape[0]);  // what memory there is
             p.table = ASSAY_TABLE_BLOCK, t.block_table.data = slots.data();
           }},
          {"cross", "causal_encoder", there, [](P& p, T&) { p.mask = ASSAY_MASK_CAUSAL; }},
          {"cross", "one_encoder_length", there, [](P&, T& t) { t.kv_len.stride[0] = 0; }},
          {"cross", "one_encoder_table", there,
           [](P&, T& t) {  // of the last request, which is as long as any
             t.block_table.data = static_cast<int32_t*>(t.block_table.data) + 2 * t.block_table.stride[0];
             t.block_table.stride[0] = 0;
           }},
          {"cross", "window_over_encoder", there, [](P& p, T&) { p.window_left = 5; }},
          {"write", "keys_of_rows_alone", cross, [](P& p, T&) { p.rows = 7; }},
          {"decoder", "table_from_the_encoder", tokens, [](P&, T& t) { t.encoder_len = assay_tensor{}; }},
          {"decoder", "table_from_the_encoder_pages", pages,
           [](P&, T& t) { t.encoder_len = assay_tensor{}; }},
          {"decoder", "one_token_short", tokens,
           [=](P& p, T& t) { encoders(p, t, [](int32_t n) { return std::max(0, n - 1); }); }},
          {"decoder", "last_page_of_encoder", pages,
           [=](P& p, T& t) { encoders(p, t, [&](int32_t n) { return n / p.page_size * p.page_size; }); }},
          {"decoder", "one_encoder_for_all", tokens,  // the seed takes one request
           [=](P& p, T& t) {
             const int32_t least = *std::min_element(p.encoder_len, p.encoder_len + p.requests);
             encoders(p, t, [=](int32_t) { return least; });
           }},
          {"local", "map_one_page_off", kPool + "batch=2q6s40_1q5s9 seed=3",
           [](P& p, T& t) {
             static std::vector<int32_t> map;
             const auto* own = static_cast<const int32_t*>(t.slot_map.data);
             map.assign(own, own + t.slot_map.shape[0]);
             std::rotate(map.begin(), map.begin() + p.page_size, map.end());
             t.slot_map.data = map.data();
           }},
          {"q_cast", "cast_by_a_scale", "step h=4/2 d=64 kv=fp8_e4m3 batch=2q1s40 seed=3",
           [](P& p, T&) { p.q_scale_host = 2; }},
          {"decode", "cast_forgotten", "step h=4/2 d=64 kv=fp8_e4m3 batch=2q1s40 seed=3",
           [](P& p, T&) { p.q_scale_host = 0.5f; }},
      });
  const std::string rows = kRows + "window=6/6 batch=2q9_1q40 seed=3";
  expect_rejected(
      "step_ixformer_fa_cpu",
      {{"encoder", "window_of_one_side", rows, [](P& p, T&) { p.window_right = 0; }},  // T
       {"encoder", "window_beyond", rows, [](P& p, T&) { ++p.window_left; }},
       {"encoder", "causal_rows", rows, [](P& p, T&) { p.mask = ASSAY_MASK_CAUSAL; }},
       {"encoder", "keys_of_first", rows, [](P&, T& t) { t.cu_kv.data = t.cu_q.data, t.k.stride[0] = 0; }}});
}

}  // namespace
}  // namespace assay
