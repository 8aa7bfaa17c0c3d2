// SPDX-License-Identifier: Apache-2.0
// Attention by a schedule and its merge: what inputs draw is a schedule, right kernels pass whatever it is,
// wrong ones are rejected, and with a schedule that a stage made they are a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "harness/check/testing/judged_step.hpp"
#include "harness/input/schedules.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using testkit::cpu;
using testkit::frozen;
using testkit::judge;

constexpr int64_t kHead = 1, kEndRow = 3, kFirstKey = 4, kEndKey = 5, kPartial = 6;  // columns of work

int32_t& entry(const assay_tensor& t, int64_t i, int64_t j = 0) {
  return static_cast<int32_t*>(t.data)[i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0)];
}
// Calls edit(row of work) for all there are, in lists of their own.
template <class Edit>
testkit::Spoil each_work(Edit edit) {
  return [edit](assay_problem& p, assay_tensors& t) mutable {
    t.work_info = frozen(t.work_info);
    for (int64_t i = 0; i < entry(t.work_indptr, p.workers); ++i) edit(p, t.work_info, i);
  };
}

TEST(Persistent, WhatIsDrawnIsASchedule) {
  std::mt19937 random(5);
  for (int n = 0; n < 300; ++n) {
    Problem p;
    p.op = ASSAY_OP_PERSISTENT_PREFILL;
    p.heads_q = p.heads_kv = 1 + static_cast<int32_t>(random() % 3);
    p.workers = 1 + static_cast<int32_t>(random() % 20), p.seed = random();
    p.tile_rows = 1 + static_cast<int32_t>(random() % 20),
    p.tile_keys = 1 + static_cast<int32_t>(random() % 20);
    for (int r = static_cast<int>(random() % 5); r >= 0; --r)
      p.requests.push_back({static_cast<int32_t>(random() % 40), static_cast<int32_t>(random() % 60)});
    const auto fault = schedule_fault(p.q_lens(), p.kv_lens(), schedule_shape(p), draw_schedule(p));
    EXPECT_FALSE(fault.has_value()) << fault->list << fault->row << ": " << fault->text;
  }
}

const std::string kPersistentPrefill =
    "persistent_prefill h=4/2 d=32 workers=5 tile=4/8 batch=1q9s30_2q3s50_1q0s9_1q6s3 seed=1";
const std::string kPersistentPaged =
    "persistent_paged h=4/2 d=32 workers=7 tile=1/16 page=8 batch=2q1s90_1q3s40_1q1s0 seed=2";
const std::string kReduce = "reduce h=4/2 d=32 workers=6 tile=4/8 batch=1q9s30_2q3s50_1q6s3 seed=3";

TEST(Persistent, RightKernelsPass) {
  for (const std::string& line :
       {kPersistentPrefill, kPersistentPaged, kReduce,
        std::string("persistent_prefill h=2 d=48/32 workers=3 tile=16 batch=2q0s9"),
        std::string("persistent_prefill h=2 d=192/128 workers=1 tile=16 batch=1q30"),
        std::string("reduce h=2 d=32 workers=1 tile=4/8 batch=1q30")}) {
    const Verdict v = judge(cpu(), line, line.substr(0, line.find(' ')) + "_cpu");
    EXPECT_EQ(v.outcome, Outcome::kPassed) << line << ": " << v.reason;
  }
}

TEST(Persistent, WrongAttentionIsRejected) {
  using P = assay_problem;
  using T = assay_tensors;
  const auto cut = [](const assay_tensor& work, int64_t i) { return entry(work, i, kPartial) >= 0; };
  std::vector<testkit::KernelFault> faults;
  for (const auto& [kernel, line] : {std::pair{"persistent_prefill_cpu", kPersistentPrefill},
                                     {"persistent_paged_cpu", kPersistentPaged}}) {
    faults.insert(faults.end(),
                  {
                      {kernel, "keys_from_the_first", line,
                       each_work([](P&, const assay_tensor& w, int64_t i) { entry(w, i, kFirstKey) = 0; })},
                      {kernel, "a_key_less", line,
                       each_work([](P&, const assay_tensor& w, int64_t i) { entry(w, i, kEndKey) -= 1; })},
                      {kernel, "parts_as_the_whole", line,
                       each_work([](P&, const assay_tensor& w, int64_t i) { entry(w, i, kPartial) = -1; })},
                      {kernel, "parts_in_their_order", line,
                       each_work([cut, next = 0](P&, const assay_tensor& w, int64_t i) mutable {
                         next = i == 0 ? 0 : next;
                         if (cut(w, i)) entry(w, i, kPartial) = next++;
                       })},
                      {kernel, "other_head", line, each_work([](P& p, const assay_tensor& w, int64_t i) {
                         entry(w, i, kHead) = (entry(w, i, kHead) + 1) % p.heads_kv;
                       })},
                      {kernel, "first_work_twice", line,
                       [](P& p, T& t) {
                         t.work_indptr = frozen(t.work_indptr);
                         for (int64_t i = 1; i < p.workers; ++i)
                           if (entry(t.work_indptr, i + 1) > entry(t.work_indptr, i) + 1)
                             ++entry(t.work_indptr, i);
                         entry(t.work_indptr, p.workers) -= 1;
                       }},
                      {kernel, "workers_but_one", line, [](P& p, T&) { p.workers -= p.workers > 1 ? 1 : 0; }},
                      {kernel, "lse_of_the_row_before", line,
                       [](P&, T& t) {
                         t.partial_lse.data =
                             static_cast<float*>(t.partial_lse.data) + t.partial_lse.stride[2];
                       }},
                      {kernel, "heads_of_a_tile_exchanged", line,
                       [](P&, T& t) {
                         t.partial_o.data = static_cast<float*>(t.partial_o.data) + t.partial_o.stride[2];
                         t.partial_o.stride[2] = -t.partial_o.stride[2];
                       }},
                  });
  }
  faults.push_back({"persistent_prefill_cpu", "a_row_less", kPersistentPrefill,
                    each_work([](P&, const assay_tensor& w, int64_t i) { entry(w, i, kEndRow) -= 1; })});
  faults.push_back({"persistent_prefill_cpu", "partials_of_packed_rows", kPersistentPrefill,
                    [](P&, T& t) { t.partial_o.stride[0] = t.partial_o.stride[1]; }});
  testkit::expect_rejected(faults);
}

TEST(Persistent, WrongMergesAreRejected) {
  using P = assay_problem;
  using T = assay_tensors;
  testkit::expect_rejected({
      {"reduce_cpu", "parts_in_their_order", kReduce,
       [](P& p, T& t) {
         t.reduce_partial_map = frozen(t.reduce_partial_map);
         for (int32_t i = 0; i < entry(t.reduce_indptr, p.workers); ++i) entry(t.reduce_partial_map, i) = i;
       }},
      {"reduce_cpu", "a_part_less", kReduce,
       [](P& p, T& t) {
         // To the end of the list: behind the last tile nothing may become a tile, its rows are no rows.
         t.reduce_indptr = frozen(t.reduce_indptr);
         const int32_t parts = entry(t.reduce_indptr, p.workers);
         for (int64_t i = p.workers; i > 0 && entry(t.reduce_indptr, i) == parts; --i)
           --entry(t.reduce_indptr, i);
       }},
      {"reduce_cpu", "other_head", kReduce,
       [](P& p, T& t) {
         t.reduce_final_map = frozen(t.reduce_final_map);
         for (int64_t i = 0; i < p.workers; ++i) entry(t.reduce_final_map, i, 2) ^= 1;
       }},
      {"reduce_cpu", "tiles_but_one", kReduce, [](P& p, T&) { p.workers = 2; }},
      {"reduce_cpu", "first_row_for_all", kReduce, [](P&, T& t) { t.partial_o.stride[1] = 0; }},
      {"reduce_cpu", "weights_of_the_next_head", kReduce,
       [](P&, T& t) {
         t.partial_lse.data = static_cast<float*>(t.partial_lse.data) + t.partial_lse.stride[2];
         t.partial_lse.stride[2] = -t.partial_lse.stride[2];
       }},
      {"reduce_cpu", "equal_weights", kReduce,
       [](P&, T& t) {
         static std::vector<float> zeros;
         const assay_tensor& lse = t.partial_lse;
         zeros.assign(static_cast<size_t>(lse.shape[0] * lse.stride[0]), 0.0f);
         t.partial_lse.data = zeros.data();
       }},
  });
}

const std::string kStep = "step h=2 d=48/32 kv=fp8_e4m3:tensor workers=6 ";

// With an fp8 cache and no context by a schedule; in chunks otherwise.
TEST(Persistent, StagesOfAPrefillAreRightInEveryBranch) {
  const std::string scheduled = "write q_cast k_cast v_cast schedule tiles reduce";
  const struct {
    std::string line, stages;  // of step_aiter_mla_prefill_cpu, in order
  } cases[] = {
      {kStep + "batch=1q300_2q20_1q130", scheduled},
      {kStep + "batch=1q0_3q5", scheduled},  // no tile is cut
      {"step h=2 d=48/32 kv=fp8_e4m3fnuz:head/fp8_e4m3fnuz:channel workers=9 out=fp32 pad=2 strides=q+kv+out "
       "batch=1q260_1q9",
       scheduled},
      {"step h=4/2 d=48/32 q=fp8_e4m3:tensor kv=fp8_e4m3:host workers=132 batch=1q260_1q9",
       "write k_cast v_cast schedule tiles reduce"},
      {kStep + "from=fp32 q=fp16 layout=hnd page=8 table=csr batch=1q140_1q9", scheduled},
      {kStep + "budget=64 batch=1q20_1q5s60", "write chunks lengths new gather context merge"},
      {"step h=2 d=48/32 batch=1q20", "write new"},
      {"step h=2 d=48/32 kv=fp8_e4m3:token_head batch=1q20", "write new"},
      {kStep + "batch=2q0", ""},
  };
  testkit::expect_right({"step_aiter_mla_prefill_cpu"}, cases);
  testkit::expect_refused("step_aiter_mla_prefill_cpu",
                          {{"step h=2/1 d=48/32 layout=mla batch=1q9", "latent keys"},
                           {kStep + "window=5 batch=1q6s30", "a window"},
                           {kStep + "alibi=linear batch=1q6s30", "a bias"},
                           {kStep + "cap=5 batch=1q6", "a soft cap"},
                           {kStep + "sinks=on batch=1q6", "sinks"},
                           {kStep + "chunk=16 batch=1q6", "local attention"},
                           {kStep + "threshold=8 mask=tree batch=1q6s30", "drafts of a tree"},
                           {kStep + "q=fp8_e4m3 batch=1q6s30", "quantised Q beside context"}});
}

// Decodes of absorbed heads, with the persistent schedule and without.
TEST(Persistent, DecodesBySchedule) {
  const std::string line = "step h=16/1 d=96/64 layout=mla page=8 workers=7 batch=3q1s40_1q1s300_1q1s1";
  const std::string kernel = "step_aiter_mla_cpu(decode=persistent_paged_cpu)";
  EXPECT_EQ(testkit::stages_of(kernel, line), "write tokens schedule decode reduce");
  EXPECT_EQ(judge(cpu(), line, kernel).outcome, Outcome::kPassed);
  // Several rows of a request: none is made.
  EXPECT_EQ(testkit::stages_of(kernel, "step h=16/1 d=96/64 layout=mla batch=2q2s40"), "write tokens extend");
}

// The seed's among them: parts counted by the last entry of a list that is longer than the batch, Q cast
// with the scale of K, new keys that nobody casts.
TEST(Persistent, WrongStagesAreRejected) {
  using P = assay_problem;
  using T = assay_tensors;
  const std::string line = kStep + "batch=1q300_2q20_1q130 seed=4";
  testkit::expect_rejected(
      "step_aiter_mla_prefill_cpu",
      {
          {"q_cast", "q_by_the_scale_of_k", line, [](P& p, T&) { p.q_scale_host = 0.25f; }},
          {"k_cast", "k_by_a_scale_of_1", line,
           [](P& p, T&) { p.q_scale_kind = ASSAY_SCALE_HOST, p.q_scale_host = 1; }},
          {"v_cast", "v_in_another_format", line,
           [](P& p, T& t) { p.q_format = t.q.format = ASSAY_FP8_E5M2; }},
          {"schedule", "tiles_of_a_head_less", line, [](P& p, T&) { p.heads_kv -= 1; }},
          {"schedule", "not_the_last_request", line, [](P& p, T&) { p.requests -= 1; }},
          {"schedule", "lengths_exchanged", line,
           [](P&, T& t) {
             t.kv_len = frozen(t.kv_len);
             std::swap(entry(t.kv_len, 0), entry(t.kv_len, 1));
           }},
          {"tiles", "rows_by_head_first", line,
           [](P&, T& t) { std::swap(t.o.stride[0], t.o.stride[1]), std::swap(t.o.shape[0], t.o.shape[1]); }},
          {"tiles", "codes_without_scale", line,
           [](P& p, T&) { p.k_scale_kind = p.v_scale_kind = ASSAY_SCALE_NONE; }},
          {"reduce", "merges_nothing", line, [](P& p, T&) { p.workers = 0; }},
          {"reduce", "all_but_the_last_tile", line,
           [](P& p, T& t) {
             int32_t tiles = 0;
             while (tiles < p.workers && entry(t.reduce_indptr, tiles + 1) > entry(t.reduce_indptr, tiles))
               ++tiles;
             p.workers = tiles - 1;
           }},
      });
}

}  // namespace
}  // namespace assay
