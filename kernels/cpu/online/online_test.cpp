// SPDX-License-Identifier: Apache-2.0
// The online kernels at every instruction set of this machine: against double on random problems over all
// features, against themselves with other batches, thread counts and workspace contents (same bits), with
// poison in every unused slot, and with lengths around every tile, chunk and partition edge.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "kernels/common/formats.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/online/engine.hpp"
#include "kernels/cpu/testing/compare.hpp"
#include "kernels/cpu/testing/test_case.hpp"

namespace assay_cpu::testing {

using namespace assay_kernels;
namespace {

struct Level {
  Isa isa;
  int32_t op;
};

class OnlineTest : public ::testing::TestWithParam<Level> {
 protected:
  void SetUp() override {
    if (GetParam().isa > detected_isa()) GTEST_SKIP() << "this machine has no " << isa_name(GetParam().isa);
    setenv("ASSAY_CPU_ISA", isa_name(GetParam().isa), 1);
  }
  void TearDown() override { unsetenv("ASSAY_CPU_ISA"); }

  const assay_kernel& kernel() const {
    return GetParam().op == ASSAY_OP_PREFILL ? kPrefillOnline : kPagedOnline;
  }
  // What the kernel declares decides how closely it is held.
  double tolerance(const Case& c) const {
    assay_arithmetic declared{};
    declared.struct_size = sizeof declared;
    EXPECT_EQ(kernel().arithmetic(&kernel(), c.problem(), &declared), ASSAY_OK);
    return declared.p_format == ASSAY_BF16 ? kBf16Weights : kFp32Weights;
  }
  void expect_right(const Spec& spec) {
    Case c(spec);
    ASSERT_TRUE(matches(c, c.run(kernel()), tolerance(c))) << spec.text();
  }
};

TEST_P(OnlineTest, MatchesDoubleOnRandomProblems) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Spec spec = random_spec(seed, GetParam().op);
    spec.poison_invisible = seed % 2 == 1;
    Case c(spec);
    ASSERT_TRUE(matches(c, c.run(kernel()), tolerance(c))) << spec.text();
  }
}

// The formats that take the bf16 matrix unit, which random choice of three formats rarely hits together.
TEST_P(OnlineTest, MatchesDoubleWithNarrowFormats) {
  const int32_t formats[] = {ASSAY_BF16,         ASSAY_FP8_E4M3,     ASSAY_FP8_E5M2,
                             ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8};
  for (uint64_t seed = 1000; seed < 1020; ++seed) {
    Spec spec = random_spec(seed, GetParam().op);
    spec.q_format = seed % 3 ? ASSAY_BF16 : formats[seed % 6];
    if (spec.layout != ASSAY_LAYOUT_X && spec.layout != ASSAY_LAYOUT_SHUFFLED)
      spec.k_format = formats[seed / 2 % 6], spec.v_format = formats[seed / 4 % 6];
    if (spec.layout == ASSAY_LAYOUT_MLA) spec.v_format = spec.k_format;
    if (spec.q_scale == ASSAY_SCALE_CHANNEL) spec.q_scale = ASSAY_SCALE_TOKEN_HEAD;
    if (spec.k_scale == ASSAY_SCALE_CHANNEL) spec.k_scale = spec.v_scale = ASSAY_SCALE_TOKEN_HEAD;
    spec.requests.push_back({33, 70});
    spec.poison_invisible = seed % 2 == 1;
    expect_right(spec);
    if (HasFatalFailure()) return;
  }
}

TEST_P(OnlineTest, MatchesDoubleAtChunkAndPartitionEdges) {
  uint64_t seed = 1;
  for (int32_t kv : {255, 257, 1024, 1025, 2049})
    for (int32_t q : {1, 3, 33}) {
      Spec spec;
      spec.op = GetParam().op, spec.seed = ++seed, spec.requests = {{q, kv}, {1, 40}};
      spec.head_dim_qk = 16, spec.head_dim_v = 16, spec.sinks = kv % 2 == 0;
      spec.window_left = q == 3 ? 1000 : -1;
      expect_right(spec);
      if (HasFatalFailure()) return;
    }
}

// Decode of bf16 caches reads keys and pairs of values in place where they lie evenly: page sizes that break
// up groups of 16 keys, lengths and windows that begin and end within a pair, every layout.
TEST_P(OnlineTest, MatchesDoubleWhereverPagesEnd) {
  if (GetParam().op == ASSAY_OP_PREFILL) return;
  uint64_t seed = 500;
  for (int32_t layout : {ASSAY_LAYOUT_NHD, ASSAY_LAYOUT_HND, ASSAY_LAYOUT_X, ASSAY_LAYOUT_SHUFFLED})
    for (int32_t page : {1, 3, 8, 16, 24, 64}) {
      if (layout == ASSAY_LAYOUT_SHUFFLED && page % 8 != 0) continue;
      Spec spec;
      spec.seed = ++seed, spec.layout = layout, spec.page_size = page;
      spec.head_dim_qk = 64, spec.head_dim_v = page % 16 == 0 ? 64 : 40, spec.heads_q = seed % 2 == 0 ? 8 : 2;
      spec.requests = {{1, 1}, {1, 31}, {1, 33}, {2, 64}, {1, 101}};
      spec.window_left = seed % 3 == 0 ? 44 : -1, spec.poison_invisible = true;
      expect_right(spec);
      if (HasFatalFailure()) return;
    }
}

TEST_P(OnlineTest, MatchesDoubleWithSeveralRowBlocks) {
  for (int32_t mask : {ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL})
    for (int32_t format : {ASSAY_FP32, ASSAY_BF16}) {
      Spec spec;
      spec.op = GetParam().op, spec.mask = mask, spec.q_format = spec.k_format = spec.v_format = format;
      spec.heads_q = 4, spec.heads_kv = 1, spec.head_dim_qk = 40, spec.head_dim_v = 24;
      spec.requests = {{150, 200}, {140, 139}};
      expect_right(spec);
      if (HasFatalFailure()) return;
    }
}

TEST_P(OnlineTest, MatchesDoubleWithLargeHeads) {
  for (int32_t d : {576, 1023, 1024}) {
    Spec spec;
    spec.op = GetParam().op, spec.head_dim_qk = d, spec.head_dim_v = d == 576 ? 512 : d;
    spec.heads_q = 16, spec.heads_kv = 1, spec.requests = {{2, 50}, {1, 37}, {1, 0}};
    if (spec.op == ASSAY_OP_PAGED && d == 576) spec.layout = ASSAY_LAYOUT_MLA;
    expect_right(spec);
    if (HasFatalFailure()) return;
  }
}

TEST_P(OnlineTest, BitsDependOnNeitherThreadsNorBatchNorWorkspace) {
  for (uint64_t seed = 400; seed < 410; ++seed) {
    Spec spec = random_spec(seed, GetParam().op);
    if (seed % 4 == 0) spec.requests.push_back({1 + static_cast<int32_t>(seed % 3), 2200});
    if (seed % 5 == 0) spec.requests.push_back({230, 300});
    Case c(spec);
    const Output one = c.run(kernel(), 1, 0x00), two = c.run(kernel(), 2, 0xff),
                 three = c.run(kernel(), 2, 0x7f);
    ASSERT_EQ(one.status, ASSAY_OK) << one.error;
    ASSERT_TRUE(same_bits(one.o, two.o) && same_bits(one.lse, two.lse)) << spec.text();
    ASSERT_TRUE(same_bits(two.o, three.o) && same_bits(two.lse, three.lse)) << spec.text();
    size_t o = 0, lse = 0;
    for (size_t r = 0; r < spec.requests.size(); ++r) {
      Case alone(c, static_cast<int>(r));
      const Output out = alone.run(kernel());
      ASSERT_EQ(out.status, ASSAY_OK) << out.error;
      ASSERT_TRUE(same_bits(out.o, {one.o.begin() + o, one.o.begin() + o + out.o.size()}))
          << spec.text() << " request " << r;
      ASSERT_TRUE(same_bits(out.lse, {one.lse.begin() + lse, one.lse.begin() + lse + out.lse.size()}))
          << spec.text() << " request " << r;
      o += out.o.size(), lse += out.lse.size();
    }
  }
}

// A key one row sees and its tile neighbours do not: NaN in its value must reach that row only.
TEST_P(OnlineTest, NanInAVisibleValueStaysInItsRow) {
  for (int32_t q : {2, 40}) {
    Spec spec;
    spec.op = GetParam().op, spec.requests = {{q, q}}, spec.heads_kv = 2, spec.heads_q = 4;
    Case c(spec), clean(spec);
    const Output before = clean.run(kernel());
    // The last key is visible to the last row only (causal).
    const assay_tensor& v = c.tensors()->v;
    int64_t at = 0;
    if (spec.op == ASSAY_OP_PREFILL) {
      at = (q - 1) * v.stride[0];
    } else {
      const int32_t* table = static_cast<const int32_t*>(c.tensors()->block_table.data);
      at = table[(q - 1) / spec.page_size] * v.stride[0] + (q - 1) % spec.page_size * v.stride[1];
    }
    static_cast<uint16_t*>(v.data)[at] = 0x7fc0;  // KV head 0, dimension 0
    const Output out = c.run(kernel());
    const size_t row = static_cast<size_t>(spec.heads_q) * spec.head_dim_v, last = (q - 1) * row;
    for (size_t i = 0; i < out.o.size(); ++i) {
      const size_t head = i / spec.head_dim_v % spec.heads_q, dim = i % spec.head_dim_v;
      if (i >= last && head < 2 && dim == 0)
        ASSERT_TRUE(std::isnan(out.o[i])) << i;
      else
        ASSERT_NEAR(out.o[i], before.o[i], 1e-6) << i;
    }
  }
}

// Logits hundreds apart: the running maximum moves far and weights underflow.
TEST_P(OnlineTest, MatchesDoubleWithLargeLogits) {
  for (uint64_t seed = 300; seed < 320; ++seed) {
    Spec spec = random_spec(seed, GetParam().op);
    spec.logit_deviation = 60, spec.softcap = 0;
    Case c(spec);
    ASSERT_TRUE(matches(c, c.run(kernel()), tolerance(c) + 10 * kFp32Weights)) << spec.text();
  }
}

TEST_P(OnlineTest, MatchesDoubleWithManyKvHeads) {
  for (int32_t heads : {250, 600}) {
    Spec spec;
    spec.op = GetParam().op, spec.heads_q = spec.heads_kv = heads, spec.stride_padding = 1;
    spec.head_dim_qk = spec.head_dim_v = 8, spec.requests = {{1, 150}};
    expect_right(spec);
    if (HasFatalFailure()) return;
  }
}

// Draft keys that no row of a tree sees: K, V and their scales hold NaN there, in the middle of what is read.
TEST_P(OnlineTest, UnseenDraftKeysNeverLeak) {
  uint64_t seed = 77;
  for (int32_t format : {ASSAY_FP32, ASSAY_BF16, ASSAY_FP8_E4M3})
    for (int32_t group : {1, 2, 9}) {
      Spec spec;
      spec.op = GetParam().op, spec.seed = ++seed, spec.mask = ASSAY_MASK_TREE, spec.poison_invisible = true;
      spec.q_format = format == ASSAY_FP32 ? ASSAY_FP32 : ASSAY_BF16, spec.k_format = spec.v_format = format;
      spec.heads_q = group, spec.heads_kv = 1, spec.head_dim_v = 40;
      spec.k_scale = spec.v_scale = group == 1 ? ASSAY_SCALE_NONE : ASSAY_SCALE_TOKEN_HEAD;
      for (int32_t q : {2, 3, 3, 4, 4, 5}) spec.requests.push_back({q, 30 + q});
      expect_right(spec);
      if (HasFatalFailure()) return;
    }
}

// One visible key: O is V itself, so every code of the byte formats passes through the vector decoders.
TEST_P(OnlineTest, EveryByteCodeOfVComesOutExactly) {
  for (int32_t format : {ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8})
    for (int32_t q : {1, 20}) {
      Spec spec;
      spec.op = GetParam().op, spec.mask = ASSAY_MASK_FULL, spec.requests = {{q, 1}};
      spec.v_format = format, spec.head_dim_v = 256, spec.page_size = 1;
      Case c(spec);
      const assay_tensor& v = c.tensors()->v;
      int64_t at = 0;
      if (spec.op == ASSAY_OP_PAGED)
        at = *static_cast<const int32_t*>(c.tensors()->block_table.data) * v.stride[0];
      for (int code = 0; code < 256; ++code)
        static_cast<uint8_t*>(v.data)[at + code] = static_cast<uint8_t>(code);
      const Output out = c.run(kernel());
      ASSERT_EQ(out.status, ASSAY_OK) << out.error;
      for (int code = 0; code < 256; ++code) {
        const float want = float_from_byte(static_cast<uint8_t>(code), format), got = out.o[code];
        ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
            << format << " code " << code << ": " << got << ", expected " << want;
      }
    }
}

TEST_P(OnlineTest, RefusesASmallWorkspaceAndAWrongOperand) {
  Spec spec;
  spec.op = GetParam().op, spec.requests = {{1, 20}};
  Case c(spec);
  ASSERT_EQ(c.run(kernel()).status, ASSAY_OK);
  assay_tensors t = *c.tensors();
  std::vector<uint8_t> small(64);
  t.workspace.data = small.data(), t.workspace.shape[0] = 64;
  char text[256] = "";
  EXPECT_EQ(kernel().run(&kernel(), c.problem(), &t, nullptr, nullptr, text, sizeof text),
            ASSAY_INVALID_ARGUMENT);
  EXPECT_STREQ(text, "operand workspace is smaller than workspace_bytes asks for");
  t = *c.tensors();
  t.k.format = ASSAY_FP16;
  EXPECT_EQ(kernel().run(&kernel(), c.problem(), &t, nullptr, nullptr, text, sizeof text),
            ASSAY_INVALID_ARGUMENT);
  EXPECT_STREQ(text, "operand k has format fp16, expected bf16");
}

INSTANTIATE_TEST_SUITE_P(
    Levels, OnlineTest,
    ::testing::Values(Level{Isa::kScalar, ASSAY_OP_PREFILL}, Level{Isa::kScalar, ASSAY_OP_PAGED},
                      Level{Isa::kAvx2, ASSAY_OP_PREFILL}, Level{Isa::kAvx2, ASSAY_OP_PAGED},
                      Level{Isa::kAvx512, ASSAY_OP_PREFILL}, Level{Isa::kAvx512, ASSAY_OP_PAGED},
                      Level{Isa::kAmx, ASSAY_OP_PREFILL}, Level{Isa::kAmx, ASSAY_OP_PAGED}),
    [](const auto& info) {
      return std::string(isa_name(info.param.isa)) +
             (info.param.op == ASSAY_OP_PREFILL ? "_prefill" : "_paged");
    });

}  // namespace
}  // namespace assay_cpu::testing
