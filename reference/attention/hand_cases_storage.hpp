// SPDX-License-Identifier: Apache-2.0
// Hand-worked cases of storage: what a code under a scale of each granularity is worth, and which
// physical place a position is read from for every layout, page table, storage and stride.
#pragma once

#include <cmath>
#include <vector>

#include "reference/attention/hand_cases.hpp"

namespace assay::test {

// Two KV heads of dimension 2, two requests of one token over two keys. All codes of K are 0 except key 1,
// dimension 0, which is 2; q = (1, 0), so scores are 0 and 2 * (scale of that key). V codes are 1 in
// dimension 0 and 3 in dimension 1.
inline HandCase scale_case(const char* name, const char* shows, int32_t op, int32_t kind) {
  HandCase c;
  c.name = name;
  c.shows = shows;
  Problem& p = c.problem;
  p.op = op;
  p.heads_q = p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 2;
  p.q_format = p.o_format = ASSAY_FP32;
  p.k_format = p.v_format = ASSAY_INT8;
  p.k_scale = p.v_scale = kind;
  p.page_size = 2;
  p.softmax_scale = 1;
  p.requests = {{1, 2}, {1, 2}};
  c.values.q = [](int, int32_t, int32_t, int32_t d) { return d == 0 ? 1.0 : 0.0; };
  c.values.k = [](int, int32_t j, int32_t, int32_t d) { return j == 1 && d == 0 ? 2.0 : 0.0; };
  c.values.v = [](int, int32_t, int32_t, int32_t d) { return d == 0 ? 1.0 : 3.0; };
  return c;
}

inline std::vector<HandCase> scale_cases() {
  std::vector<HandCase> cases;
  const double e = std::exp(1.0);
  const auto constant = [](double x) { return [x](int, int32_t, int32_t, int32_t) { return x; }; };
  const auto add = [&](HandCase c) { cases.push_back(std::move(c)); };

  {
    HandCase c =
        scale_case("scale_tensor", "one float in memory: code 2 * 0.5 scores 1; V codes 1, 3 times 4",
                   ASSAY_OP_PAGED, ASSAY_SCALE_TENSOR);
    c.values.k_scale = constant(0.5);
    c.values.v_scale = constant(4);
    c.expected = {{{0, 0}, 0, {4, 12}, std::log(1 + e)}, {{1, 0}, 1, {4, 12}, std::log(1 + e)}};
    add(c);
    c.name = "scale_host";
    c.shows = "the same, the floats passed by value";
    c.problem.k_scale = c.problem.v_scale = ASSAY_SCALE_HOST;
    add(c);
  }
  {
    HandCase c = scale_case("scale_head", "KV head g: K scale g / 2, V scale g + 1", ASSAY_OP_PREFILL,
                            ASSAY_SCALE_HEAD);
    c.values.k_scale = [](int, int32_t, int32_t g, int32_t) { return g * 0.5; };
    c.values.v_scale = [](int, int32_t, int32_t g, int32_t) { return g + 1.0; };
    c.expected = {{{0, 0}, 0, {1, 3}, std::log(2)}, {{1, 0}, 1, {2, 6}, std::log(1 + e)}};
    add(c);
  }
  {
    HandCase c =
        scale_case("scale_request_head", "request r, KV head g: K scale r g / 2, V scale 1 + 2 r + g",
                   ASSAY_OP_PAGED, ASSAY_SCALE_REQUEST_HEAD);
    c.values.k_scale = [](int r, int32_t, int32_t g, int32_t) { return r * g * 0.5; };
    c.values.v_scale = [](int r, int32_t, int32_t g, int32_t) { return 1.0 + 2 * r + g; };
    c.expected = {{{0, 0}, 1, {2, 6}, std::log(2)},
                  {{1, 0}, 0, {3, 9}, std::log(2)},
                  {{1, 0}, 1, {4, 12}, std::log(1 + e)}};
    add(c);
  }
  for (const int32_t op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED}) {
    HandCase c =
        scale_case(op == ASSAY_OP_PAGED ? "scale_token_head_paged" : "scale_token_head_prefill",
                   "a scale per token and KV head: key 1 scores 2 * 0.5, values 1 and 2 times (1, 3)", op,
                   ASSAY_SCALE_TOKEN_HEAD);
    c.values.k_scale = [](int, int32_t j, int32_t, int32_t) { return j == 1 ? 0.5 : 8.0; };
    c.values.v_scale = [](int r, int32_t j, int32_t g, int32_t) { return j + 1.0 + 4 * r + 8 * g; };
    const double mean = (1 + 2 * e) / (1 + e);
    c.expected = {{{0, 0}, 0, {mean, 3 * mean}, std::log(1 + e)},
                  {{1, 0}, 0, {mean + 4, 3 * (mean + 4)}, std::log(1 + e)},
                  {{1, 0}, 1, {mean + 12, 3 * (mean + 12)}, std::log(1 + e)}};
    add(c);
    c.name += "_transposed";
    c.shows = "the same scales stored [heads, tokens] (prefill) or padded (paged), read through strides";
    c.problem.strided.scales = true;
    add(c);
  }
  {
    HandCase c = scale_case("scale_channel", "a scale per KV head and channel: K (0.5, 100), V (1 + g, 10)",
                            ASSAY_OP_PAGED, ASSAY_SCALE_CHANNEL);
    c.values.k_scale = [](int, int32_t, int32_t, int32_t d) { return d == 0 ? 0.5 : 100.0; };
    c.values.v_scale = [](int, int32_t, int32_t g, int32_t d) { return d == 0 ? 1.0 + g : 10.0; };
    c.expected = {{{0, 0}, 0, {1, 30}, std::log(1 + e)}, {{1, 0}, 1, {2, 30}, std::log(1 + e)}};
    add(c);
  }
  {
    HandCase c = scale_case("scale_q_request_head",
                            "Q's descale has one entry per request and KV head, not query head",
                            ASSAY_OP_PAGED, ASSAY_SCALE_HOST);
    c.problem.heads_q = 4;
    c.problem.q_format = ASSAY_FP8_E4M3;
    c.problem.q_scale = ASSAY_SCALE_REQUEST_HEAD;
    c.values.q_scale = [](int r, int32_t, int32_t g, int32_t) { return g == 1 ? 0.5 * r : 0.0; };
    c.expected = {{{1, 0}, 1, {1, 3}, std::log(2)},
                  {{1, 0}, 2, {1, 3}, std::log(1 + e)},
                  {{0, 0}, 3, {1, 3}, std::log(2)}};
    add(c);
  }
  {
    HandCase c = scale_case("scale_q_token_head",
                            "Q per token and query head: head h of token t scores 2 * (t + h) / 2",
                            ASSAY_OP_PREFILL, ASSAY_SCALE_HOST);
    c.problem.q_format = ASSAY_INT8;
    c.problem.q_scale = ASSAY_SCALE_TOKEN_HEAD;
    c.values.q_scale = [](int r, int32_t, int32_t h, int32_t) { return 0.5 * (r + h); };
    c.expected = {{{0, 0}, 0, {1, 3}, std::log(2)},
                  {{0, 0}, 1, {1, 3}, std::log(1 + e)},
                  {{1, 0}, 1, {1, 3}, std::log(1 + e * e)}};
    add(c);
  }
  {
    HandCase c = scale_case("int8_k_with_16_bit_v", "mixed cache: int8 K scaled by 0.5, bf16 V as it is",
                            ASSAY_OP_PAGED, ASSAY_SCALE_HOST);
    c.problem.v_format = ASSAY_BF16;
    c.problem.v_scale = ASSAY_SCALE_NONE;
    c.values.k_scale = constant(0.5);
    c.values.v_scale = constant(99);  // must not be applied
    c.expected = {{{0, 0}, 1, {1, 3}, std::log(1 + e)}};
    add(c);
  }
  {
    HandCase c = scale_case("fp8_without_scale", "fp8 codes are values: e5m2fnuz 2 scores 2", ASSAY_OP_PAGED,
                            ASSAY_SCALE_NONE);
    c.problem.k_format = c.problem.v_format = ASSAY_FP8_E5M2FNUZ;
    c.expected = {{{0, 0}, 0, {1, 3}, std::log(1 + e * e)}};
    add(c);
  }
  return cases;
}

// One head, page size 2, request 0 with 3 keys and request 1 with 5: equal scores, V = 100 r + j, so the
// mean tells which places were read: 1 for request 0, 102 for request 1.
inline HandCase place_case(const std::string& name, const std::string& shows, int32_t layout, int32_t table,
                           Storage storage) {
  HandCase c = scalar_case(name, shows, {{1, 3}, {1, 5}}, {0, 0, 0, 0, 0}, {});
  Problem& p = c.problem;
  p.op = ASSAY_OP_PAGED;
  p.layout = layout;
  p.table = table;
  p.storage = storage;
  p.page_size = layout == ASSAY_LAYOUT_SHUFFLED ? 4 : 2;
  if (layout == ASSAY_LAYOUT_X || layout == ASSAY_LAYOUT_SHUFFLED) p.head_dim_qk = 4;
  if (storage != Storage::kSplit) p.head_dim_v = p.head_dim_qk;
  c.values.v = [](int r, int32_t j, int32_t, int32_t d) { return 100.0 * r + j + 1000 * d; };
  for (const Expected& x : {Expected{{0, 0}, 0, {1}, std::log(3)}, Expected{{1, 0}, 0, {102}, std::log(5)}}) {
    c.expected.push_back(x);
    for (int32_t d = 1; d < p.head_dim_v; ++d) c.expected.back().o.push_back(x.o[0] + 1000 * d);
  }
  return c;
}

inline std::vector<HandCase> place_cases() {
  std::vector<HandCase> cases;
  const auto add = [&](const char* name, const char* shows, int32_t layout, int32_t table,
                       Storage storage = Storage::kSplit) -> HandCase& {
    cases.push_back(place_case(name, shows, layout, table, storage));
    return cases.back();
  };
  add("table_block", "padded block table", ASSAY_LAYOUT_NHD, ASSAY_TABLE_BLOCK);
  add("table_block_strided", "rows of the table padded with absurd blocks", ASSAY_LAYOUT_NHD,
      ASSAY_TABLE_BLOCK)
      .problem.strided.table = true;
  add("table_csr", "indptr, indices and the length of the last page", ASSAY_LAYOUT_NHD, ASSAY_TABLE_CSR);
  add("table_token", "one flat slot per token", ASSAY_LAYOUT_NHD, ASSAY_TABLE_TOKEN);
  add("layout_hnd", "heads outside the page", ASSAY_LAYOUT_HND, ASSAY_TABLE_BLOCK);
  add("layout_x", "K in packs of x = 4 floats, V with slots innermost", ASSAY_LAYOUT_X, ASSAY_TABLE_BLOCK)
      .problem.head_dim_v = 1;
  add("layout_shuffled", "V in packs of x = 4 slots", ASSAY_LAYOUT_SHUFFLED, ASSAY_TABLE_BLOCK);
  add("storage_stacked", "K and V halves of one allocation", ASSAY_LAYOUT_NHD, ASSAY_TABLE_BLOCK,
      Storage::kStacked);
  add("storage_interleaved", "K and V alternate page by page", ASSAY_LAYOUT_HND, ASSAY_TABLE_CSR,
      Storage::kInterleaved);
  {
    HandCase& c = add("strided_operands", "Q a slice of a fused projection, K and V slices with a spare head",
                      ASSAY_LAYOUT_NHD, ASSAY_TABLE_BLOCK);
    c.problem.strided = {true, true, false, true, false};
  }
  {
    HandCase& c = add("shared_pages", "request 1 reads its first page (2 keys) where request 0 wrote it",
                      ASSAY_LAYOUT_NHD, ASSAY_TABLE_BLOCK);
    c.problem.requests[1].shared_with = 0;
    c.problem.requests[1].shared_tokens = 2;
    c.expected = {{{0, 0}, 0, {1}, std::log(3)}, {{1, 0}, 0, {(0 + 1 + 102 + 103 + 104) / 5.0}, std::log(5)}};
  }
  {
    HandCase& c = add("mla_v_is_prefix_of_k", "the latent row is K whole and V in its first entries",
                      ASSAY_LAYOUT_MLA, ASSAY_TABLE_TOKEN);
    c.problem.head_dim_qk = 3;
    c.problem.head_dim_v = 2;
    c.values.q = [](int, int32_t, int32_t, int32_t d) { return d == 2 ? 1.0 : 0.0; };
    c.values.k = [](int r, int32_t j, int32_t, int32_t d) { return d == 2 ? 7.0 : 100.0 * r + j + 1000 * d; };
    c.expected = {{{0, 0}, 0, {1, 1001}, 7 + std::log(3)}, {{1, 0}, 0, {102, 1102}, 7 + std::log(5)}};
  }
  {
    HandCase& c =
        add("mla_scaled", "V of a scaled latent row is scaled like K", ASSAY_LAYOUT_MLA, ASSAY_TABLE_BLOCK);
    c.problem.k_format = c.problem.v_format = ASSAY_INT8;
    c.problem.k_scale = c.problem.v_scale = ASSAY_SCALE_TENSOR;
    c.values.q = [](int, int32_t, int32_t, int32_t) { return 0.0; };
    c.values.k = [](int r, int32_t j, int32_t, int32_t) { return 10.0 * r + j; };
    c.values.k_scale = [](int, int32_t, int32_t, int32_t) { return 0.25; };
    c.expected = {{{0, 0}, 0, {0.25}, std::log(3)}, {{1, 0}, 0, {3}, std::log(5)}};
  }
  return cases;
}

inline std::vector<HandCase> storage_cases() {
  std::vector<HandCase> cases = scale_cases();
  for (HandCase& c : place_cases()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace assay::test
