// SPDX-License-Identifier: Apache-2.0
// Operands for the tests of this folder, written independently of harness/input and PagedCache: every layout,
// page table, stride and scale is spelt out again here, so that the reference's reader is compared with
// a second statement. Values come from functions, so hand cases can give them and random cases can hash
// them; everything that no row may read holds NaN (int8: -128) or an absurd block number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/problem/names.hpp"
#include "reference/attention/attention.hpp"
#include "reference/bounds/test_tensor.hpp"
#include "reference/formats/formats.hpp"

namespace assay::test {

// Stored codes by logical place, before the scale; must be representable. For q: `position` is the row.
using ElementFn = std::function<double(int request, int32_t position, int32_t head, int32_t dim)>;

struct Values {
  ElementFn q, k, v;
  // Asked with the indices the scale's granularity has; the others are 0.
  ElementFn q_scale = one(), k_scale = one(), v_scale = one();
  std::vector<float> sinks, slopes;  // [heads_q]
  static ElementFn one() {
    return [](int, int32_t, int32_t, int32_t) { return 1.0; };
  }
};

class TestOperands {
 public:
  TestOperands(Problem p, Values values) : problem_(std::move(p)), values_(std::move(values)) {
    if (problem_.op == ASSAY_OP_PAGED) place();
    build_q();
    build_kv();
    build_lengths();
    build_extras();
    host_.tensors = &tensors_;
    host_.q_scale_host = float(values_.q_scale(0, 0, 0, 0));
    host_.k_scale_host = float(values_.k_scale(0, 0, 0, 0));
    host_.v_scale_host = float(values_.v_scale(0, 0, 0, 0));
  }
  TestOperands(const TestOperands&) = delete;
  TestOperands& operator=(const TestOperands&) = delete;

  const Problem& problem() const { return problem_; }
  const HostOperands& host() const { return host_; }
  assay_tensors& tensors() { return tensors_; }
  const Values& values() const { return values_; }

  // The dequantised truth, from the value functions alone.
  double q(RowId id, int32_t h, int32_t d) const {
    const double scale = at_granularity(values_.q_scale, problem_.q_scale, id.request, id.row, h, d,
                                        problem_.q_scale == ASSAY_SCALE_REQUEST_HEAD ? problem_.group() : 1);
    return values_.q(id.request, id.row, h, d) * scale;
  }
  double k(int r, int32_t j, int32_t h, int32_t d) const {
    const int owner = owner_of(r, j);
    return values_.k(owner, j, h, d) *
           at_granularity(values_.k_scale, problem_.k_scale, kv_scale_request(r, j), j, h, d, 1);
  }
  double v(int r, int32_t j, int32_t h, int32_t d) const {
    if (mla()) return k(r, j, h, d);
    const int owner = owner_of(r, j);
    return values_.v(owner, j, h, d) *
           at_granularity(values_.v_scale, problem_.v_scale, kv_scale_request_v(r, j), j, h, d, 1);
  }

 private:
  bool mla() const { return problem_.op == ASSAY_OP_PAGED && problem_.layout == ASSAY_LAYOUT_MLA; }
  // Whose token stands at a position of a request with a shared prefix.
  int owner_of(int r, int32_t j) const {
    while (problem_.requests[r].shared_with >= 0 && j < problem_.requests[r].shared_tokens)
      r = problem_.requests[r].shared_with;
    return r;
  }
  // A per-token scale belongs to the token; a per-request one to the request that reads.
  int kv_scale_request(int r, int32_t j) const {
    return problem_.k_scale == ASSAY_SCALE_TOKEN_HEAD ? owner_of(r, j) : r;
  }
  int kv_scale_request_v(int r, int32_t j) const {
    return problem_.v_scale == ASSAY_SCALE_TOKEN_HEAD ? owner_of(r, j) : r;
  }

  static double at_granularity(const ElementFn& scale, int32_t kind, int r, int32_t position, int32_t h,
                               int32_t d, int32_t group) {
    switch (kind) {
      case ASSAY_SCALE_TENSOR:
      case ASSAY_SCALE_HOST:
        return float(scale(0, 0, 0, 0));
      case ASSAY_SCALE_HEAD:
        return float(scale(0, 0, h, 0));
      case ASSAY_SCALE_REQUEST_HEAD:
        return float(scale(r, 0, h / group, 0));
      case ASSAY_SCALE_TOKEN_HEAD:
        return float(scale(r, position, h, 0));
      case ASSAY_SCALE_CHANNEL:
        return float(scale(0, 0, h, d));
    }
    return 1.0;
  }

  int64_t pages_of(int r) const {
    return (problem_.requests[r].kv_len + problem_.page_size - 1) / problem_.page_size;
  }

  // Every page a block of its own, except full pages of a shared prefix; blocks permuted by a stride
  // coprime to their number, one in four left unused.
  void place() {
    int64_t used = 0;
    const auto requests = int(problem_.requests.size());
    for (int r = 0; r < requests; ++r) used += pages_of(r);
    problem_.num_blocks = int32_t(used + used / 4 + 3);
    int64_t step = problem_.num_blocks * 5 / 8 | 1;
    while (std::gcd(step, int64_t(problem_.num_blocks)) != 1) step += 2;
    int64_t next = 2;
    problem_.pages.assign(requests, {});
    for (int r = 0; r < requests; ++r) {
      for (int64_t page = 0; page < pages_of(r); ++page) {
        const Request& request = problem_.requests[r];
        const bool shared =
            request.shared_with >= 0 && (page + 1) * problem_.page_size <= request.shared_tokens;
        problem_.pages[r].push_back(shared ? problem_.pages[request.shared_with][page]
                                           : int32_t(next++ * step % problem_.num_blocks));
      }
    }
  }

  void build_q() {
    const int64_t tokens = problem_.total_q(), heads = problem_.heads_q, dim = problem_.head_dim_qk;
    q_.allocate(problem_.q_format, {tokens, heads, dim}, problem_.strided.q ? 1 : -1, 2 * problem_.heads_kv);
    tensors_.q = q_.view;
    const int32_t kind = problem_.q_scale;
    const auto requests = int64_t(problem_.requests.size());
    if (kind == ASSAY_SCALE_TENSOR) q_scale_.allocate(ASSAY_FP32, {1});
    if (kind == ASSAY_SCALE_HEAD) q_scale_.allocate(ASSAY_FP32, {heads});
    if (kind == ASSAY_SCALE_REQUEST_HEAD) q_scale_.allocate(ASSAY_FP32, {requests, problem_.heads_kv});
    if (kind == ASSAY_SCALE_TOKEN_HEAD) token_scale(q_scale_, tokens, heads);
    if (kind == ASSAY_SCALE_CHANNEL) q_scale_.allocate(ASSAY_FP32, {heads, dim});
    tensors_.q_scale = q_scale_.view;
    int64_t token = 0;
    for (int r = 0; r < requests; ++r)
      for (int32_t i = 0; i < problem_.requests[r].q_len; ++i, ++token)
        for (int32_t h = 0; h < heads; ++h) {
          for (int32_t d = 0; d < dim; ++d) put(q_.view, {token, h, d}, values_.q(r, i, h, d));
          if (kind == ASSAY_SCALE_TOKEN_HEAD) put_scale(q_scale_, {token, h}, values_.q_scale(r, i, h, 0));
        }
    fill_coarse_scale(q_scale_, kind, values_.q_scale, problem_.heads_q, dim);
  }

  // "scales" strided: stored [heads, tokens], seen as [tokens, heads].
  void token_scale(Block& block, int64_t tokens, int64_t heads) {
    if (!problem_.strided.scales) return block.allocate(ASSAY_FP32, {tokens, heads});
    block.allocate(ASSAY_FP32, {heads, tokens});
    std::swap(block.view.shape[0], block.view.shape[1]);
    std::swap(block.view.stride[0], block.view.stride[1]);
  }

  static void put_scale(const Block& block, const std::vector<int64_t>& index, double value) {
    put(block.view, index, float(value));
  }

  void fill_coarse_scale(const Block& block, int32_t kind, const ElementFn& scale, int32_t heads,
                         int64_t dim) {
    if (kind == ASSAY_SCALE_TENSOR) put_scale(block, {0}, scale(0, 0, 0, 0));
    if (kind == ASSAY_SCALE_HEAD)
      for (int32_t h = 0; h < heads; ++h) put_scale(block, {h}, scale(0, 0, h, 0));
    if (kind == ASSAY_SCALE_REQUEST_HEAD)
      for (int r = 0; r < int(problem_.requests.size()); ++r)
        for (int32_t h = 0; h < problem_.heads_kv; ++h) put_scale(block, {r, h}, scale(r, 0, h, 0));
    if (kind == ASSAY_SCALE_CHANNEL)
      for (int32_t h = 0; h < heads; ++h)
        for (int32_t d = 0; d < dim; ++d) put_scale(block, {h, d}, scale(0, 0, h, d));
  }

  std::vector<int64_t> plane_shape(bool is_v) const {
    const int64_t b = problem_.num_blocks, s = problem_.page_size, h = problem_.heads_kv,
                  d = is_v ? problem_.head_dim_v : problem_.head_dim_qk,
                  x = 16 / format_bytes(problem_.k_format);
    switch (problem_.layout) {
      case ASSAY_LAYOUT_NHD:
        return {b, s, h, d};
      case ASSAY_LAYOUT_HND:
        return {b, h, s, d};
      case ASSAY_LAYOUT_X:
        return is_v ? std::vector<int64_t>{b, h, d, s} : std::vector<int64_t>{b, h, d / x, s, x};
      case ASSAY_LAYOUT_SHUFFLED:
        return is_v ? std::vector<int64_t>{b, h, s / x, d, x} : std::vector<int64_t>{b, h, d / x, s, x};
    }
    return {b, s, d};
  }

  std::vector<int64_t> plane_index(bool is_v, int64_t b, int64_t s, int64_t h, int64_t d) const {
    const int64_t x = 16 / format_bytes(problem_.k_format);
    switch (problem_.layout) {
      case ASSAY_LAYOUT_NHD:
        return {b, s, h, d};
      case ASSAY_LAYOUT_HND:
        return {b, h, s, d};
      case ASSAY_LAYOUT_X:
        return is_v ? std::vector<int64_t>{b, h, d, s} : std::vector<int64_t>{b, h, d / x, s, d % x};
      case ASSAY_LAYOUT_SHUFFLED:
        return is_v ? std::vector<int64_t>{b, h, s / x, d, s % x}
                    : std::vector<int64_t>{b, h, d / x, s, d % x};
    }
    return {b, s, d};
  }

  void allocate_planes() {
    const int padded = !problem_.strided.kv ? -1 : problem_.layout == ASSAY_LAYOUT_NHD ? 2 : 1;
    if (problem_.storage == Storage::kSplit || mla()) {
      k_.allocate(problem_.k_format, plane_shape(false), padded, 1);
      if (!mla()) v_.allocate(problem_.v_format, plane_shape(true), padded, 1);
      return;
    }
    // Both planes in K's memory: V follows K whole (stacked) or block by block (interleaved).
    Block one;
    one.allocate(problem_.v_format, plane_shape(true), padded, 1);
    k_.allocate(problem_.k_format, plane_shape(false), padded, 1);
    v_.view = one.view;
    const int64_t block = k_.view.stride[0], all = block * problem_.num_blocks;
    k_.reserve(problem_.k_format, 2 * all);
    k_.view.data = k_.bytes.data();
    const bool stacked = problem_.storage == Storage::kStacked;
    v_.view.data = k_.bytes.data() + (stacked ? all : block) * format_bytes(problem_.k_format);
    if (!stacked) k_.view.stride[0] = v_.view.stride[0] = 2 * block;
  }

  void build_kv() {
    const bool paged = problem_.op == ASSAY_OP_PAGED;
    const int64_t keys = problem_.total_kv(), heads = problem_.heads_kv;
    if (paged) {
      allocate_planes();
    } else {
      k_.allocate(problem_.k_format, {keys, heads, problem_.head_dim_qk}, problem_.strided.kv ? 1 : -1, 1);
      v_.allocate(problem_.v_format, {keys, heads, problem_.head_dim_v}, problem_.strided.kv ? 1 : -1, 1);
    }
    tensors_.k = k_.view;
    tensors_.v = mla() ? k_.view : v_.view;
    if (mla()) tensors_.v.shape[2] = problem_.head_dim_v;
    build_kv_scale(k_scale_, problem_.k_scale, problem_.head_dim_qk, values_.k_scale);
    build_kv_scale(v_scale_, problem_.v_scale, problem_.head_dim_v,
                   mla() ? values_.k_scale : values_.v_scale);
    tensors_.k_scale = k_scale_.view;
    tensors_.v_scale = v_scale_.view;

    int64_t packed = 0;
    for (int r = 0; r < int(problem_.requests.size()); ++r)
      for (int32_t j = 0; j < problem_.requests[r].kv_len; ++j, ++packed) {
        const int owner = owner_of(r, j);
        const int64_t page = problem_.page_size;
        const int64_t b = paged ? problem_.pages[r][j / page] : packed, s = paged ? j % page : 0;
        for (int32_t h = 0; h < heads; ++h) {
          for (int32_t d = 0; d < problem_.head_dim_qk; ++d)
            put(k_.view, paged ? plane_index(false, b, s, h, d) : std::vector<int64_t>{b, h, d},
                values_.k(owner, j, h, d));
          for (int32_t d = 0; d < (mla() ? 0 : problem_.head_dim_v); ++d)
            put(v_.view, paged ? plane_index(true, b, s, h, d) : std::vector<int64_t>{b, h, d},
                values_.v(owner, j, h, d));
          const std::vector<int64_t> at = paged ? std::vector<int64_t>{b, h, s} : std::vector<int64_t>{b, h};
          if (problem_.k_scale == ASSAY_SCALE_TOKEN_HEAD)
            put_scale(k_scale_, at, values_.k_scale(owner, j, h, 0));
          if (problem_.v_scale == ASSAY_SCALE_TOKEN_HEAD)
            put_scale(v_scale_, at, (mla() ? values_.k_scale : values_.v_scale)(owner, j, h, 0));
        }
      }
  }

  void build_kv_scale(Block& block, int32_t kind, int64_t dim, const ElementFn& scale) {
    const int64_t heads = problem_.heads_kv;
    if (kind == ASSAY_SCALE_TENSOR) block.allocate(ASSAY_FP32, {1});
    if (kind == ASSAY_SCALE_HEAD) block.allocate(ASSAY_FP32, {heads});
    if (kind == ASSAY_SCALE_REQUEST_HEAD)
      block.allocate(ASSAY_FP32, {int64_t(problem_.requests.size()), heads});
    if (kind == ASSAY_SCALE_CHANNEL) block.allocate(ASSAY_FP32, {heads, dim});
    if (kind == ASSAY_SCALE_TOKEN_HEAD) {
      if (problem_.op == ASSAY_OP_PAGED)
        block.allocate(ASSAY_FP32, {problem_.num_blocks, heads, problem_.page_size},
                       problem_.strided.scales ? 2 : -1, 3);
      else
        token_scale(block, problem_.total_kv(), heads);
    }
    fill_coarse_scale(block, kind, scale, int32_t(heads), dim);
  }

  void build_lengths() {
    const auto requests = int64_t(problem_.requests.size());
    cu_q_.allocate(ASSAY_INT32, {requests + 1});
    cu_kv_.allocate(ASSAY_INT32, {requests + 1});
    kv_len_.allocate(ASSAY_INT32, {std::max<int64_t>(1, requests)});
    int64_t q = 0, kv = 0;
    put_integer(cu_q_.view, {0}, 0);
    put_integer(cu_kv_.view, {0}, 0);
    for (int64_t r = 0; r < requests; ++r) {
      put_integer(cu_q_.view, {r + 1}, q += problem_.requests[r].q_len);
      put_integer(cu_kv_.view, {r + 1}, kv += problem_.requests[r].kv_len);
      put_integer(kv_len_.view, {r}, problem_.requests[r].kv_len);
    }
    tensors_.cu_q = cu_q_.view;
    tensors_.kv_len = kv_len_.view;
    if (problem_.op == ASSAY_OP_PREFILL) tensors_.cu_kv = cu_kv_.view;
    if (problem_.op == ASSAY_OP_PAGED) build_table();
  }

  void build_table() {
    const auto requests = int64_t(problem_.requests.size());
    const int64_t page = problem_.page_size;
    if (problem_.table == ASSAY_TABLE_CSR) {
      int64_t total = 0;
      for (int r = 0; r < requests; ++r) total += pages_of(r);
      indptr_.allocate(ASSAY_INT32, {requests + 1});
      indices_.allocate(ASSAY_INT32, {std::max<int64_t>(1, total)});
      last_.allocate(ASSAY_INT32, {std::max<int64_t>(1, requests)});
      int64_t at = 0;
      put_integer(indptr_.view, {0}, 0);
      for (int r = 0; r < requests; ++r) {
        for (const int32_t b : problem_.pages[r]) put_integer(indices_.view, {at++}, b);
        put_integer(indptr_.view, {r + 1}, at);
        const int32_t m = problem_.requests[r].kv_len;
        put_integer(last_.view, {r}, m == 0 ? 0 : (m - 1) % page + 1);
      }
      tensors_.indptr = indptr_.view;
      tensors_.indices = indices_.view;
      tensors_.last_page_len = last_.view;
      return;
    }
    const bool tokens = problem_.table == ASSAY_TABLE_TOKEN;
    const int64_t longest = std::max(1, problem_.max_kv_len());
    table_.allocate(ASSAY_INT32,
                    {std::max<int64_t>(1, requests), tokens ? longest : (longest + page - 1) / page},
                    problem_.strided.table ? 1 : -1, 3);
    for (int r = 0; r < requests; ++r) {
      if (tokens)
        for (int32_t j = 0; j < problem_.requests[r].kv_len; ++j)
          put_integer(table_.view, {r, j}, problem_.pages[r][j / page] * page + j % page);
      else
        for (int64_t i = 0; i < pages_of(r); ++i) put_integer(table_.view, {r, i}, problem_.pages[r][i]);
    }
    tensors_.block_table = table_.view;
  }

  void build_extras() {
    const auto requests = int64_t(problem_.requests.size());
    if (problem_.sinks) {
      sinks_.allocate(ASSAY_FP32, {problem_.heads_q});
      for (int32_t h = 0; h < problem_.heads_q; ++h) put(sinks_.view, {h}, values_.sinks[h]);
      tensors_.sinks = sinks_.view;
    }
    if (problem_.alibi != ASSAY_ALIBI_NONE) {
      slopes_.allocate(ASSAY_FP32, {problem_.heads_q});
      for (int32_t h = 0; h < problem_.heads_q; ++h) put(slopes_.view, {h}, values_.slopes[h]);
      tensors_.alibi_slopes = slopes_.view;
    }
    if (problem_.mask == ASSAY_MASK_TREE) {
      tree_.allocate(ASSAY_UINT8, {std::max<int64_t>(1, int64_t(problem_.tree_mask.size()))});
      for (size_t i = 0; i < problem_.tree_mask.size(); ++i)
        put_integer(tree_.view, {int64_t(i)}, problem_.tree_mask[i]);
      tree_indptr_.allocate(ASSAY_INT64, {requests + 1});
      int64_t at = 0;
      put_integer(tree_indptr_.view, {0}, 0);
      for (int r = 0; r < requests; ++r)
        put_integer(tree_indptr_.view, {r + 1},
                    at += int64_t(problem_.requests[r].q_len) * problem_.drafts(problem_.requests[r]));
      tensors_.tree_mask = tree_.view;
      tensors_.tree_indptr = tree_indptr_.view;
    }
  }

  Problem problem_;
  Values values_;
  HostOperands host_;
  assay_tensors tensors_{};
  Block q_, k_, v_, q_scale_, k_scale_, v_scale_, cu_q_, cu_kv_, kv_len_, table_, indptr_, indices_, last_,
      sinks_, slopes_, tree_, tree_indptr_;
};

inline std::vector<RowId> all_rows(const Problem& p) {
  std::vector<RowId> rows;
  for (int r = 0; r < int(p.requests.size()); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; ++i) rows.push_back({r, i});
  return rows;
}

// Values that depend on every index, representable in the problem's formats. Scales are near 1/16 for
// int8 (codes up to 127) and 1 otherwise.
inline Values random_values(const Problem& p, uint64_t seed) {
  const auto element = [seed](uint64_t stream, int32_t format) {
    return [rng = CounterRng(seed, stream), format](int r, int32_t t, int32_t h, int32_t d) {
      const uint64_t index = ((uint64_t(r) * 131072 + t) * 256 + h) * 1024 + d;
      const double x = rng.normal(index);
      return round_to(format, format == ASSAY_INT8 ? 30 * x : x);
    };
  };
  const auto scale = [seed](uint64_t stream, int32_t format) {
    return [rng = CounterRng(seed, stream), format](int r, int32_t t, int32_t h, int32_t d) {
      const uint64_t index = ((uint64_t(r) * 131072 + t) * 256 + h) * 1024 + d;
      return (0.5 + rng.uniform(index)) * (format == ASSAY_INT8 ? 1.0 / 32 : 1.0);
    };
  };
  Values values;
  values.q = element(kStreamQ, p.q_format);
  values.k = element(kStreamK, p.k_format);
  values.v = element(kStreamV, p.v_format);
  values.q_scale = scale(kStreamScales, p.q_format);
  values.k_scale = scale(kStreamScales + 100, p.k_format);
  values.v_scale = scale(kStreamScales + 200, p.v_format);
  const CounterRng extra(seed, kStreamSinks);
  for (int32_t h = 0; h < p.heads_q; ++h) {
    values.sinks.push_back(float(2 * extra.normal(h)));
    values.slopes.push_back(float(0.5 * extra.uniform(1000 + h)));
  }
  return values;
}

}  // namespace assay::test
