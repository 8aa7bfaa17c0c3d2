// SPDX-License-Identifier: Apache-2.0
// What the entries on matrix instructions refuse, and what they declare: it must be the arithmetic of the
// instruction of this library's lanes. Built with the kernels of the emulator, once per width.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {
namespace {

using ::testing::HasSubstr;

struct Case {
  assay_problem p{};
  std::vector<int32_t> q_len, kv_len;

  explicit Case(std::vector<int32_t> rows, int32_t keys = 512, int32_t dims = 64, int32_t format = ASSAY_BF16)
      : q_len(std::move(rows)), kv_len(q_len.size(), keys) {
    p.struct_size = sizeof p, p.op = ASSAY_OP_PREFILL, p.mask = ASSAY_MASK_CAUSAL;
    p.heads_q = 4, p.heads_kv = 2, p.head_dim_qk = p.head_dim_v = dims;
    p.q_format = p.k_format = p.v_format = p.o_format = format;
    p.window_left = p.window_right = -1, p.softmax_scale = 0.125f;
    p.requests = static_cast<int32_t>(q_len.size()), p.max_kv_len = keys;
    for (const int32_t n : q_len) p.total_q += n;
    p.q_len = q_len.data(), p.kv_len = kv_len.data();
  }
  // Empty: taken.
  std::string refusal(const char* arch) const {
    assay_device device{};
    std::snprintf(device.arch, sizeof device.arch, "%s", arch);
    char why[512] = "";
    const assay_kernel& kernel = *mma_kernels()[0];
    const int status = kernel.supports(&kernel, &p, nullptr, &device, why, sizeof why);
    EXPECT_EQ(status == ASSAY_OK, why[0] == '\0') << why;
    return why;
  }
  assay_arithmetic declared() const {
    const assay_kernel& kernel = *mma_kernels()[0];
    assay_arithmetic m{};
    m.struct_size = sizeof m;
    EXPECT_EQ(kernel.arithmetic(&kernel, &p, &m), ASSAY_OK);
    return m;
  }
};

TEST(MmaEntries, RefuseWhatTheInstructionsCannotDo) {
  EXPECT_EQ(Case({5}).refusal("sm_90"), "");
  EXPECT_EQ(Case({5}, 512, 256).refusal("sm_90"), "");
  EXPECT_THAT(Case({5}, 512, 264).refusal("sm_90"), HasSubstr("head dimensions 264 and 264"));
  EXPECT_THAT(Case({5}, 512, 64, ASSAY_FP32).refusal("sm_90"), HasSubstr("q fp32, k fp32, v fp32"));
  Case mixed({5});
  mixed.p.v_format = ASSAY_FP16;
  EXPECT_THAT(mixed.refusal("sm_90"), HasSubstr("q bf16, k bf16, v fp16"));
}

TEST(MmaEntries, RefuseFp16WhereSubnormalsAreTakenForZero) {
  const Case fp16({5}, 512, 64, ASSAY_FP16);
  EXPECT_EQ(fp16.refusal("gfx942:sramecc+:xnack-"), "");
  EXPECT_THAT(fp16.refusal("gfx90a:sramecc+:xnack-"), HasSubstr("fp16 on gfx90a"));
  EXPECT_EQ(Case({5}).refusal("gfx90a:sramecc+:xnack-"), "");
}

TEST(MmaEntries, DeclareTheInstructionsOfTheirLanes) {
  // The emulator with 32 lanes adds as Hopper does.
  for (const int arch : gpu::kWarp == 32 ? std::vector{0, 80, 89, 90, 100} : std::vector{0}) {
    nvidia_arch = arch;
    const bool sixteen = gpu::kWarp == 32 && arch != 80 && arch != 89;
    const assay_arithmetic m = Case({5}).declared();
    for (const assay_accumulator& acc : {m.qk, m.pv}) {
      EXPECT_EQ(acc.kind, ASSAY_ACC_BLOCK);
      EXPECT_EQ(acc.block, sixteen ? 16 : 8) << arch;
      EXPECT_EQ(acc.fraction_bits, sixteen ? 25 : 24) << arch;
      EXPECT_EQ(acc.mantissa_bits, 23);
    }
  }
  nvidia_arch = 0;
  const assay_arithmetic m = Case({5}).declared();
  EXPECT_EQ(m.qk_instruction != nullptr, gpu::kWarp == 32);  // only NVIDIA's are calibrated
  EXPECT_EQ(m.p_format, ASSAY_BF16);
  EXPECT_EQ(Case({5}, 512, 64, ASSAY_FP16).declared().p_format, ASSAY_FP16);
}

// Four warps share the keys of up to sixteen packed rows (eight rows of two heads) and merge.
TEST(MmaEntries, DeclareTheMergesOfWarpsAndParts) {
  multiprocessors = 1;
  EXPECT_EQ(Case({8}, 100).declared().splits, 4);
  EXPECT_EQ(Case({9}, 100).declared().splits, 1);
  EXPECT_EQ(Case({8, 9}, 100).declared().splits, 2);
  multiprocessors = 8;  // parts of at least 128 keys
  EXPECT_EQ(Case({8}, 512).declared().splits, 4 * 4);
  EXPECT_EQ(Case({9}, 512).declared().splits, 4);
  EXPECT_EQ(Case({8, 9}, 512).declared().splits, 4);
}

TEST(MmaEntries, DeclareTheOrderWhereAllRequestsAreCutAlike) {
  multiprocessors = 8;
  for (const int32_t rows : {8, 9}) {
    const assay_arithmetic m = Case({rows, rows}, 512).declared();
    EXPECT_EQ(m.order_declared, 1) << rows;
    EXPECT_EQ(m.split_interleaved, 1) << rows;
    EXPECT_EQ(m.tile_keys, 16) << rows;
  }
  EXPECT_EQ(Case({9}, 100).declared().split_interleaved, 0);  // one part
  EXPECT_EQ(Case({8, 9}, 512).declared().order_declared, 0);
  Case scaled({8});
  scaled.p.v_scale_kind = ASSAY_SCALE_TOKEN_HEAD;
  EXPECT_EQ(scaled.declared().order_declared, 0);
}

}  // namespace
}  // namespace assay_gpu
