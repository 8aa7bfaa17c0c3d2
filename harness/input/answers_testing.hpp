// SPDX-License-Identifier: Apache-2.0
// Test support for the recipes with a known answer: brute-force attention in double over the *stored*
// operands and chosen sets of keys, and a list of problems with every mask. A new mask: a case in
// answer_masks().
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/input/stored_reader.hpp"
#include "harness/input/value_source.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay::answers {

inline Problem base(InputRecipe recipe = InputRecipe::kExact) {
  Problem p;
  p.seed = 9;
  p.recipe = recipe;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 32;
  p.softmax_scale = recipe == InputRecipe::kDyadic ? static_cast<float>(std::log(2.0)) : 0.1767767f;
  p.page_size = 16;
  p.requests = {{3, 77}, {8, 90, 0, 25}, {0, 5}, {2, 0}, {5, 3}, {1, 200}};
  return p;
}

struct Answer {
  std::vector<double> o;
  double lse;
};

// The stored operands of one request and head, read once.
struct Stored {
  std::vector<std::vector<double>> q, k, v;
};

inline Stored gather(const Problem& p, StoredReader& reader, int r, int32_t head) {
  Stored s;
  const auto rows = [](int32_t count, int32_t dims, const auto& read) {
    std::vector<std::vector<double>> list(count, std::vector<double>(dims));
    for (int32_t i = 0; i < count; ++i)
      for (int32_t d = 0; d < dims; ++d) list[i][d] = read(i, d);
    return list;
  };
  const int32_t kv_head = head / p.group();
  const Request& request = p.requests[r];
  s.q = rows(request.q_len, p.head_dim_qk, [&](int32_t i, int32_t d) { return reader.q(r, i, head, d); });
  s.k = rows(request.kv_len, p.head_dim_qk, [&](int32_t i, int32_t d) { return reader.k(r, i, kv_head, d); });
  s.v = rows(request.kv_len, p.head_dim_v, [&](int32_t i, int32_t d) { return reader.v(r, i, kv_head, d); });
  return s;
}

// Softmax attention of one row over a set of keys. No mask rule in here.
inline Answer attend(const Problem& p, const Stored& s, int32_t row, const std::vector<int32_t>& keys) {
  std::vector<double> logit;
  double largest = -std::numeric_limits<double>::infinity();
  for (int32_t key : keys) {
    double dot = 0;
    for (int32_t d = 0; d < p.head_dim_qk; ++d) dot += s.q[row][d] * s.k[key][d];
    logit.push_back(dot * p.softmax_scale);
    largest = std::max(largest, logit.back());
  }
  Answer answer{std::vector<double>(p.head_dim_v, 0.0), largest};
  if (keys.empty()) return answer;
  double sum = 0;
  for (double x : logit) sum += std::exp(x - largest);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(logit[i] - largest) / sum;
    if (weight < 1e-60) continue;
    for (int32_t d = 0; d < p.head_dim_v; ++d) answer.o[d] += weight * s.v[keys[i]][d];
  }
  answer.lse = largest + std::log(sum);
  return answer;
}

inline std::vector<int32_t> visible_keys(const Problem& p, int r, int32_t row) {
  std::vector<int32_t> keys;
  for (int32_t key = 0; key < p.requests[r].kv_len; ++key)
    if (visible(p, r, row, key)) keys.push_back(key);
  return keys;
}

// Every row and head of the promised answer. Dyadic answers are those of ln 2, which fp32 holds to 4e-8.
inline void check_answers(const Problem& p) {
  const Inputs inputs = build_inputs(p);
  const double slack = p.recipe == InputRecipe::kDyadic ? 1e-6 : 1e-12;
  StoredReader reader(inputs);
  const std::vector<int32_t> first = p.cu_q();
  ASSERT_EQ(inputs.exact_o.size(), size_t(p.total_q() * p.heads_q * p.head_dim_v));
  ASSERT_EQ(inputs.exact_lse.size(), size_t(p.total_q() * p.heads_q));
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
    for (int32_t head = 0; head < p.heads_q; ++head) {
      const Stored operands = gather(p, reader, r, head);
      for (int32_t row = 0; row < p.requests[r].q_len; ++row) {
        const Answer want = attend(p, operands, row, visible_keys(p, r, row));
        const int64_t at = (int64_t{first[r]} + row) * p.heads_q + head;
        if (std::isinf(want.lse)) {
          ASSERT_EQ(inputs.exact_lse[at], want.lse);
        } else {
          ASSERT_NEAR(inputs.exact_lse[at], want.lse, 1e-12)
              << "request " << r << " row " << row << " head " << head;
        }
        for (int32_t d = 0; d < p.head_dim_v; ++d) {
          const double o = inputs.exact_o[at * p.head_dim_v + d];
          ASSERT_NEAR(o, want.o[d], slack)
              << "request " << r << " row " << row << " head " << head << " dim " << d;
          ASSERT_EQ(round_to(p.o_format, o), o);
        }
      }
    }
}

inline std::vector<Problem> masks(InputRecipe recipe = InputRecipe::kExact) {
  std::vector<Problem> list;
  const auto add = [&](const std::function<void(Problem&)>& change) {
    list.push_back(base(recipe));
    change(list.back());
  };
  add([](Problem&) {});
  add([](Problem& p) { p.mask = ASSAY_MASK_FULL; });
  add([](Problem& p) { p.mask = ASSAY_MASK_CROSS; });
  add([](Problem& p) { p.window_left = 12; });
  add([](Problem& p) { p.window_left = 0; });
  add([](Problem& p) {
    p.mask = ASSAY_MASK_FULL;
    p.window_left = p.window_right = 7;
  });
  add([](Problem& p) { p.chunk = 24; });
  add([](Problem& p) {
    p.chunk = 24;
    p.window_left = 9;
  });
  add([](Problem& p) {
    p.mask = ASSAY_MASK_TREE;
    p.tree_mask.resize(p.tree_indptr().back());
    for (size_t i = 0; i < p.tree_mask.size(); ++i) p.tree_mask[i] = CounterRng(1, kStreamTree).bits(i) & 1;
  });
  return list;
}

inline std::string refusal(const Problem& p) {
  try {
    build_inputs(p);
  } catch (const InputError& error) {
    return error.message();
  }
  return "";
}

}  // namespace assay::answers
