// SPDX-License-Identifier: Apache-2.0
// Poison codes are what they claim to be, table tails hold what each poison promises, a hybrid cache points
// at poison, and repoison changes nothing but poison. (That poison covers exactly the bytes without a
// value is the sweep of inputs_test.cpp.)
#include "harness/input/poison.hpp"

#include <cmath>
#include <cstring>
#include <set>

#include "harness/input/stored_reader.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

constexpr Poison kAll[] = {Poison::kNaN, Poison::kLow, Poison::kHigh};

TEST(PoisonCode, NaNWhereThereIsOneAndTwoLargeFiniteValues) {
  for (int format : {ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ,
                     ASSAY_FP8_E5M2FNUZ}) {
    EXPECT_TRUE(std::isnan(decode(format, poison_code(format, Poison::kNaN)))) << format;
    const double low = decode(format, poison_code(format, Poison::kLow));
    const double high = decode(format, poison_code(format, Poison::kHigh));
    EXPECT_TRUE(std::isfinite(low) && std::isfinite(high)) << format;
    EXPECT_EQ(low, -high);
    EXPECT_GE(high, std::min(format_info(format).max_finite / 2, 0x1p100));
    EXPECT_LT(high * 127 * 1024, 3e38);  // a dot product with it stays finite in fp32
  }
  EXPECT_EQ(poison_code(ASSAY_INT8, Poison::kNaN), 0x80u);
  EXPECT_EQ(decode(ASSAY_INT8, poison_code(ASSAY_INT8, Poison::kLow)), -127);
  EXPECT_EQ(decode(ASSAY_INT8, poison_code(ASSAY_INT8, Poison::kHigh)), 127);
  // Outputs of integers: three values that no table, slot or length of a case has.
  EXPECT_EQ(decode(ASSAY_INT32, poison_code(ASSAY_INT32, Poison::kNaN)), -0x1p31);
  EXPECT_LT(decode(ASSAY_INT32, poison_code(ASSAY_INT32, Poison::kLow)), -0x1p29);
  EXPECT_GT(decode(ASSAY_INT32, poison_code(ASSAY_INT32, Poison::kHigh)), 0x1p29);
}

TEST(PoisonCode, OutputsHoldOtherPoisonThanInputs) {
  for (int format : {ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2}) {
    EXPECT_TRUE(std::isnan(decode(format, unwritten_code(format, Poison::kNaN)))) << format;
    for (const Poison poison : kAll) EXPECT_NE(unwritten_code(format, poison), poison_code(format, poison));
    EXPECT_EQ(decode(format, unwritten_code(format, Poison::kLow)),
              -decode(format, unwritten_code(format, Poison::kHigh)));
  }
  EXPECT_EQ(unwritten_code(ASSAY_FP8_E4M3FNUZ, Poison::kNaN), nan_code(ASSAY_FP8_E4M3FNUZ)) << "it has one";
  // What a unit gives that makes a NaN of its own, or narrows that of an input.
  for (const uint32_t made : {0x7fffffffu, 0x7fc00000u, 0xffc00000u, nan_code(ASSAY_FP32)}) {
    EXPECT_NE(unwritten_code(ASSAY_FP32, Poison::kNaN), made);
    EXPECT_NE(unwritten_code(ASSAY_BF16, Poison::kNaN), made >> 16);
  }
}

Problem poisoned_problem() {
  Problem p;
  p.seed = 4;
  p.heads_q = 2;
  p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 16;
  p.softmax_scale = 0.25f;
  p.page_size = 8;
  p.requests = {{1, 50}, {1, 20, 0, 17}, {2, 9}, {1, 0}};
  p.strided = {true, true, true, true, true};
  return p;
}

TEST(Tables, TailsHoldWhatEachPoisonPromises) {
  for (int table : {ASSAY_TABLE_BLOCK, ASSAY_TABLE_TOKEN}) {
    Problem p = poisoned_problem();
    p.table = table;
    place_pages(p);
    std::set<int32_t> used;
    for (const auto& list : p.pages) used.insert(list.begin(), list.end());
    Inputs inputs = build_inputs(p);
    for (Poison poison : kAll) {
      repoison(inputs, poison);
      const assay_tensor& t = inputs.tensors.block_table;
      const auto* data = static_cast<const int32_t*>(t.data);
      int tails = 0;
      for (int r = 0; r < 4; ++r) {
        const int64_t live = table == ASSAY_TABLE_TOKEN ? p.requests[r].kv_len : int64_t(p.pages[r].size());
        const std::set<int32_t> own(p.pages[r].begin(), p.pages[r].end());
        // Including the padding behind the shape: the row is stride long.
        for (int64_t c = live; c < t.stride[0]; ++c) {
          const int32_t entry = data[r * t.stride[0] + c];
          const int32_t block = table == ASSAY_TABLE_TOKEN ? entry / p.page_size : entry;
          ++tails;
          if (poison == Poison::kNaN) {
            EXPECT_EQ(entry, 0x3fffffff);
          } else if (poison == Poison::kLow) {
            EXPECT_TRUE(block >= 0 && block < p.num_blocks && !used.count(block)) << r << " " << entry;
          } else {
            EXPECT_TRUE(used.count(block) && !own.count(block)) << r << " " << entry;
          }
        }
      }
      EXPECT_GT(tails, 4 * kTablePadding);
    }
  }
}

TEST(Tables, HybridCachePointsAtAPoisonBlock) {
  Problem p = poisoned_problem();
  p.window_left = 10;
  p.swa_index = true;
  place_pages(p);
  const Inputs inputs = build_inputs(p, Poison::kNaN);
  StoredReader reader(inputs);
  for (int32_t d = 0; d < 16; ++d) {
    EXPECT_TRUE(std::isnan(reader.k(0, 3, 0, d)));
    EXPECT_TRUE(std::isnan(reader.v(0, 31, 0, d)));
    EXPECT_FALSE(std::isnan(reader.k(0, 39, 0, d)));
    EXPECT_FALSE(std::isnan(reader.v(0, 49, 0, d)));
  }
}

std::vector<std::vector<std::byte>> snapshot(const Inputs& inputs) {
  std::vector<std::vector<std::byte>> all;
  for (int i = 0; i < kOperandCount; ++i)
    all.emplace_back(inputs.buffers[i].payload(), inputs.buffers[i].payload() + inputs.buffers[i].bytes());
  return all;
}

TEST(Repoison, ChangesPoisonOnlyAndEqualsAFreshBuild) {
  for (int op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED})
    for (int layout = ASSAY_LAYOUT_NHD; layout <= ASSAY_LAYOUT_MLA; ++layout)
      for (int format : {ASSAY_BF16, ASSAY_INT8}) {
        if (op == ASSAY_OP_PREFILL && layout != ASSAY_LAYOUT_NHD) continue;
        Problem p = poisoned_problem();
        p.op = op;
        p.layout = layout;
        p.page_size = 16;
        p.k_format = p.v_format = format;
        p.k_scale = p.v_scale = format == ASSAY_INT8 ? ASSAY_SCALE_TOKEN_HEAD : ASSAY_SCALE_NONE;
        if (op == ASSAY_OP_PAGED) place_pages(p);
        Inputs inputs = build_inputs(p, Poison::kNaN);
        const auto before = snapshot(inputs);
        StoredReader reader(inputs);
        for (int r = 0; r < 4; ++r) {
          for (int32_t key = 0; key < p.requests[r].kv_len; ++key)
            for (int32_t d = 0; d < 16; ++d) reader.k(r, key, 0, d), reader.v(r, key, 0, d);
          for (int32_t row = 0; row < p.requests[r].q_len; ++row)
            for (int32_t h = 0; h < 2; ++h)
              for (int32_t d = 0; d < 16; ++d) reader.q(r, row, h, d);
        }
        for (Poison poison : {Poison::kHigh, Poison::kLow, Poison::kNaN}) {
          repoison(inputs, poison);
          const auto after = snapshot(inputs);
          EXPECT_EQ(after, snapshot(build_inputs(p, poison)));
          if (poison == Poison::kNaN) {
            EXPECT_EQ(after, before);
            continue;
          }
          int64_t changed = 0;
          for (int i = 0; i < kOperandCount; ++i) {
            const assay_tensor& t = tensor_of(inputs.tensors, static_cast<Operand>(i));
            if (t.data == nullptr) continue;
            const int bytes = format_bytes(t.format);
            const bool joint = i <= int(Operand::kV) && i >= int(Operand::kK) && layout == ASSAY_LAYOUT_MLA;
            for (size_t e = 0; e < after[i].size() / bytes; ++e) {
              const bool differs = std::memcmp(&after[i][e * bytes], &before[i][e * bytes], bytes) != 0;
              changed += differs;
              ASSERT_FALSE(differs && (reader.real[i][e] || (joint && reader.real[int(Operand::kK)][e])))
                  << operand_name(static_cast<Operand>(i)) << " element " << e << " layout " << layout;
            }
          }
          EXPECT_GT(changed, 500);
        }
      }
}

TEST(Repoison, FillsAWorkspaceOfAnySize) {
  Problem p = poisoned_problem();
  place_pages(p);
  Inputs inputs = build_inputs(p);
  inputs.buffers[int(Operand::kWorkspace)] = GuardedBuffer(1003);
  GuardedBuffer& workspace = inputs.buffers[int(Operand::kWorkspace)];
  std::memset(workspace.payload(), 0, 1003);
  repoison(inputs, Poison::kNaN);
  for (int i = 0; i < 250; ++i) EXPECT_TRUE(std::isnan(load(ASSAY_FP32, workspace.payload(), i)));
  EXPECT_EQ(workspace.payload()[1002], std::byte{0xff});
  EXPECT_EQ(broken_guard(workspace.raw(), 1003), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace assay
