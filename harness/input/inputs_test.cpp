// SPDX-License-Identifier: Apache-2.0
// The builder against an independent reader, over the product of ops, formats, scale granularities, layouts,
// storages, tables and strides: every stored value dequantises to within half a step of what it stands for,
// and every element no value occupies is poison. Then what must not matter: threads, placement, sharing.
// A new storage feature: an axis of `sweep`.
#include "harness/input/inputs.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstring>
#include <functional>
#include <set>

#include "harness/base/error.hpp"
#include "harness/input/poison.hpp"
#include "harness/input/spans.hpp"
#include "harness/input/stored_reader.hpp"
#include "harness/input/tables.hpp"
#include "harness/input/value_source.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

Problem mixed_problem() {
  Problem p;
  p.seed = 42;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 32;
  p.softmax_scale = 0.1767767f;
  p.page_size = 16;
  // A shared prefix of one full page and a partial one, an empty query, empty keys, more rows than keys.
  p.requests = {{3, 37}, {1, 40, 0, 25}, {0, 5}, {2, 0}, {5, 3}};
  return p;
}

std::string describe(const Problem& p) {
  return fmt::format(
      "{} q={}:{} k={}:{} v={}:{} dim {}/{} layout {} storage {} table {} swa {} {}{}{}{}{} {}",
      name_of(op_names(), p.op), name_of(format_names(), p.q_format), name_of(scale_names(), p.q_scale),
      name_of(format_names(), p.k_format), name_of(scale_names(), p.k_scale),
      name_of(format_names(), p.v_format), name_of(scale_names(), p.v_scale), p.head_dim_qk, p.head_dim_v,
      name_of(layout_names(), p.layout), int(p.storage), name_of(table_names(), p.table), p.swa_index,
      p.strided.q, p.strided.kv, p.strided.out, p.strided.scales, p.strided.last, p.drawn_slots);
}

// A key that no row of its request can see may be absent from a hybrid cache, page by page.
bool stored(const Problem& p, int r, int32_t key) {
  if (!p.swa_index) return true;
  const int32_t page = key / p.page_size;
  for (int32_t k = page * p.page_size; k < std::min((page + 1) * p.page_size, p.requests[r].kv_len); ++k)
    for (int32_t row = 0; row < p.requests[r].q_len; ++row)
      if (visible(p, r, row, k)) return true;
  return false;
}

// Elements that no value occupies hold `poison`; elements with a value do not, as far as the format tells
// them apart (a quantised value may well be half the largest code).
void expect_poison_elsewhere(const Inputs& inputs, const StoredReader& reader, Operand operand,
                             Poison poison) {
  const assay_tensor& t = tensor_of(inputs.tensors, operand);
  if (t.data == nullptr) return;
  const auto& buffer = inputs.buffers[static_cast<int>(operand)];
  const int bytes = format_bytes(t.format);
  const auto code_of = is_output(inputs.problem, operand) ? unwritten_code : poison_code;
  const uint32_t code = code_of(t.format, poison);
  const bool joint = operand == Operand::kK && buffer.payload() == inputs.buffers[int(Operand::kV)].payload();
  for (int64_t i = 0; i < buffer.bytes() / bytes; ++i) {
    const bool real = reader.real[int(operand)][i] || (joint && reader.real[int(Operand::kV)][i]);
    const bool is_poison = std::memcmp(buffer.payload() + i * bytes, &code, bytes) == 0;
    if (real && poison != Poison::kNaN && format_is_quantized(t.format)) continue;
    ASSERT_EQ(is_poison, !real) << operand_name(operand) << " element " << i << " "
                                << describe(inputs.problem);
  }
}

void check_everything(const Inputs& inputs, Poison poison) {
  const Problem& p = inputs.problem;
  StoredReader reader(inputs);
  const ValueSource source(p);
  std::vector<double> want_k(p.head_dim_qk), want_v(p.head_dim_v), want_q(p.head_dim_qk);
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r) {
    for (int32_t key = 0; key < p.requests[r].kv_len; ++key) {
      if (!stored(p, r, key)) continue;
      for (int32_t h = 0; h < p.heads_kv; ++h) {
        source.k(r, key, h, want_k.data());
        source.v(r, key, h, want_v.data());
        for (int32_t d = 0; d < p.head_dim_qk; ++d) {
          const double code = reader.code(false, r, key, h, d), scale = reader.scale(false, r, key, h, d);
          ASSERT_NEAR(code * scale, want_k[d], half_step(p.k_format, code) * scale)
              << "k " << r << " " << key << " " << h << " " << d << " " << describe(p);
        }
        for (int32_t d = 0; d < p.head_dim_v; ++d) {
          const double code = reader.code(true, r, key, h, d), scale = reader.scale(true, r, key, h, d);
          ASSERT_NEAR(code * scale, want_v[d], half_step(p.v_format, code) * scale)
              << "v " << r << " " << key << " " << h << " " << d << " " << describe(p);
        }
      }
    }
    for (int32_t row = 0; row < p.requests[r].q_len; ++row)
      for (int32_t h = 0; h < p.heads_q; ++h) {
        source.q(r, row, h, want_q.data());
        for (int32_t d = 0; d < p.head_dim_qk; ++d) {
          const double code = reader.q_code(r, row, h, d), scale = reader.q_scale(r, row, h, d);
          ASSERT_NEAR(code * scale, want_q[d], half_step(p.q_format, code) * scale)
              << "q " << r << " " << row << " " << h << " " << d << " " << describe(p);
        }
      }
  }
  for (Operand operand : {Operand::kQ, Operand::kK, Operand::kO, Operand::kLse})
    expect_poison_elsewhere(inputs, reader, operand, poison);
  if (inputs.buffers[int(Operand::kK)].payload() != inputs.buffers[int(Operand::kV)].payload())
    expect_poison_elsewhere(inputs, reader, Operand::kV, poison);
  if (p.k_scale == ASSAY_SCALE_TOKEN_HEAD) expect_poison_elsewhere(inputs, reader, Operand::kKScale, poison);
  if (p.v_scale == ASSAY_SCALE_TOKEN_HEAD) expect_poison_elsewhere(inputs, reader, Operand::kVScale, poison);
  if (p.q_scale == ASSAY_SCALE_TOKEN_HEAD) expect_poison_elsewhere(inputs, reader, Operand::kQScale, poison);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto& buffer = inputs.buffers[i];
    if (buffer.raw() != nullptr) {
      ASSERT_EQ(broken_guard(buffer.raw(), buffer.bytes()), std::numeric_limits<int64_t>::max())
          << operand_name(static_cast<Operand>(i)) << " " << describe(p);
    }
  }
}

constexpr int32_t kFormats[] = {ASSAY_FP32,     ASSAY_BF16,         ASSAY_FP16,         ASSAY_FP8_E4M3,
                                ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8};

std::vector<int32_t> scales_of(int32_t format) {
  if (!format_is_quantized(format)) return {ASSAY_SCALE_NONE};
  std::vector<int32_t> kinds = {ASSAY_SCALE_TENSOR,       ASSAY_SCALE_HOST,       ASSAY_SCALE_HEAD,
                                ASSAY_SCALE_REQUEST_HEAD, ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_CHANNEL};
  if (format != ASSAY_INT8) kinds.push_back(ASSAY_SCALE_NONE);
  return kinds;
}

constexpr int32_t kTables[] = {ASSAY_TABLE_BLOCK, ASSAY_TABLE_CSR, ASSAY_TABLE_TOKEN};
void sweep(int32_t op, const std::function<void(const Problem&)>& visit) {
  const bool paged = op == ASSAY_OP_PAGED;
  int32_t turn = 0;
  for (int32_t format : kFormats)
    for (int32_t scale : scales_of(format))
      for (int32_t layout = ASSAY_LAYOUT_NHD; layout <= (paged ? ASSAY_LAYOUT_MLA : ASSAY_LAYOUT_NHD);
           ++layout)
        for (Storage storage : {Storage::kSplit, Storage::kStacked, Storage::kInterleaved})
          for (int strides = 0; strides < 3; ++strides) {
            if (!paged && storage != Storage::kSplit) continue;
            const bool mla = layout == ASSAY_LAYOUT_MLA;
            if (mla && storage != Storage::kSplit) continue;
            // The small axes take turns: what they do does not depend on the large ones.
            ++turn;
            Problem p = mixed_problem();
            p.requests = {{3, 21}, {1, 26, 0, 18}, {0, 5}, {2, 0}, {5, 3}};
            p.op = op;
            p.q_format = kFormats[turn % 8];
            p.q_scale = scales_of(p.q_format)[turn / 8 % scales_of(p.q_format).size()];
            p.k_format = p.v_format = format;
            p.k_scale = p.v_scale = scale;
            p.o_format = kFormats[turn % 3];
            p.layout = layout;
            p.storage = storage;
            if (storage == Storage::kInterleaved && layout <= ASSAY_LAYOUT_HND && turn % 3 == 1)
              p.layers = 3, p.layer = turn % 9 / 3;
            p.table = kTables[turn / 3 % 3];
            if (mla) p.heads_kv = 1;
            if (storage == Storage::kSplit && turn % 2 == 0) p.head_dim_v = 16;
            if (storage == Storage::kSplit && !mla && turn % 3 == 0) {
              p.v_format = ASSAY_BF16;
              p.v_scale = ASSAY_SCALE_NONE;
            }
            if (strides == 1) p.strided = {true, true, true, true, true};
            if (strides == 2)
              p.strided = {turn % 2 == 0, turn % 3 == 0, turn % 5 < 2, turn % 7 < 3, turn % 11 < 5};
            const bool rows = layout != ASSAY_LAYOUT_X && layout != ASSAY_LAYOUT_SHUFFLED;
            p.strided.last = strides > 0 && rows && turn % 13 < 6;
            p.drawn_slots = p.table == ASSAY_TABLE_TOKEN && turn % 4 < 2;
            if (paged && turn % 4 == 0) p.swa_index = true, p.window_left = 3;
            if (paged) place_pages(p);
            visit(p);
          }
}

class Sweep : public ::testing::TestWithParam<int32_t> {};

TEST_P(Sweep, EveryValueIsWhereItBelongsAndPoisonElsewhere) {
  int cases = 0;
  sweep(GetParam(), [&](const Problem& p) {
    if (HasFatalFailure()) return;
    const auto poison = static_cast<Poison>(cases++ % 3);
    check_everything(build_inputs(p, poison), poison);
  });
  EXPECT_EQ(cases, GetParam() == ASSAY_OP_PAGED ? 37 * 13 * 3 : 37 * 3);
}

INSTANTIATE_TEST_SUITE_P(Ops, Sweep, ::testing::Values(ASSAY_OP_PREFILL, ASSAY_OP_PAGED),
                         [](const auto& info) { return std::string(name_of(op_names(), info.param)); });

bool same_bytes(const Inputs& a, const Inputs& b) {
  for (int i = 0; i < kOperandCount; ++i) {
    if (a.buffers[i].bytes() != b.buffers[i].bytes()) return false;
    if (a.buffers[i].bytes() > 0 &&
        std::memcmp(a.buffers[i].payload(), b.buffers[i].payload(), a.buffers[i].bytes()) != 0)
      return false;
  }
  return a.exact_o == b.exact_o && a.exact_lse == b.exact_lse && a.k_scale_host == b.k_scale_host;
}

TEST(BuildInputs, IdenticalForAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  for (int op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED})
    for (int recipe = 0; recipe <= static_cast<int>(InputRecipe::kExact); ++recipe)
      for (int turn = 0; turn < 2; ++turn) {
        constexpr int32_t kKinds[] = {ASSAY_SCALE_HOST, ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_REQUEST_HEAD,
                                      ASSAY_SCALE_CHANNEL};
        const int32_t scale = kKinds[2 * turn + recipe % 2];
        Problem p = mixed_problem();
        p.requests = {{40, 1500}, {700, 1000, 0, 25}, {0, 5}, {2, 0}, {5, 3}};
        ASSERT_GT(p.total_q() * p.heads_q * 32, kParallelElements);  // else there is nothing to compare
        p.op = op;
        p.recipe = static_cast<InputRecipe>(recipe);
        p.k_format = p.v_format = ASSAY_INT8;
        p.k_scale = p.v_scale = scale;
        if (op == ASSAY_OP_PAGED) place_pages(p);
        omp_set_num_threads(1);
        const Inputs one = build_inputs(p);
        omp_set_num_threads(5);
        const Inputs five = build_inputs(p);
        EXPECT_TRUE(same_bytes(one, five)) << "recipe " << recipe << " " << describe(p);
        Problem other = p;
        other.seed = 43;
        EXPECT_FALSE(same_bytes(one, build_inputs(other)));
      }
  omp_set_num_threads(threads);
}

TEST(BuildInputs, LogicalDataDoesNotDependOnPlacement) {
  Problem a = mixed_problem();
  a.k_format = a.v_format = ASSAY_FP8_E4M3;
  a.k_scale = ASSAY_SCALE_TOKEN_HEAD;
  a.v_scale = ASSAY_SCALE_HEAD;
  Problem b = a;
  place_pages(a);
  b.layout = ASSAY_LAYOUT_SHUFFLED;
  b.page_size = 32;
  b.table = ASSAY_TABLE_CSR;
  b.strided.kv = b.strided.scales = true;
  place_pages(b);
  Problem c = a;
  c.op = ASSAY_OP_PREFILL;
  c.pages.clear();
  const Inputs in_a = build_inputs(a), in_b = build_inputs(b), in_c = build_inputs(c);
  StoredReader ra(in_a), rb(in_b), rc(in_c);
  for (int r = 0; r < 5; ++r)
    for (int32_t key = 0; key < a.requests[r].kv_len; ++key)
      for (int32_t h = 0; h < 2; ++h)
        for (int32_t d = 0; d < 32; ++d) {
          ASSERT_EQ(ra.k(r, key, h, d), rb.k(r, key, h, d));
          ASSERT_EQ(ra.v(r, key, h, d), rb.v(r, key, h, d));
          ASSERT_EQ(ra.k(r, key, h, d), rc.k(r, key, h, d));
          ASSERT_EQ(ra.v(r, key, h, d), rc.v(r, key, h, d));
        }
}

TEST(BuildInputs, SharedPrefixesHoldEqualTokensAndOthersDiffer) {
  for (int scale : {ASSAY_SCALE_NONE, ASSAY_SCALE_REQUEST_HEAD, ASSAY_SCALE_TOKEN_HEAD})
    for (int recipe = 0; recipe < static_cast<int>(InputRecipe::kExact); ++recipe) {
      Problem p = mixed_problem();
      p.recipe = static_cast<InputRecipe>(recipe);
      p.k_format = p.v_format = ASSAY_FP8_E4M3;
      p.k_scale = p.v_scale = scale;
      p.requests = {{1, 60}, {1, 60, 0, 25}, {1, 60, 1, 50}, {1, 60}};
      place_pages(p);
      const Inputs inputs = build_inputs(p);
      StoredReader reader(inputs);
      const auto differing = [&](int a, int b, int32_t first, int32_t last) {
        int count = 0;
        for (int32_t key = first; key < last; ++key)
          for (int32_t h = 0; h < 2; ++h)
            for (int32_t d = 0; d < 32; ++d)
              count += reader.k(a, key, h, d) != reader.k(b, key, h, d) ||
                       reader.v(a, key, h, d) != reader.v(b, key, h, d);
        return count;
      };
      EXPECT_EQ(differing(0, 1, 0, 25), 0) << describe(p);
      EXPECT_EQ(differing(1, 2, 0, 50), 0) << describe(p);
      EXPECT_GT(differing(0, 1, 25, 60), 35 * 64 / 2) << describe(p);
      EXPECT_GT(differing(1, 2, 50, 60), 10 * 64 / 2) << describe(p);
      EXPECT_GT(differing(0, 3, 0, 60), 60 * 64 / 2) << describe(p);
      if (scale == ASSAY_SCALE_REQUEST_HEAD) {
        EXPECT_EQ(reader.at(Operand::kKScale, {0, 0}), reader.at(Operand::kKScale, {2, 0}));
        EXPECT_NE(reader.at(Operand::kKScale, {0, 0}), reader.at(Operand::kKScale, {3, 0}));
      }
    }
}

TEST(BuildInputs, ScalesDifferVisiblyBetweenUnitsAndUseTheirRange) {
  for (int format : {ASSAY_INT8, ASSAY_FP8_E4M3}) {
    const double most = format == ASSAY_INT8 ? 127 : 448;
    Problem p = mixed_problem();
    p.heads_q = p.heads_kv = 8;
    p.requests = {{4, 40}, {4, 50}};
    p.q_format = p.k_format = p.v_format = format;
    p.q_scale = p.k_scale = p.v_scale = ASSAY_SCALE_HEAD;
    place_pages(p);
    const Inputs inputs = build_inputs(p);
    StoredReader reader(inputs);
    for (bool v : {false, true}) {
      double smallest = 1e9, largest = 0;
      for (int32_t h = 0; h < 8; ++h) {
        const double scale = reader.at(v ? Operand::kVScale : Operand::kKScale, {h});
        smallest = std::min(smallest, scale);
        largest = std::max(largest, scale);
        double top = 0;
        for (int r = 0; r < 2; ++r)
          for (int32_t key = 0; key < p.requests[r].kv_len; ++key)
            for (int32_t d = 0; d < 32; ++d) top = std::max(top, std::abs(reader.code(v, r, key, h, d)));
        EXPECT_EQ(top, most);  // each head reaches the last code
      }
      EXPECT_GT(largest / smallest, 1.5);
    }
  }
}

TEST(BuildInputs, TableContents) {
  Problem p = mixed_problem();
  p.table = ASSAY_TABLE_CSR;
  p.alibi = ASSAY_ALIBI_LINEAR;
  p.sinks = true;
  p.mask = ASSAY_MASK_TREE;
  p.requests = {{2, 37}, {0, 0}, {1, 16}};
  p.tree_mask = {1, 0, 1, 1, 0};
  place_pages(p);
  const Inputs inputs = build_inputs(p);
  StoredReader reader(inputs);
  const auto vector = [&](Operand operand) {
    std::vector<double> values;
    for (int64_t i = 0; i < tensor_of(inputs.tensors, operand).shape[0]; ++i)
      values.push_back(reader.at(operand, {i}));
    return values;
  };
  using List = std::vector<double>;
  EXPECT_EQ(vector(Operand::kCuQ), (List{0, 2, 2, 3}));
  EXPECT_EQ(vector(Operand::kKvLen), (List{37, 0, 16}));
  EXPECT_EQ(vector(Operand::kIndptr), (List{0, 3, 3, 4}));
  EXPECT_EQ(vector(Operand::kLastPageLen), (List{5, 0, 16}));
  EXPECT_EQ(vector(Operand::kIndices), (List{double(p.pages[0][0]), double(p.pages[0][1]),
                                             double(p.pages[0][2]), double(p.pages[2][0])}));
  EXPECT_EQ(vector(Operand::kTreeMask), (List{1, 0, 1, 1, 0}));
  EXPECT_EQ(vector(Operand::kTreeIndptr), (List{0, 4, 4, 5}));
  for (size_t h = 0; h < 4; ++h)  // never those of the textbook, which a kernel may compute for itself
    EXPECT_NEAR(vector(Operand::kAlibiSlopes).at(h) / alibi_slopes(4)[h], 1.2, 0.16);
  for (double z : vector(Operand::kSinks)) EXPECT_TRUE(std::abs(z - std::log1p(37) + 1) < 4.9);
  EXPECT_EQ(inputs.tensors.block_table.data, nullptr);
  EXPECT_EQ(inputs.tensors.cu_kv.data, nullptr);
  EXPECT_EQ(inputs.tensors.workspace.data, nullptr);
  EXPECT_EQ(inputs.tensors.q_scale.data, nullptr);
  EXPECT_EQ(inputs.tensors.struct_size, sizeof(assay_tensors));
  const std::vector<float> twelve = alibi_slopes(12);  // eight, then every other slope of sixteen
  EXPECT_FLOAT_EQ(twelve[0], 0.5f);
  EXPECT_FLOAT_EQ(twelve[7], 0.00390625f);
  EXPECT_FLOAT_EQ(twelve[8], std::exp2(-0.5f));
  EXPECT_FLOAT_EQ(twelve[11], std::exp2(-3.5f));
}

TEST(BuildInputs, StridedOperandsHaveTheDocumentedShapes) {
  Problem p = mixed_problem();
  p.k_format = p.v_format = ASSAY_INT8;
  p.k_scale = p.v_scale = ASSAY_SCALE_TOKEN_HEAD;
  p.strided = {true, true, true, true, true};
  place_pages(p);
  const Inputs inputs = build_inputs(p);
  const assay_tensors& t = inputs.tensors;
  EXPECT_EQ(t.q.stride[0], (4 + 2 * 2) * 32);
  EXPECT_EQ(t.k.stride[1], 3 * 32);
  EXPECT_EQ(t.o.stride[0], 5 * 32);
  EXPECT_EQ(t.lse.shape[0], 11);
  EXPECT_EQ(t.lse.stride[0], 1);
  EXPECT_EQ(t.lse.stride[1], 11);
  EXPECT_EQ(t.block_table.shape[1], 3);
  EXPECT_EQ(t.block_table.stride[0], 3 + kTablePadding);
  EXPECT_EQ(t.k_scale.stride[0], 16);
  EXPECT_EQ(t.k_scale.stride[1], int64_t{p.num_blocks} * 16);
  EXPECT_EQ(t.k_scale.stride[2], 1);
}

TEST(BuildInputs, NoOperandIsInfinite) {
  for (const InputRecipe recipe :
       {InputRecipe::kNegative, InputRecipe::kBoundary, InputRecipe::kPeaked, InputRecipe::kPatterned}) {
    Problem p = mixed_problem();
    p.op = ASSAY_OP_PREFILL;
    p.table = ASSAY_TABLE_NONE;
    p.q_format = p.k_format = p.v_format = ASSAY_FP16;
    p.softmax_scale = 1e-5f;
    p.head_dim_qk = p.head_dim_v = 2, p.requests = {{8, 8}}, p.recipe = recipe;
    const Inputs inputs = build_inputs(p);
    double largest = 0;
    for (const Operand operand : {Operand::kQ, Operand::kK, Operand::kV}) {
      const assay_tensor& t = tensor_of(inputs.tensors, operand);
      for (int64_t i = 0; i < t.shape[0] * t.stride[0]; ++i)
        largest = std::max(largest, std::fabs(load(t.format, t.data, i)));
    }
    EXPECT_LE(largest, 65504) << static_cast<int>(recipe);  // poison, a NaN, is no maximum
    EXPECT_TRUE(recipe != InputRecipe::kNegative || largest == 65504);
  }
}

TEST(BuildInputs, EmptyBatchesAndUnquantisedAccess) {
  Problem p = mixed_problem();
  p.requests = {};
  place_pages(p);
  EXPECT_NO_THROW(build_inputs(p));
  p.requests = {{0, 0}};
  place_pages(p);
  const Inputs inputs = build_inputs(p);
  EXPECT_NE(inputs.tensors.q.data, nullptr);  // used, though it has no element
  p = mixed_problem();
  place_pages(p);
  p.k_format = ASSAY_FP32;
  const Inputs full = build_inputs(p);
  StoredReader reader(full);
  EXPECT_EQ(static_cast<float>(unquantized_k(p, 1, 39, 1, 7)), reader.k(1, 39, 1, 7));
  EXPECT_NEAR(unquantized_v(p, 1, 39, 1, 7), reader.v(1, 39, 1, 7), 0.01);
}

}  // namespace
}  // namespace assay
