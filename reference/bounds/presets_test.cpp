// SPDX-License-Identifier: Apache-2.0
// The presets of harness/abi/assay_arithmetic.h: kernels of the kind they name, in slow motion, must lie in
// the bounds that follow from the preset, and the same kernels with a mistake must not.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "harness/abi/assay_arithmetic.h"
#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator.hpp"

namespace assay {
namespace {

using namespace testkit;

using Preset = int (*)(assay_arithmetic*, int32_t, int32_t);
int fp32(assay_arithmetic* a, int32_t, int32_t) { return assay_like_fp32(a, 1); }
int fp32_warp(assay_arithmetic* a, int32_t, int32_t) { return assay_like_fp32(a, 32); }

struct Kind {
  std::string name;
  Preset preset;
  assay_arithmetic kernel;
  int32_t format = ASSAY_BF16, splits = 1;
};

std::vector<Kind> kinds() {
  const auto with = [](assay_arithmetic a, auto change) {
    change(a);
    return a;
  };
  using A = assay_arithmetic;
  const A ampere = tensor_core(ASSAY_BF16, 64, 8, 24, 23), hopper = tensor_core(ASSAY_BF16, 128, 16, 25, 23);
  const auto reversed = [](A& a) { a.tile_reverse = 1; };
  const auto four_parts = [](A& a) { a.splits = 4, a.partial_format = a.partial_lse_format = ASSAY_FP32; };
  A fp8 = with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13), reversed);
  fp8.p_offset_log2 = 8;
  return {
      {"one chain", fp32, arithmetic(ASSAY_FP32, 1, 1 << 20)},
      {"one chain, online", fp32, arithmetic(ASSAY_FP32, 1, 1)},
      {"a warp", fp32_warp, with(arithmetic(ASSAY_FP32, 32, 16), [](A& a) { a.pv.block = 1; })},
      {"Ampere as unknown", assay_like_tensor_cores, ampere},
      {"Hopper as unknown", assay_like_tensor_cores, hopper},
      {"Hopper in four parts as unknown", assay_like_tensor_cores, with(hopper, four_parts), ASSAY_BF16, 4},
      {"FlashAttention-2", assay_like_flash_attention_2, with(ampere, reversed)},
      {"FlashAttention-2, fp16, tiles of 32", assay_like_flash_attention_2,
       with(tensor_core(ASSAY_FP16, 32, 8, 24, 23), reversed), ASSAY_FP16},
      {"FlashAttention-2 in four parts", assay_like_flash_attention_2, with(ampere, four_parts), ASSAY_BF16,
       4},
      {"FlashAttention-3", assay_like_flash_attention_3, with(hopper, reversed)},
      {"FlashAttention-3 in four parts", assay_like_flash_attention_3, with(hopper, four_parts), ASSAY_BF16,
       4},
      {"FlashAttention-3, fp8", assay_like_flash_attention_3, fp8, ASSAY_FP8_E4M3}};
}

// Largest error over its bound (the tightest tier that applies), of O and of the LSE.
double worst_of_preset(const DenseCase& c, const Kind& kind, Mutant mutant) {
  assay_arithmetic declared = default_arithmetic();
  EXPECT_EQ(kind.preset(&declared, kind.format, kind.splits), ASSAY_OK);
  const BoundedAttention b = bounded_attention(c.problem, c.host(), c.rows(), declared);
  const Emulation e = Emulator(c, kind.kernel, mutant).run();
  double worst = 0;
  const auto look = [&](double got, double expected, double bound) {
    if (got != expected && std::isfinite(bound)) worst = std::max(worst, std::fabs(got - expected) / bound);
  };
  for (size_t i = 0; i < e.o.size(); ++i) look(e.o[i], b.value.o[i], std::min(b.o_bound[i], b.o_bound_p[i]));
  for (size_t i = 0; i < e.lse.size(); ++i)
    look(e.lse[i], b.value.lse[i], std::min(b.lse_bound[i], b.lse_bound_p[i]));
  return worst;
}

TEST(Presets, HoldForTheKernelsTheyNameAndForNoMistake) {
  for (const Kind& kind : kinds()) {
    double worst = 0;
    for (const Family family : {Family::kNormal, Family::kPeaked, Family::kOutlier, Family::kAscending,
                                Family::kCancelling, Family::kFlat})
      for (uint64_t seed = 0; seed < 3; ++seed)
        worst = std::max(
            worst, worst_of_preset(make_case(family, 3, 200, 32, seed, kind.format), kind, Mutant::kNone));
    std::printf("  %-40s %.3f\n", kind.name.c_str(), worst);
    EXPECT_LE(worst, 1) << kind.name;
    EXPECT_GT(worst, 1e-3) << kind.name << ": the preset is far wider than the kind";
    // Accumulators of 13 bits hide a single key of many.
    const int32_t keys = kind.format == ASSAY_FP8_E4M3 ? 80 : 150;
    for (const Mutant mutant : {Mutant::kDropKey, Mutant::kStaleToken, Mutant::kLse2, Mutant::kNoRescale}) {
      double seen = 0;
      for (const Family family : {Family::kNormal, Family::kAscending})
        for (uint64_t seed = 0; seed < 3; ++seed)
          seen = std::max(seen,
                          worst_of_preset(make_case(family, 3, keys, 32, seed, kind.format), kind, mutant));
      // Without a second tile in a part nothing is rescaled.
      if (mutant != Mutant::kNoRescale || kind.kernel.tile_keys * kind.splits < keys) {
        EXPECT_GT(seen, 1) << kind.name << ", mistake " << static_cast<int>(mutant);
      }
    }
  }
}

}  // namespace
}  // namespace assay
