// SPDX-License-Identifier: Apache-2.0
// The physical half of test_case.hpp: pages in random order, tables of every kind, poison in all that no
// key uses, strides wider than needed, and running a kernel on it with a guarded output.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cpu/testing/test_case.hpp"

namespace assay_cpu::testing {
namespace {

constexpr uint32_t kGuard = 0xa5a5a5a5u;

uint32_t float_bits(double value) {
  const float single = static_cast<float>(value);
  uint32_t bits;
  memcpy(&bits, &single, 4);
  return bits;
}

}  // namespace

bool Case::written(int64_t request, int key) const {
  if (!spec_.poison_invisible) return true;
  for (int i = 0; i < spec_.requests[request].q_len; ++i)
    if (visible(static_cast<int>(request), i, key)) return true;
  return false;
}

void Case::store_scale(Plane& plane, const std::vector<double>& logical, int32_t kind, int which) {
  const Spec& s = spec_;
  plane = Plane{};
  if (kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_HOST) return;
  const bool is_q = which == 0;
  const int heads = is_q ? s.heads_q : s.heads_kv, dims = which == 2 ? s.head_dim_v : s.head_dim_qk;
  const int64_t requests = static_cast<int64_t>(s.requests.size());
  const int64_t tokens = is_q ? cu_q_.back() : cu_kv_.back();
  if (kind == ASSAY_SCALE_TOKEN_HEAD && !is_q && s.op == ASSAY_OP_PAGED) {
    plane = make_plane(ASSAY_FP32, {blocks_, s.heads_kv, s.page_size}, s.stride_padding);
    plane.fill(nan_code(ASSAY_FP32));
    for (int64_t r = 0; r < requests; ++r)
      for (int j = 0; j < s.requests[r].kv_len; ++j)
        for (int h = 0; h < s.heads_kv && written(r, j); ++h)
          plane.write(plane.at({pages_[r][j / s.page_size], h, j % s.page_size}),
                      float_bits(logical[(cu_kv_[r] + j) * s.heads_kv + h]));
    return;
  }
  std::vector<int64_t> shape = {1};
  if (kind == ASSAY_SCALE_HEAD) shape = {heads};
  if (kind == ASSAY_SCALE_REQUEST_HEAD) shape = {requests, s.heads_kv};
  if (kind == ASSAY_SCALE_TOKEN_HEAD) shape = {tokens, heads};
  if (kind == ASSAY_SCALE_CHANNEL) shape = {heads, dims};
  plane = make_plane(ASSAY_FP32, shape, s.stride_padding);
  plane.fill(nan_code(ASSAY_FP32));
  for (int64_t i = 0; i < static_cast<int64_t>(logical.size()); ++i)
    plane.write(shape.size() == 1 ? plane.at({i}) : plane.at({i / shape[1], i % shape[1]}),
                float_bits(logical[i]));
  for (int64_t r = 0; r < requests && kind == ASSAY_SCALE_TOKEN_HEAD && !is_q; ++r)
    for (int j = 0; j < s.requests[r].kv_len; ++j)
      for (int h = 0; h < heads && !written(r, j); ++h)
        plane.write(plane.at({cu_kv_[r] + j, h}), nan_code(ASSAY_FP32));
}

void Case::store() {
  const Spec& s = spec_;
  const int64_t requests = static_cast<int64_t>(s.requests.size());
  const int64_t total_q = cu_q_.back(), total_kv = cu_kv_.back();
  auto list = [&](int32_t format, const auto& values) {
    Plane plane = make_plane(format, {static_cast<int64_t>(values.size())}, 0);
    for (size_t i = 0; i < values.size(); ++i)
      memcpy(&plane.bytes[i * format_bytes(format)], &values[i], format_bytes(format));
    return plane;
  };
  q_len_.clear(), kv_len_.clear();
  for (const Lengths& l : s.requests) q_len_.push_back(l.q_len), kv_len_.push_back(l.kv_len);

  q_plane_ = make_plane(s.q_format, {total_q, s.heads_q, s.head_dim_qk}, s.stride_padding);
  q_plane_.fill(nan_code(s.q_format));
  for (int64_t i = 0; i < static_cast<int64_t>(q_.size()); ++i)
    q_plane_.write(
        q_plane_.at({i / s.head_dim_qk / s.heads_q, i / s.head_dim_qk % s.heads_q, i % s.head_dim_qk}),
        q_[i]);

  if (s.op == ASSAY_OP_PREFILL) {
    k_plane_ = make_plane(s.k_format, {total_kv, s.heads_kv, s.head_dim_qk}, s.stride_padding);
    v_plane_ = make_plane(s.v_format, {total_kv, s.heads_kv, s.head_dim_v}, s.stride_padding);
  } else {
    int64_t used = 0;
    for (const Lengths& l : s.requests) used += (l.kv_len + s.page_size - 1) / s.page_size;
    blocks_ = used + used / 4 + 2;
    std::vector<int32_t> order(blocks_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng_);
    pages_.assign(requests, {});
    int64_t next = 0;
    for (int64_t r = 0; r < requests; ++r)
      for (int page = 0; page * s.page_size < s.requests[r].kv_len; ++page)
        pages_[r].push_back(order[next++]);
    const int64_t x = 16 / format_bytes(s.k_format), P = s.page_size, H = s.heads_kv;
    std::vector<int64_t> k, v;
    switch (s.layout) {
      case ASSAY_LAYOUT_NHD:
        k = {blocks_, P, H, s.head_dim_qk}, v = {blocks_, P, H, s.head_dim_v};
        break;
      case ASSAY_LAYOUT_HND:
        k = {blocks_, H, P, s.head_dim_qk}, v = {blocks_, H, P, s.head_dim_v};
        break;
      case ASSAY_LAYOUT_MLA:
        k = {blocks_, P, s.head_dim_qk}, v = {blocks_, P, s.head_dim_v};
        break;
      case ASSAY_LAYOUT_X:
        k = {blocks_, H, s.head_dim_qk / x, P, x}, v = {blocks_, H, s.head_dim_v, P};
        break;
      default:
        k = {blocks_, H, s.head_dim_qk / x, P, x}, v = {blocks_, H, P / x, s.head_dim_v, x};
    }
    k_plane_ = make_plane(s.k_format, k, s.stride_padding);
    v_plane_ = make_plane(s.v_format, v, s.stride_padding);
  }
  k_plane_.fill(nan_code(s.k_format));
  v_plane_.fill(nan_code(s.v_format));
  const bool mla = s.op == ASSAY_OP_PAGED && s.layout == ASSAY_LAYOUT_MLA;
  auto place = [&](const Plane& plane, bool is_v, int64_t r, int64_t j, int64_t h, int64_t d) {
    if (s.op == ASSAY_OP_PREFILL) return plane.at({cu_kv_[r] + j, h, d});
    const int64_t block = pages_[r][j / s.page_size], slot = j % s.page_size,
                  x = 16 / format_bytes(s.k_format);
    switch (s.layout) {
      case ASSAY_LAYOUT_NHD:
        return plane.at({block, slot, h, d});
      case ASSAY_LAYOUT_HND:
        return plane.at({block, h, slot, d});
      case ASSAY_LAYOUT_MLA:
        return plane.at({block, slot, d});
      default:
        break;
    }
    if (!is_v) return plane.at({block, h, d / x, slot, d % x});
    if (s.layout == ASSAY_LAYOUT_X) return plane.at({block, h, d, slot});
    return plane.at({block, h, slot / x, d, slot % x});
  };
  for (int64_t r = 0; r < requests; ++r)
    for (int j = 0; j < s.requests[r].kv_len; ++j) {
      if (!written(r, j)) continue;
      for (int h = 0; h < s.heads_kv; ++h) {
        const int64_t row = (cu_kv_[r] + j) * s.heads_kv + h;
        for (int d = 0; d < s.head_dim_qk; ++d)
          k_plane_.write(place(k_plane_, false, r, j, h, d), k_[row * s.head_dim_qk + d]);
        for (int d = 0; !mla && d < s.head_dim_v; ++d)
          v_plane_.write(place(v_plane_, true, r, j, h, d), v_[row * s.head_dim_v + d]);
      }
    }
  store_scale(q_scale_plane_, q_scale_, s.q_scale, 0);
  store_scale(k_scale_plane_, k_scale_, s.k_scale, 1);
  store_scale(v_scale_plane_, v_scale_, s.v_scale, 2);

  auto as_int32 = [](const std::vector<int64_t>& in) { return std::vector<int32_t>(in.begin(), in.end()); };
  cu_q_plane_ = list(ASSAY_INT32, as_int32(cu_q_));
  cu_kv_plane_ = list(ASSAY_INT32, as_int32(cu_kv_));
  kv_len_plane_ = list(ASSAY_INT32, kv_len_);
  const int32_t longest = kv_len_.empty() ? 0 : *std::max_element(kv_len_.begin(), kv_len_.end());
  if (s.op == ASSAY_OP_PAGED && s.table == ASSAY_TABLE_CSR) {
    std::vector<int32_t> indptr = {0}, indices;
    for (const auto& pages : pages_) {
      indices.insert(indices.end(), pages.begin(), pages.end());
      indptr.push_back(static_cast<int32_t>(indices.size()));
    }
    indptr_plane_ = list(ASSAY_INT32, indptr), indices_plane_ = list(ASSAY_INT32, indices);
  } else if (s.op == ASSAY_OP_PAGED) {
    const bool token = s.table == ASSAY_TABLE_TOKEN;
    const int64_t width = token ? longest : (longest + s.page_size - 1) / s.page_size;
    table_plane_ = make_plane(ASSAY_INT32, {requests, std::max<int64_t>(width, 1)}, s.stride_padding);
    table_plane_.fill(0x7fffff00u);  // far outside: reading a padding entry crashes or is caught by ASan
    for (int64_t r = 0; r < requests; ++r)
      for (int64_t c = 0; c < (token ? kv_len_[r] : static_cast<int64_t>(pages_[r].size())); ++c)
        table_plane_.write(table_plane_.at({r, c}), token ? pages_[r][c / s.page_size] * s.page_size +
                                                                static_cast<int32_t>(c % s.page_size)
                                                          : pages_[r][c]);
  }
  slopes_plane_ = list(ASSAY_FP32, slopes_), sinks_plane_ = list(ASSAY_FP32, sinks_);
  tree_plane_ = list(ASSAY_UINT8, tree_), tree_indptr_plane_ = list(ASSAY_INT64, tree_start_);
  o_plane_ = make_plane(s.o_format, {total_q, s.heads_q, s.head_dim_v}, s.stride_padding);
  lse_plane_ = make_plane(ASSAY_FP32, {total_q, s.heads_q}, s.stride_padding);

  tensors_ = assay_tensors{};
  tensors_.struct_size = sizeof tensors_;
  tensors_.q = q_plane_.view(), tensors_.k = k_plane_.view();
  tensors_.v = v_plane_.view();
  if (mla) tensors_.v = tensors_.k, tensors_.v.shape[2] = s.head_dim_v;
  tensors_.o = o_plane_.view(), tensors_.lse = lse_plane_.view();
  tensors_.q_scale = q_scale_plane_.view(), tensors_.k_scale = k_scale_plane_.view();
  tensors_.v_scale = v_scale_plane_.view();
  tensors_.cu_q = cu_q_plane_.view(), tensors_.cu_kv = cu_kv_plane_.view();
  tensors_.kv_len = kv_len_plane_.view();
  tensors_.block_table = table_plane_.view(), tensors_.indptr = indptr_plane_.view();
  tensors_.indices = indices_plane_.view();
  tensors_.alibi_slopes = slopes_plane_.view(), tensors_.sinks = sinks_plane_.view();
  if (s.mask == ASSAY_MASK_TREE)
    tensors_.tree_mask = tree_plane_.view(), tensors_.tree_indptr = tree_indptr_plane_.view();

  assay_problem& p = problem_;
  p = assay_problem{};
  p.struct_size = sizeof p, p.op = s.op, p.mask = s.mask;
  p.heads_q = s.heads_q, p.heads_kv = s.heads_kv;
  p.head_dim_qk = s.head_dim_qk, p.head_dim_v = s.head_dim_v;
  p.q_format = s.q_format, p.k_format = s.k_format, p.v_format = s.v_format, p.o_format = s.o_format;
  p.q_scale_kind = s.q_scale, p.k_scale_kind = s.k_scale, p.v_scale_kind = s.v_scale;
  p.q_scale_host = q_scale_.empty() ? 1.0f : static_cast<float>(q_scale_[0]);
  p.k_scale_host = k_scale_.empty() ? 1.0f : static_cast<float>(k_scale_[0]);
  p.v_scale_host = v_scale_.empty() ? 1.0f : static_cast<float>(v_scale_[0]);
  p.softmax_scale = softmax_scale_, p.softcap = s.softcap;
  p.window_left = s.window_left, p.window_right = s.window_right, p.chunk = s.chunk;
  p.alibi = s.alibi, p.has_sinks = s.sinks;
  p.layout = s.layout, p.page_size = s.page_size;
  p.table = s.op == ASSAY_OP_PAGED ? s.table : ASSAY_TABLE_NONE;
  p.requests = static_cast<int32_t>(requests), p.total_q = total_q, p.total_kv = total_kv;
  p.max_q_len = q_len_.empty() ? 0 : *std::max_element(q_len_.begin(), q_len_.end());
  p.max_kv_len = longest, p.q_len = q_len_.data(), p.kv_len = kv_len_.data();
}

Output Case::run(const assay_kernel& kernel, int threads, uint8_t workspace_fill) {
  Output out;
  const int before = omp_get_max_threads();
  if (threads > 0) omp_set_num_threads(threads);
  o_plane_.fill(kGuard);
  lse_plane_.fill(kGuard);
  const int64_t bytes = kernel.workspace_bytes != nullptr ? kernel.workspace_bytes(&kernel, &problem_) : 0;
  std::vector<uint8_t> workspace(bytes + 64, workspace_fill);
  tensors_.workspace = assay_tensor{};
  tensors_.workspace.data = workspace.data(), tensors_.workspace.format = ASSAY_UINT8;
  tensors_.workspace.rank = 1, tensors_.workspace.shape[0] = bytes, tensors_.workspace.stride[0] = 1;
  char error[512] = "";
  out.status = kernel.run(&kernel, &problem_, &tensors_, nullptr, nullptr, error, sizeof error);
  out.error = error;
  for (int i = 0; i < 64; ++i) out.wrote_outside |= workspace[bytes + i] != workspace_fill;
  if (threads > 0) omp_set_num_threads(before);
  if (out.status != ASSAY_OK) return out;

  std::vector<bool> owned(o_plane_.bytes.size() / format_bytes(spec_.o_format));
  const int64_t rows = cu_q_.back();
  for (int64_t t = 0; t < rows; ++t)
    for (int h = 0; h < spec_.heads_q; ++h) {
      for (int d = 0; d < spec_.head_dim_v; ++d) {
        const int64_t at = o_plane_.at({t, h, d});
        owned[at] = true;
        const uint32_t code = o_plane_.read(at);
        // The test's decoder treats the top exponent of fp16 as a number; an infinity or NaN must show.
        const bool special = spec_.o_format == ASSAY_FP16 && (code & 0x7c00u) == 0x7c00u;
        out.o.push_back(special ? NAN : static_cast<float>(decode(code, spec_.o_format)));
      }
      out.lse.push_back(static_cast<float>(decode(lse_plane_.read(lse_plane_.at({t, h})), ASSAY_FP32)));
    }
  const uint32_t guard = format_bytes(spec_.o_format) == 2 ? kGuard & 0xffffu : kGuard;
  for (size_t i = 0; i < owned.size(); ++i)
    if (!owned[i]) out.wrote_outside |= o_plane_.read(static_cast<int64_t>(i)) != guard;
  return out;
}

}  // namespace assay_cpu::testing
