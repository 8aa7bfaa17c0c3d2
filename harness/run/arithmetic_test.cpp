// SPDX-License-Identifier: Apache-2.0
// Declarations in words and as JSON: every field that changes a bound changes the text, and the longest chain
// is that of the problem.
#include "harness/run/arithmetic.hpp"

#include <gtest/gtest.h>

#include <map>

#include "harness/device/testing/small_problem.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

std::map<std::string, std::string> words(const assay_arithmetic& a, Problem p = testkit::small_problem()) {
  std::map<std::string, std::string> all;
  for (const auto& [name, text] : arithmetic_words(p, a)) all[name] = text;
  return all;
}

assay_arithmetic hopper_fp8() {
  assay_arithmetic a = default_arithmetic();
  a.qk = a.pv = {ASSAY_ACC_BLOCK, 32, 13, 13};
  a.promote_pv = 1;
  a.tile_keys = 128;
  a.tile_reverse = 1;
  a.order_declared = 1;
  a.splits = 4;
  a.p_format = ASSAY_FP8_E4M3;
  a.p_offset_log2 = 8;
  a.exp_relative_error = 0x1p-22;
  a.exp_poly_every = 4;
  a.exp_poly_relative_error = 8.9e-5;
  a.partial_format = ASSAY_BF16;
  a.dequant_format = ASSAY_BF16;
  a.rescale_lag_log2 = 8;
  return a;
}

TEST(ArithmeticWords, SayWhatIsDeclared) {
  auto w = words(hopper_fp8());
  EXPECT_EQ(w["QK product"], "blocks of 32, 13 fraction bits, 13 mantissa bits, truncated");
  EXPECT_EQ(w["PV product"],
            "blocks of 32, 13 fraction bits, 13 mantissa bits, truncated, each tile apart, added in fp32");
  EXPECT_EQ(w["tiles"], "128 keys, last to first");
  EXPECT_EQ(w["splits"], "up to 4 parts");
  EXPECT_EQ(w["order"], "declared: the rounding of P is replayed");
  EXPECT_EQ(w["running maximum"], "rescales beyond 2^8");
  EXPECT_EQ(w["exponential"], "2^-22, every 4. key 2^-13.46");
  EXPECT_EQ(w["P"], "fp8_e4m3 x 2^8");
  EXPECT_EQ(w["partial O, LSE"], "bf16, fp32");
  EXPECT_EQ(w["K, V"], "dequantised to bf16");
  EXPECT_EQ(w.count("sink") + w.count("tanh"), 0u);  // the problem has neither
  w = words(default_arithmetic());
  EXPECT_EQ(w["tiles"], "undeclared");
  EXPECT_EQ(w["P"], "fp32");
  EXPECT_EQ(w["row sum"], "of exact P, one chain");
  assay_arithmetic a = default_arithmetic();
  a.p_format = ASSAY_INT8;
  a.split_keys = 256;
  EXPECT_EQ(words(a)["P"], "int8, 127 = 1");
  EXPECT_EQ(words(a)["splits"], "parts of 256 keys");
  a.p_int8_tile_max = a.p_truncated = 1;
  EXPECT_EQ(words(a)["P"], "int8, 127 = largest of the tile, toward zero");
}

TEST(ArithmeticWords, SayWhatIsRare) {
  Problem p = testkit::small_problem();
  p.softcap = 20;
  p.alibi = ASSAY_ALIBI_LINEAR;
  auto w = words(default_arithmetic(), p);
  EXPECT_EQ(w["tanh"], "2^-11");
  EXPECT_EQ(w["logarithm"], "2^-21 absolute, undeclared");
  EXPECT_EQ(w["position bias"], "slope x distance");
  assay_arithmetic a = hopper_fp8();
  a.tanh_absolute_error = 0x1p-23;
  a.log_absolute_error = a.log_relative_error = 0x1p-22;
  a.bias_form = ASSAY_BIAS_COLUMN;
  a.row_sum = {ASSAY_ACC_BLOCK, 16, 25, 23};
  a.row_sum_from_rounded_p = 1;
  a.q_rounding = 0x1p-9, a.q_rounding_absolute = 0x1p-25;
  a.q_replayed_format = ASSAY_FP16, a.q_replayed_factor = 0.125;
  a.p_roundings = 2, a.partial_roundings = 3;
  a.split_interleaved = a.splits_vary = 1;
  a.promote_every = 4;
  w = words(a, p);
  EXPECT_EQ(w["tanh"], "2^-11 and 2^-23 absolute");
  EXPECT_EQ(w["logarithm"], "2^-22 and 2^-22 absolute");
  EXPECT_EQ(w["position bias"], "slope x column");
  EXPECT_EQ(w["row sum"], "of rounded P, blocks of 16, 25 fraction bits, 23 mantissa bits, truncated");
  EXPECT_EQ(
      w["Q"],
      "times 0.125 rounded to fp16, repeated by the reference; rounded again by 2^-9 and 2^-25 absolute");
  assay_arithmetic folded = a;
  folded.q_replayed_scales = 1, folded.q_rounding = folded.q_rounding_absolute = 0;
  EXPECT_EQ(words(folded, p)["Q"],
            "times 0.125 and scales per channel rounded to fp16, repeated by the reference");
  EXPECT_EQ(arithmetic_json(p, folded)["q_replayed_scales"], 1);
  EXPECT_EQ(w["P"], "fp8_e4m3 x 2^8, rounded 2 times");
  EXPECT_EQ(w["partial O, LSE"], "bf16, fp32, rounded 3 times");
  EXPECT_EQ(w["splits"], "up to 4 parts, tiles in turn, fewer for some requests");
  EXPECT_NE(w["PV product"].find("every 4 tiles apart"), std::string::npos);
  assay_arithmetic cut = hopper_fp8();
  cut.item_rows = 16, cut.shares = 132, cut.share_turns = 2;
  EXPECT_EQ(words(cut, p)["splits"],
            "up to 4 parts, of items of 16 rows, of 132 shares of all tiles, tiles dealt to 2");
  assay_arithmetic chained = hopper_fp8();
  chained.splits_vary = 1, chained.chained_requests = ASSAY_REQUEST_DECODE | ASSAY_REQUEST_EXTEND;
  EXPECT_EQ(words(chained, p)["splits"],
            "up to 4 parts, fewer for some requests, chains of chunks for decodes, extends");
  EXPECT_EQ(arithmetic_json(p, chained)["chained_requests"], 3);
  assay_arithmetic relative = default_arithmetic();
  EXPECT_EQ(words(relative, p).count("weights of merges"), 0u);
  EXPECT_EQ(arithmetic_json(p, relative)["weights_lse_format"], "none");
  relative.weights_lse_format = ASSAY_FP32, relative.merge_lse_format = ASSAY_BF16;
  EXPECT_EQ(words(relative, p)["P"], "fp32, relative to the LSE in fp32, undivided");
  EXPECT_EQ(words(relative, p)["weights of merges"], "relative to the LSE in bf16, undivided");
  EXPECT_EQ(arithmetic_json(p, relative)["merge_lse_format"], "bf16");
  for (const char* key : {"item_rows", "shares", "share_turns"})
    EXPECT_GT(arithmetic_json(p, cut)[key].get<double>(), 0) << key;
  const nlohmann::json j = arithmetic_json(p, a);
  for (const char* key :
       {"tanh_absolute_error", "log_absolute_error", "log_relative_error", "q_rounding_absolute",
        "q_replayed_factor", "p_roundings", "partial_roundings", "promote_every"})
    EXPECT_GT(j[key].get<double>(), 0) << key;
  EXPECT_EQ(j["row_sum"]["fraction_bits"], 25);
  EXPECT_EQ(j["bias_form"], "column");
  EXPECT_EQ(j["q_replayed_format"], "fp16");
  EXPECT_TRUE(j["split_interleaved"].get<bool>() && j["splits_vary"].get<bool>());
}

TEST(ArithmeticWords, ALongChainOfANarrowAccumulatorMayLoseAll) {
  assay_arithmetic a = hopper_fp8();
  a.promote_pv = 0;
  a.tile_keys = 0;
  a.order_declared = 0;
  a.splits = 1;
  Problem p = testkit::small_problem();
  p.requests = {{1, 131072}};
  EXPECT_NE(words(a, p)["growth"].find("may lose all"), std::string::npos);
  EXPECT_EQ(words(default_arithmetic(), p)["growth"].find("may lose all"), std::string::npos);
}

TEST(ArithmeticJson, HoldsEveryFieldByName) {
  const nlohmann::json j = arithmetic_json(testkit::small_problem(), hopper_fp8());
  EXPECT_EQ(j["qk"]["kind"], "block");
  EXPECT_EQ(j["pv"]["mantissa_bits"], 13);
  EXPECT_EQ(j["p_format"], "fp8_e4m3");
  EXPECT_EQ(j["exp_poly_every"], 4);
  EXPECT_EQ(j["dequant_format"], "bf16");
  EXPECT_TRUE(j["order_declared"].get<bool>());
  EXPECT_GT(j["growth"].get<double>(), 0);
  EXPECT_EQ(arithmetic_json(testkit::small_problem(), default_arithmetic())["dequant_format"], "none");
}

}  // namespace
}  // namespace assay
