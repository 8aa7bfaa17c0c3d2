// SPDX-License-Identifier: Apache-2.0
// Seeded random attention problems with every storage variant, and the answer in double by plain loops,
// for the tests of this folder only. Deliberately shares no code with the kernels or the harness: codes are
// decoded, placed and attended to here a second time. Unused slots hold NaN, so a leak shows.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay_cpu::testing {

struct Lengths {
  int32_t q_len, kv_len;
};

// What to build; everything not listed follows from the seed.
struct Spec {
  int32_t op = ASSAY_OP_PAGED;
  int32_t mask = ASSAY_MASK_CAUSAL;
  int32_t heads_q = 4, heads_kv = 2, head_dim_qk = 32, head_dim_v = 32;
  int32_t q_format = ASSAY_BF16, k_format = ASSAY_BF16, v_format = ASSAY_BF16, o_format = ASSAY_FP32;
  int32_t q_scale = ASSAY_SCALE_NONE, k_scale = ASSAY_SCALE_NONE, v_scale = ASSAY_SCALE_NONE;
  float softcap = 0;
  int32_t window_left = -1, window_right = -1, chunk = 0;
  int32_t alibi = ASSAY_ALIBI_NONE;
  bool sinks = false;
  int32_t layout = ASSAY_LAYOUT_NHD, page_size = 16, table = ASSAY_TABLE_BLOCK;
  int stride_padding = 0;  // extra elements on every outer axis; 2 also spreads the last axis
  double logit_deviation = 1.5;
  bool poison_invisible = false;  // keys no row of their request sees are NaN as well, scales included
  std::vector<Lengths> requests;
  uint64_t seed = 1;
  std::string text() const;
};

// A random Spec with random lengths; small enough for thousands per test run.
Spec random_spec(uint64_t seed, int32_t op);

struct Output {
  int status = 0;
  std::string error;
  std::vector<float> o, lse;  // [T, heads_q, head_dim_v] and [T, heads_q]
  bool wrote_outside = false;
};

class Case {
 public:
  explicit Case(const Spec&);
  // The same values for request `request` alone.
  Case(const Case& batch, int request);
  const Spec& spec() const { return spec_; }
  const assay_problem* problem() const { return &problem_; }
  const assay_tensors* tensors() const { return &tensors_; }
  Output run(const assay_kernel&, int threads = 0, uint8_t workspace_fill = 0xff);

  // Expected values; magnitude = sum_j p_j |v_jd|, what rounding errors are relative to.
  const std::vector<double>& o() const { return o_; }
  const std::vector<double>& magnitude() const { return magnitude_; }
  const std::vector<double>& lse() const { return lse_; }
  bool visible(int request, int row, int key) const;

 private:
  bool written(int64_t request, int key) const;  // false: the key stays poison
  struct Plane {
    std::vector<int64_t> shape, stride;
    int32_t format = 0;
    std::vector<unsigned char> bytes;
    int64_t at(std::initializer_list<int64_t> index) const;
    void write(int64_t index, uint32_t code);
    uint32_t read(int64_t index) const;
    void fill(uint32_t code);
    assay_tensor view();
  };
  Plane make_plane(int32_t format, std::vector<int64_t> shape, int padding) const;
  void draw_values();
  void store();
  void store_scale(Plane&, const std::vector<double>& logical, int32_t kind, int which);
  void expect();
  double key_scale(const std::vector<double>& scale, int32_t kind, int request, int64_t token, int head,
                   int dims, int dim) const;
  double query_scale(int request, int64_t row, int head, int dim) const;

  Spec spec_;
  std::mt19937_64 rng_;
  std::vector<int64_t> cu_q_, cu_kv_, tree_start_;
  // Logical operands: codes [T, heads_q, d], [S, heads_kv, d], and one scale table per operand.
  std::vector<uint32_t> q_, k_, v_;
  std::vector<double> q_scale_, k_scale_, v_scale_;
  std::vector<float> slopes_, sinks_;
  std::vector<uint8_t> tree_;
  float softmax_scale_ = 1;
  std::vector<std::vector<int32_t>> pages_;
  int64_t blocks_ = 0;

  Plane q_plane_, k_plane_, v_plane_, o_plane_, lse_plane_, q_scale_plane_, k_scale_plane_, v_scale_plane_;
  Plane cu_q_plane_, cu_kv_plane_, kv_len_plane_, table_plane_, indptr_plane_, indices_plane_, slopes_plane_,
      sinks_plane_, tree_plane_, tree_indptr_plane_;
  std::vector<int32_t> q_len_, kv_len_;
  assay_problem problem_{};
  assay_tensors tensors_{};
  std::vector<double> o_, magnitude_, lse_;
};

double decode(uint32_t code, int32_t format);
uint32_t nan_code(int32_t format);
int format_bytes(int32_t format);

}  // namespace assay_cpu::testing
