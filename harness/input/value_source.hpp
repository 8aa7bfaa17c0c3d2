// SPDX-License-Identifier: Apache-2.0
// What Q, K and V hold before quantisation, row by row: a function of (seed, stream, logical index) where
// the index knows the owner of a token, its position, the head and the dimension, and nothing of where
// the cache puts it. Two placements of one problem, and requests that share a prefix, hold equal tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "harness/input/code_kinds.hpp"
#include "harness/input/exact_recipe.hpp"
#include "harness/input/patterns.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

enum class Side : int { kQ, kK, kV };

// Request at the end of the sharing chain: requests with one root may hold the same physical pages.
std::vector<int> sharing_roots(const Problem&);

class ValueSource {
 public:
  // Throws InputError when the exact recipe does not fit. Keeps a reference to the problem.
  explicit ValueSource(const Problem&);

  // One row of head_dim_qk or head_dim_v values. `head` is a query head for q, a KV head for k and v.
  void q(int request, int32_t row, int32_t head, double* out) const;
  void k(int request, int32_t position, int32_t head, double* out) const;
  void v(int request, int32_t position, int32_t head, double* out) const;

  // What the largest code of the row's scale stands for at least, whatever the row holds; mostly 0.
  double up_to(Side, int request, int32_t token, int32_t head) const;

  const std::vector<int>& roots() const { return roots_; }
  const ExactRecipe* exact() const { return exact_.get(); }

 private:
  uint64_t kv_index(int owner, int32_t position, int32_t head, int32_t dim) const;
  int32_t direction_begin() const;
  double sign(int root, int32_t head, int32_t dim) const;
  double outlier(Side, int32_t head, int32_t dim) const;
  double unit_size(Side, int request, int64_t token, int32_t head) const;
  void spread_units(Side, int request, int64_t token, int32_t head, double* out) const;
  void coded_k(int owner, int32_t position, int32_t head, double* out) const;
  bool agreeing_q(int request, int32_t row, int32_t head, uint64_t first, double* out) const;
  void boundary_q(int request, int32_t row, int32_t head, double* out) const;

  const Problem& p_;
  bool latent_ = false;  // MLA: V is the front of K's row
  std::vector<int> roots_;
  std::unique_ptr<ExactRecipe> exact_;
  std::optional<Patterns> patterns_;
  std::optional<CodeKinds> codes_;
};

}  // namespace assay
