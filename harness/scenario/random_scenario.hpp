// SPDX-License-Identifier: Apache-2.0
// Random scenarios for the tests: every field takes common and odd values, independently of the others,
// so about one in ten obeys all rules. Draws members directly, not through the parser it tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "harness/ops/op.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {

class ScenarioGenerator {
 public:
  explicit ScenarioGenerator(uint64_t seed) : random_(seed) {}

  // Any combination, valid or not.
  Scenario any() {
    Scenario s;
    if (chance(8)) return any_block();
    s.op = one_of_ops([](const Op& op) { return op.whole_context; }).id;
    s.heads_kv = one_of({1, 1, 2, 3, 8});
    s.heads_q = s.heads_kv * one_of({1, 2, 4, 5, 7}) + (chance(20) ? 1 : 0);
    s.head_dim_qk = one_of({1, 48, 64, 72, 128, 192, 576});
    s.head_dim_v = chance(3) ? one_of({32, 128, 512, 1024}) : s.head_dim_qk;
    s.q = quantization(6);
    s.k = chance(2) ? quantization(2) : default_kv(s);
    s.v = chance(3) ? quantization(2) : s.k;
    s.o_format = chance(2) ? one_of({ASSAY_FP32, ASSAY_BF16, ASSAY_FP16}) : ASSAY_BF16;
    if (op_of(s.op).has_cache || chance(10)) {
      s.min_blocks = one_of({0, 0, 0, 1, 70, 2048, 65538});
      s.page_size = one_of({1, 8, 16, 64, 528, 1024, 65536});
      s.layout = one_of(
          {ASSAY_LAYOUT_NHD, ASSAY_LAYOUT_HND, ASSAY_LAYOUT_X, ASSAY_LAYOUT_SHUFFLED, ASSAY_LAYOUT_MLA});
      s.storage = one_of({Storage::kSplit, Storage::kSplit, Storage::kStacked, Storage::kInterleaved});
      if (chance(s.storage == Storage::kInterleaved ? 2 : 20)) s.layers = one_of({2, 3, 61});
      s.table = one_of({ASSAY_TABLE_BLOCK, ASSAY_TABLE_CSR, ASSAY_TABLE_TOKEN});
      s.swa_index = chance(5);
      s.drawn_slots = chance(8);
    }
    if (chance(3)) s.strided = {chance(2), chance(2), chance(2), chance(4), chance(4), chance(6)};
    s.mask =
        one_of({ASSAY_MASK_CAUSAL, ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL, ASSAY_MASK_CROSS, ASSAY_MASK_TREE});
    s.window_left = one_of({-1, -1, 0, 127, 1023, 1024, 4096});
    s.window_right = one_of({-1, -1, -1, 0, 15, 2048});
    s.chunk = one_of({0, 0, 0, 1, 100, 8192});
    s.softcap = one_of({0.0, 0.0, 50.0, 0.1, 1e-5, 30.25, 1e22});
    s.alibi = one_of({ASSAY_ALIBI_NONE, ASSAY_ALIBI_LINEAR, ASSAY_ALIBI_SQRT});
    s.sinks = chance(3);
    s.softmax_scale = one_of({0.0, 0.0, 0.125, 1.0 / 3, 1e-7});
    s.batch = batch(op_of(s.op));
    s.recipe = static_cast<InputRecipe>(below(11));
    if (chance(3)) s.relations = static_cast<uint32_t>(random_()) & static_cast<uint32_t>(random_()) & 0xff;
    s.seed = one_of<uint64_t>({0, 1, 7, ~uint64_t{0}, random_()});
    if (chance(8)) s.first_key = one_of({0, 1, 4096, 1000003, kDrawnPositions});
    if (chance(12)) s.tree_bits = chance(2) ? "1" : "10000/11000/10100/11010/11011";
    if (chance(8)) s.positions = one_of({0, 17, 65536, kDrawnPositions, kDepthPositions});
    return s;
  }

  // Of an op that does not see a whole context; it says which fields it takes, and most of these are valid.
  Scenario any_block() {
    const Op& op = one_of_ops([](const Op& o) { return !o.whole_context; });
    Scenario s;
    s.op = op.id;
    s.heads_kv = one_of({1, 2, 3});
    s.heads_q = s.heads_kv * one_of({1, 2, 5});
    s.head_dim_qk = one_of({48, 64, 72, 128});
    s.head_dim_v = chance(3) ? 32 : s.head_dim_qk;
    s.source_format = takes(op, "from") ? one_of({ASSAY_FP32, ASSAY_BF16, ASSAY_FP16}) : ASSAY_BF16;
    s.o_format = op.default_out == ASSAY_FORMAT_NONE ? int32_t{ASSAY_BF16} : op.default_out;
    s.q = op.default_q;
    if (takes(op, "q") && s.q.scale != ASSAY_SCALE_NONE)
      s.q.scale = one_of({ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_CHANNEL, ASSAY_SCALE_HEAD});
    if (takes(op, "sinks")) s.sinks = chance(3);
    if (takes(op, "pad")) s.padded_rows = one_of({0, 0, 1, 9, 1024});
    if (takes(op, "kv")) {
      s.k = quantization(2);
      s.v = chance(3) ? quantization(2) : s.k;
    }
    if (op.has_cache) {
      s.page_size = one_of({1, 8, 16, 528});
      if (takes(op, "layout"))
        s.layout = one_of({ASSAY_LAYOUT_NHD, ASSAY_LAYOUT_HND, ASSAY_LAYOUT_X, ASSAY_LAYOUT_SHUFFLED});
    }
    if (takes(op, "table")) s.table = one_of({ASSAY_TABLE_BLOCK, ASSAY_TABLE_CSR, ASSAY_TABLE_TOKEN});
    if (takes(op, "part")) s.part_tokens = one_of({0, 2, 64, 256});
    if (takes(op, "states") && (!takes(op, "part") || s.part_tokens == 0))
      s.states = one_of({1, 2, 3, 17, 256});
    if (takes(op, "ranks") && !op.attends_rows) s.ranks = one_of({1, 2, 7});
    if (takes(op, "interleave") && !op.attends_rows) s.interleave = one_of({1, 16, 100});
    if (takes(op, "threshold")) s.threshold = one_of({0, 1, 4});
    if (takes(op, "budget")) s.token_budget = one_of({64, 1024, 32768});
    if (takes(op, "prefix")) s.prefix_tokens = one_of({0, 16, 528});
    if (takes(op, "workers")) s.workers = one_of({1, 7, 132});
    if (takes(op, "tile")) s.tile_rows = one_of({1, 16, 256}), s.tile_keys = one_of({1, 16, 128});
    if (takes(op, "tree")) s.flat_tree = chance(2);
    if (takes(op, "scales")) s.computed_scales = chance(3);
    if (takes(op, "write")) s.no_write = chance(4);
    if (takes(op, "encoder") && chance(4)) s.encoder_tokens = one_of({1, 16, 77});
    if (takes(op, "pool")) s.full_pool = chance(4);
    if (takes(op, "encoder") && op.attends_rows && chance(6)) s.mask = ASSAY_MASK_CROSS;
    if (takes(op, "drafted") && chance(3)) s.drafted = one_of({1, 3});
    if (takes(op, "sources") && !op.attends_rows && chance(3)) s.source_format = ASSAY_FORMAT_NONE;
    if (takes(op, "sources")) s.split_latent = chance(3);
    if (takes(op, "chunk") && !op.attends_rows) s.chunk = one_of({0, 16, 528 * 16, 100});
    if (takes(op, "window") && chance(3)) s.window_left = one_of({0, 63});
    if (chance(3)) s.strided = {chance(3), chance(3), chance(3), chance(4), chance(4), chance(6)};
    if (chance(4)) s.recipe = static_cast<InputRecipe>(below(11));
    s.batch = batch(op_of(s.op));
    s.seed = one_of<uint64_t>({0, 7, random_()});
    return s;
  }

  Scenario valid() {
    while (true) {
      Scenario s = any();
      if (!broken_rule(s)) return s;
    }
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int one_in) { return below(one_in) == 0; }

 private:
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int64_t>(values.size()))];
  }

  template <typename Holds>
  const Op& one_of_ops(Holds holds) {
    std::vector<const Op*> list;
    for (const Op* op : all_ops())
      if (holds(*op)) list.push_back(op);
    return *list[below(static_cast<int64_t>(list.size()))];
  }

  Quantization quantization(int one_in_quantized) {
    Quantization q;
    if (chance(one_in_quantized)) {
      q.format = one_of<int32_t>(
          {ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8});
      q.scale = static_cast<int32_t>(1 + below(6));
    } else {
      q.format = one_of<int32_t>({ASSAY_FP32, ASSAY_BF16, ASSAY_BF16, ASSAY_FP16});
    }
    return q;
  }

  static Quantization default_kv(const Scenario& s) {
    return s.q.scale == ASSAY_SCALE_NONE ? s.q : Quantization{};
  }

  LengthRange range(int32_t high) {
    const auto low = static_cast<int32_t>(below(high));
    return {low, low + static_cast<int32_t>(chance(2) ? 0 : below(high))};
  }

  BatchSpec batch(const Op& op) {
    BatchSpec b;
    switch (below(6)) {
      case 0:
        b.kind = BatchSpec::Kind::kUniform;
        break;
      case 1:
        b.kind = BatchSpec::Kind::kZipf;
        b.exponent = one_of({1.2, 0.5, 1.0, 2.75});
        break;
      case 2:
        b.kind = BatchSpec::Kind::kTrace;
        b.file = chance(2) ? "a.csv" : "folder/long-name_2.jsonl";
        b.step = below(100000);
        b.tokens = one_of({8192, 1, 1000, 2048});
        b.seqs = one_of({256, 1, 77});
        b.rate = one_of({1.0, 0.1, 3.0});
        if (chance(3)) b.q = {4, 4};
        return b;
      default:
        for (int64_t n = 1 + below(4); n > 0; --n) {
          BatchGroup g;
          g.count = static_cast<int32_t>(1 + below(70));
          g.q_len = one_of({0, 1, 1, 5, 512, 1024});
          g.kv_len = one_of({g.q_len, 0, 1, 17, 1023, 4096, 5000});
          g.shared = op.shares_pages && chance(4) ? static_cast<int32_t>(below(g.kv_len + 1)) : 0;
          b.groups.push_back(g);
        }
        return b;
    }
    b.n = static_cast<int32_t>(1 + below(100));
    b.q = range(2048);
    b.s = range(4096);
    if (b.kind == BatchSpec::Kind::kZipf)  // its lengths begin at 1
      b.s = {std::max(b.s.low, 1), std::max(b.s.high, 1)};
    return b;
  }

  std::mt19937_64 random_;
};

}  // namespace assay
