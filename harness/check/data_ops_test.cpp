// SPDX-License-Identifier: Apache-2.0
// The judge of the data ops: right kernels pass on every op, format and scale; each planted fault of
// testing/data_op_faults.cpp is rejected by the check that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

const Backend& data_op_faults() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_data_op_faults.so");
  return backend;
}

Verdict judge(const std::string& line, const std::string& kernel) {
  Judge judge(make_problem(parse_scenario(line)), 1e9);
  return judge.judge(data_op_faults(), *data_op_faults().find(kernel), data_op_faults().device(0));
}

TEST(BlockJudge, RightKernelsPass) {
  struct Right {
    const char *kernel, *line;
    int64_t values, marks;
  };
  const Right cases[] = {
      {"merge_right", "merge_states h=4 d=64 states=5 sinks=on batch=3q9", 27 * 4 * 64, 27 * 4},
      {"merge_right", "merge_states h=4 d=64 from=bf16 out=fp32 strides=q+out batch=3q9", 27 * 4 * 64,
       27 * 4},
      {"merge_right", "merge_states h=4 d=64 batch=2q0", 0, 0},
      // The sign of a zero is no difference where no bits are promised.
      {"merge_right_sign_of_zero", "merge_states h=4 d=64 states=5 batch=3q9", 27 * 4 * 64, 27 * 4},
      {"write_right", "cache_write h=4/2 d=64 pad=3 batch=2q5s20", 10 * 2 * 128, 0},
      {"write_right", "cache_write h=4/2 d=80/48 layout=x kv=fp8_e4m3:channel batch=2q5s20", 10 * 2 * 128, 0},
      {"write_right",
       "cache_write h=4/2 d=64 kv=int8:token_head/bf16 layout=hnd strides=q+kv pad=1 batch=2q9s20",
       18 * 2 * 128, 18 * 2},
      {"write_right", "cache_write h=4/1 d=64/32 layout=mla kv=int8:token_head batch=2q9s20", 18 * 64, 18},
      {"write_right", "cache_write h=4/2 d=64 input=exact from=fp32 kv=int8:head/fp8_e4m3 batch=2q9s20",
       18 * 2 * 128, 0},
      {"write_right", "cache_write h=4/2 d=64 storage=interleaved from=fp32 batch=2q9s20", 18 * 2 * 128, 0},
      {"write_right",
       "cache_write h=4/2 d=64 kv=int8:token_head/bf16 from=codes strides=scales pad=1 batch=2q9s20",
       18 * 2 * 128, 18 * 2},
      {"write_right", "cache_write h=4/2 d=64 kv=fp8_e5m2:host from=codes layout=x batch=2q9s20",
       18 * 2 * 128, 0},
      {"write_right", "cache_write h=4/2 d=64 kv=fp8_e4m3fnuz:token_head from=fp16 batch=2q9s20",
       18 * 2 * 128, 2 * 18 * 2},
      {"write_right",
       "cache_write h=4/1 d=72/64 layout=mla sources=2 kv=int8:token_head strides=q batch=2q9s20", 18 * 72,
       18},
      {"write_right",
       "cache_write h=4/1 d=72/64 layout=mla sources=2 kv=fp8_e4m3:token_head from=codes batch=2q9s20",
       18 * 72, 18},
      {"quantize_right", "quantize_int8 h=4 d=64 q=fp8_e4m3:head batch=3q9", 27 * 4 * 64, 0},
      {"quantize_right", "quantize_int8 h=4 d=64 q=fp8_e5m2fnuz:token_head batch=3q9", 27 * 4 * 64, 27 * 4},
      {"gather_right", "cache_gather h=4/2 d=64 table=csr kv=fp8_e4m3:request_head batch=2q9s40",
       18 * 2 * 128, 0},
      {"gather_right",
       "cache_gather h=4/2 d=64 table=token kv=int8:token_head/int8:channel strides=kv+out "
       "batch=2q9s40",
       18 * 2 * 128, 0},
      {"quantize_right", "quantize_int8 h=4 d=64 strides=scales batch=3q9", 27 * 4 * 64, 27 * 4},
      {"quantize_right", "quantize_int8 h=4 d=64 q=int8:channel scales=computed batch=3q9", 27 * 4 * 64,
       4 * 64},
      {"quantize_right",
       "quantize_int8 h=3 d=33 q=fp8_e4m3:channel scales=computed from=fp32 strides=q+out batch=2q9_1q0",
       18 * 3 * 33, 3 * 33},
      // 3 parts, of which the shorter request fills one: O of empty parts is nobody's.
      {"parts_right", "decode_splitkv h=4/2 d=64 part=64 batch=1q1s150_1q1s20", 4 * 4 * 64, 3 * 2 * 4},
      {"parts_right",
       "decode_splitkv h=4/2 d=64 part=0 states=4 page=16 strides=q+kv+out out=bf16 batch=2q1s150",
       4 * 2 * 4 * 64, 4 * 2 * 4},
      // A window over the last 11 of 40 keys: whole parts before it are empty.
      {"parts_right", "decode_splitkv h=4/2 d=64 part=16 window=10 alibi=sqrt cap=20 batch=1q1s40",
       2 * 4 * 64, 3 * 4},
      {"parts_right",
       "decode_splitkv h=4/1 d=72/64 layout=mla part=0 states=17 kv=int8:token_head batch=1q1s40", 3 * 4 * 64,
       17 * 4},
      {"parts_right", "decode_splitkv h=4/2 d=64 batch=1q1s0_1q0s7", 0, 4},
      {"quantize_right", "quantize_int8 h=4 d=64 q=int8:channel input=exact from=fp32 batch=3q9", 27 * 4 * 64,
       0},
  };
  for (const Right& c : cases) {
    const Verdict v = judge(c.line, c.kernel);
    EXPECT_EQ(v.outcome, Outcome::kPassed) << c.line << ": " << v.reason;
    EXPECT_EQ(v.check, "");
    EXPECT_EQ(v.o.checked, c.values) << c.line;
    EXPECT_EQ(v.lse.checked, c.marks) << c.line;
    EXPECT_LE(v.o.max_ratio, 1) << c.line;
    EXPECT_LE(v.lse.max_ratio, 1) << c.line;
  }
}

TEST(BlockJudge, EachFaultIsNamedByItsCheck) {
  const std::string merge = "merge_states h=4 d=64 states=5 batch=3q9", sunk = merge + " sinks=on";
  const std::string write = "cache_write h=4/2 d=64 batch=2q9s20",
                    gather = "cache_gather h=4/2 d=64 batch=3q20s77";
  const std::string latent = "cache_write h=4/1 d=64/48 layout=mla sources=2 batch=2q9s20";
  const std::string quantize = "quantize_int8 h=4 d=64 batch=3q9";
  const std::string parts = "decode_splitkv h=4/2 d=64 part=64 batch=1q1s150_1q1s20",
                    counted = "decode_splitkv h=4/2 d=64 part=0 states=4 batch=2q1s150";
  const struct {
    std::string kernel, line, check;  // check: alternatives joined by |
  } cases[] = {
      {"merge_base2", merge, "tier D"},
      {"merge_nan_empty", merge, "finite"},
      {"merge_reads_empty", merge, "finite"},
      {"merge_no_maximum", merge, "finite"},
      {"merge_sink_twice", sunk, "tier D"},
      {"merge_no_sink", sunk, "tier D"},
      {"merge_last_state", merge, "tier D"},
      {"merge_mean", merge, "tier D"},
      {"merge_largest_lse", merge, "lse D"},
      {"merge_other_head", merge, "finite"},
      {"merge_empty_rows", merge, "unwritten"},
      {"merge_peeks_empty", merge, "memory"},
      {"write_padding", write + " pad=3", "untouched|tier D"},
      {"write_scale_of_head", write + " kv=fp8_e4m3:head", "tier D"},
      {"write_k_scale_for_v", write + " kv=int8:head", "tier D"},
      {"write_half_away", write + " kv=int8:head input=exact", "tier D"},
      {"write_truncates", write + " kv=int8:token_head", "tier D"},
      {"write_minus_128", write + " kv=int8:head", "tier D"},
      {"write_wraps", write + " kv=int8", "tier D"},
      {"write_dynamic_128", write + " kv=int8:token_head", "scale"},
      {"write_scale_unwritten", write + " kv=int8:token_head", "unwritten"},
      {"write_slot_of_block", write, "unwritten"},
      {"write_wide_store", write, "untouched|tier D|guards"},
      {"write_skips_last", write, "unwritten"},
      {"write_forgets_v", write, "unwritten"},
      {"write_quantises_codes", write + " kv=int8:head from=codes", "tier D"},
      {"write_own_scale", write + " kv=int8:token_head/bf16 from=codes", "scale"},
      {"write_scale_of_rows", write + " kv=fp8_e4m3:token_head from=codes strides=scales", "scale"},
      {"write_rope_first", latent, "tier D"},
      {"write_forgets_rope", latent, "tier D"},
      {"write_scale_of_latent", latent + " kv=int8:token_head", "scale"},
      {"write_scale_of_int8", write + " kv=fp8_e4m3:token_head", "scale"},
      {"write_slots_16_bits", "cache_write h=1 d=8 page=1 blocks=70000 batch=2q9s20", "unwritten"},
      {"write_last_on_page_end", "cache_write h=1 d=8 batch=1q9s20_1q4s32", "unwritten"},
      {"write_even_dims", "cache_write h=3/1 d=33 batch=2q9s20", "unwritten"},
      {"gather_slots_16_bits", "cache_gather h=1 d=8 page=1 blocks=70000 batch=2q9s20", "tier D|finite"},
      {"gather_last_on_page_end", "cache_gather h=1 d=8 page=8 batch=1q9s20_1q32", "unwritten"},
      {"gather_even_dims", "cache_gather h=3/1 d=33 batch=2q9s20", "unwritten"},
      {"quantize_even_dims", "quantize_int8 h=3 d=33 batch=3q9", "unwritten"},
      {"merge_even_dims", "merge_states h=3 d=33 batch=3q9", "unwritten"},
      {"gather_no_start", gather, "tier D"},
      {"gather_first_table", gather, "tier D"},
      {"gather_scale_of_token", gather + " kv=int8:token_head", "tier D"},
      {"gather_scale_of_head", gather + " kv=fp8_e4m3:head", "tier D"},
      {"gather_as_rows", gather + " layout=shuffled", "tier D"},
      {"gather_truncates", gather + " kv=fp8_e4m3:head", "tier D"},
      {"gather_rounds_twice", gather + " kv=fp8_e4m3:head out=fp16", "tier D"},
      {"gather_skips_last", gather, "unwritten"},
      {"quantize_half_away", quantize + " input=exact", "tier D"},
      {"quantize_truncates", quantize, "tier D"},
      {"quantize_minus_128", quantize + " q=int8:channel", "tier D"},
      {"quantize_dynamic_128", quantize, "scale"},
      {"quantize_dense_scales", quantize + " strides=scales", "scale"},
      {"quantize_max_of_positive", quantize, "scale"},
      {"quantize_scale_of_head", quantize + " q=int8:channel", "tier D"},
      {"quantize_scale_of_int8", quantize + " q=fp8_e5m2:token_head", "scale"},
      {"quantize_casts", quantize + " q=fp8_e4m3", "tier D"},
      {"quantize_all_but_last", quantize + " q=int8:channel scales=computed", "scale"},
      {"parts_next_key", parts, "tier D"},
      {"parts_drops_key", parts, "tier D"},
      {"parts_whole", parts, "tier D"},
      {"parts_of_tokens", counted, "tier D"},
      {"parts_empty_zero", parts, "lse D"},
      {"parts_empty_held", parts, "unwritten"},
      {"parts_unnormalised", parts, "tier D"},
      {"parts_maximum_only", parts, "lse D"},
      {"parts_base2", parts, "lse D"},
      {"parts_position", parts + " alibi=linear", "tier D|lse D"},
      {"parts_next_state", counted, "tier D"},
      {"parts_sum_of_heads", parts, "tier D"},
  };
  size_t wrong = 0;
  for (const assay_kernel* kernel : data_op_faults().kernels())
    wrong += std::strstr(kernel->name, "_right") == nullptr && std::strstr(kernel->name, "_vague") == nullptr;
  EXPECT_EQ(wrong, std::size(cases)) << "a fault without a line here";
  for (const auto& c : cases) {
    const Verdict v = judge(c.line, c.kernel);
    EXPECT_EQ(v.outcome, Outcome::kWrong) << c.kernel << " on " << c.line;
    EXPECT_FALSE(v.check.empty());
    EXPECT_NE(("|" + c.check + "|").find("|" + v.check + "|"), std::string::npos)
        << c.kernel << ": " << v.check << ": " << v.reason;
    EXPECT_FALSE(v.reason.empty());
  }
}

// What hides behind a number is met by the suite, not only by a line made for it.
TEST(BlockJudge, TheSuiteReachesWhatHidesBehindANumber) {
  std::vector<std::string> left = {"write_slots_16_bits",  "write_last_on_page_end",  "write_even_dims",
                                   "gather_slots_16_bits", "gather_last_on_page_end", "gather_even_dims",
                                   "quantize_even_dims",   "merge_even_dims"};
  Suite suite = Suite::open("data_ops");
  while (const auto line = suite.next()) {
    const Problem problem = make_problem(line->scenario);
    const bool odd = problem.head_dim_qk % 2 != 0,
               many = int64_t{problem.num_blocks} * problem.page_size > 65536;
    std::optional<Judge> judge;
    std::erase_if(left, [&](const std::string& name) {
      const assay_kernel& kernel = *data_op_faults().find(name);
      if (kernel.op != line->scenario.op || !(name.ends_with("dims") ? odd : many || !name.ends_with("bits")))
        return false;  // a line that cannot show it
      if (!judge) judge.emplace(problem, 1e9);
      return judge->judge(data_op_faults(), kernel, data_op_faults().device(0)).outcome == Outcome::kWrong;
    });
  }
  EXPECT_THAT(left, ::testing::IsEmpty()) << "not met by data_ops.suite";
}

TEST(BlockJudge, BoundsThatAcceptZerosAreNotTrusted) {
  // One row of several states: a state alone is exact whatever its weight.
  const Verdict v = judge("merge_states h=1 d=4 states=8 batch=1q1 seed=3", "merge_vague");
  EXPECT_EQ(v.outcome, Outcome::kUntrusted) << v.reason;
  EXPECT_EQ(v.check, "trust");
}

TEST(BlockJudge, ARefusalCountsUntilTheProblemWasServed) {
  const std::string line = "merge_states h=4 d=64 states=5 batch=3q9";
  assay_kernel kernel = *data_op_faults().find("merge_right");
  static int calls = 0;
  static decltype(assay_kernel::run) right = kernel.run;
  const auto verdict = [&] {
    Judge judge(make_problem(parse_scenario(line)), 1e9);
    calls = 0;
    return judge.judge(data_op_faults(), kernel, data_op_faults().device(0));
  };
  kernel.run = [](const assay_kernel*, const assay_problem*, const assay_tensors*, assay_plan*, void*,
                  char* error,
                  size_t size) -> int { return std::snprintf(error, size, "not today"), ASSAY_UNSUPPORTED; };
  EXPECT_EQ(verdict().outcome, Outcome::kUnsupported);
  kernel.run = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                  void* stream, char* error, size_t size) -> int {
    (void)right(self, p, t, plan, stream, error, size);
    return ASSAY_UNSUPPORTED;
  };
  EXPECT_EQ(verdict().outcome, Outcome::kWrong) << "it wrote";
  kernel.run = [](const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                  void* stream, char* error, size_t size) -> int {
    return calls++ == 0 ? right(self, p, t, plan, stream, error, size) : ASSAY_UNSUPPORTED;
  };
  EXPECT_EQ(verdict().outcome, Outcome::kWrong) << "it ran before";
  EXPECT_EQ(verdict().check, "refusal");
}

TEST(BlockJudge, SaysWhereAndWhat) {
  const Verdict v = judge("cache_write h=4/2 d=64 kv=int8:token_head batch=2q9s20", "write_dynamic_128");
  EXPECT_THAT(v.reason, HasSubstr("scale wrong in "));
  EXPECT_THAT(v.reason, HasSubstr("request "));
  EXPECT_GT(v.lse.max_ratio, 1);
}

TEST(BlockJudge, NamesTheElementThatFollowsUnusedMemory) {
  const Verdict v = judge("merge_states h=4 d=64 states=5 batch=3q9", "merge_peeks_empty");
  EXPECT_THAT(v.reason,
              MatchesRegex("the result changes with the contents of unused memory: LSE at request "
                           "[0-9]+ row [0-9]+ head [0-9]+ is [-.0-9]+, then [-.0-9]+; what is read: "
                           "partial_o state 0 row 0 head 0 dim 0"));
}

// What a timed call left is judged like the first run; a byte changed since then shows.
TEST(BlockJudge, ChecksAgainAfterTiming) {
  Judge judge(make_problem(parse_scenario("cache_write h=4/2 d=64 pad=2 batch=2q9s20")), 1e9);
  const assay_kernel& kernel = *data_op_faults().find("write_right");
  ASSERT_EQ(judge.judge(data_op_faults(), kernel, data_op_faults().device(0)).outcome, Outcome::kPassed);
  const assay_problem* view = judge.inputs().view->get();
  DeviceCase& device = judge.device_case();
  ASSERT_TRUE(call_run(data_op_faults(), kernel, view, device.tensors(), nullptr).ok());
  EXPECT_EQ(judge.recheck().outcome, Outcome::kPassed);
  EXPECT_EQ(judge.recheck().check, "unwritten");  // poisoned again, and nothing ran since

  ASSERT_TRUE(call_run(data_op_faults(), kernel, view, device.tensors(), nullptr).ok());
  // A slot that no row of the batch goes to: the first token of the first request.
  const int32_t block = judge.inputs().problem.pages[0][0];
  static_cast<unsigned char*>(device.tensors()->k.data)[block * device.tensors()->k.stride[0] * 2] ^= 1;
  const Verdict v = judge.recheck();
  EXPECT_EQ(v.outcome, Outcome::kWrong);
  EXPECT_EQ(v.check, "untouched");
  EXPECT_THAT(v.reason, HasSubstr("1 bytes of k changed"));
}

}  // namespace
}  // namespace assay
