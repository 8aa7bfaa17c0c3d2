// SPDX-License-Identifier: Apache-2.0
// Addresses of stored vectors for every layout and page table, and their dequantisation. Offsets come
// from shapes and strides alone; the formulas follow the axis orders listed at `enum assay_layout`.
#include "reference/attention/operands.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/problem/names.hpp"
#include "reference/attention/coded_rows.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

int64_t row_offset(const Problem& p, RowId id) {
  const Request& request = p.requests[id.request];
  if (p.positions.empty()) return int64_t{request.context_len()} + id.row;
  return int64_t{p.positions[id.request][id.row]} - (p.first_key.empty() ? 0 : p.first_key[id.request]);
}

int64_t key_offset(const Problem& p, int request, int64_t key) {
  const Request& r = p.requests[request];
  const int64_t draft = key - p.first_draft(r);
  if (!drafts_by_row(p) || draft < 0) return key;
  return row_offset(p, {request, static_cast<int32_t>(draft % r.q_len)}) - (p.drafted - draft / r.q_len);
}

namespace {

template <class... Index>
int64_t offset(const assay_tensor& t, Index... index) {
  int64_t result = 0;
  int axis = 0;
  ((result += int64_t(index) * t.stride[axis++]), ...);
  return result;
}

// A table entry outside its tensor means that lengths and table disagree: say so instead of reading on.
void check_index(const assay_tensor& t, int axis, int64_t index) {
  ASSAY_CHECK(index >= 0 && index < t.shape[axis], "index {} outside axis {} of length {}", index, axis,
              t.shape[axis]);
}

template <class... Index>
int64_t integer_at(const assay_tensor& t, Index... index) {
  int axis = 0;
  (check_index(t, axis++, index), ...);
  return int64_t(load(t.format, t.data, offset(t, index...)));
}

template <class... Index>
double real_at(const assay_tensor& t, Index... index) {
  return load(t.format, t.data, offset(t, index...));
}

const std::byte* element_address(const assay_tensor& t, int64_t index) {
  return static_cast<const std::byte*>(t.data) + index * format_bytes(t.format);
}

template <int kBytes>
void copy_strided(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * kBytes, from + i * stride * kBytes, kBytes);
}

// `count` elements of a tensor, `stride` elements apart.
void decode_strided(const assay_tensor& t, int64_t first, int64_t stride, int64_t count, double* out) {
  const std::byte* from = element_address(t, first);
  if (stride == 1) return decode_span(t.format, from, count, out);
  thread_local std::vector<std::byte> codes;
  const int bytes = format_bytes(t.format);
  codes.resize(count * bytes);
  if (bytes == 1) copy_strided<1>(from, stride, count, codes.data());
  if (bytes == 2) copy_strided<2>(from, stride, count, codes.data());
  if (bytes == 4) copy_strided<4>(from, stride, count, codes.data());
  decode_span(t.format, codes.data(), count, out);
}

void scale_all(double factor, int32_t count, double* values) {
  for (int32_t d = 0; d < count; ++d) values[d] *= factor;
}

}  // namespace

OperandReader::OperandReader(const Problem& problem, const HostOperands& operands)
    : problem_(problem),
      operands_(operands),
      t_(*operands.tensors),
      zeros_(size_t(std::max(problem.head_dim_qk, problem.head_dim_v)) * sizeof(float)) {
  ASSAY_CHECK(t_.q.data && t_.k.data && t_.cu_q.data, "q, k and cu_q are needed");
  const auto requests = static_cast<int64_t>(problem.requests.size());
  for (int64_t r = 0; r < requests; ++r) {
    const Request& request = problem.requests[r];
    const int64_t rows = integer_at(t_.cu_q, r + 1) - integer_at(t_.cu_q, r);
    ASSAY_CHECK(rows == request.q_len, "request {}: cu_q has {} rows, the problem {}", r, rows,
                request.q_len);
    if (t_.kv_len.data) {
      const int64_t length = integer_at(t_.kv_len, r);
      ASSAY_CHECK(length == request.kv_len, "request {}: kv_len tensor {}, problem {}", r, length,
                  request.kv_len);
    }
    if (problem.op == ASSAY_OP_PREFILL) {
      const int64_t keys = integer_at(t_.cu_kv, r + 1) - integer_at(t_.cu_kv, r);
      ASSAY_CHECK(keys == request.kv_len, "request {}: cu_kv has {} keys, the problem {}", r, keys,
                  request.kv_len);
    } else if (problem.table == ASSAY_TABLE_CSR) {
      const int64_t pages = integer_at(t_.indptr, r + 1) - integer_at(t_.indptr, r);
      const int64_t last = integer_at(t_.last_page_len, r);
      const int64_t length = pages == 0 ? last : (pages - 1) * problem.page_size + last;
      ASSAY_CHECK(length == request.kv_len, "request {}: the CSR table holds {} tokens, the problem {}", r,
                  length, request.kv_len);
    }
  }
}

void OperandReader::q_codes(RowId id, int32_t head, double* out) const {
  const int64_t row = integer_at(t_.cu_q, id.request) + id.row;
  decode_strided(t_.q, offset(t_.q, row, head), t_.q.stride[2], problem_.head_dim_qk, out);
}

void OperandReader::q(RowId id, int32_t head, double* out) const {
  const int32_t dim = problem_.head_dim_qk;
  const int64_t row = integer_at(t_.cu_q, id.request) + id.row;
  q_codes(id, head, out);
  if (problem_.q_scale == ASSAY_SCALE_NONE) return;
  if (problem_.q_scale != ASSAY_SCALE_CHANNEL) return scale_all(q_factor(id, row, head), dim, out);
  for (int32_t d = 0; d < dim; ++d) out[d] *= real_at(t_.q_scale, head, d);
}

double OperandReader::q_factor(RowId id, int64_t row, int32_t head) const {
  const assay_tensor& s = t_.q_scale;
  switch (static_cast<assay_scale>(problem_.q_scale)) {
    case ASSAY_SCALE_NONE:
      return 1;
    case ASSAY_SCALE_HOST:
      return operands_.q_scale_host;
    case ASSAY_SCALE_TENSOR:
      return real_at(s, 0);
    case ASSAY_SCALE_HEAD:
      return real_at(s, head);
    // FlashAttention-3's descale has one entry per KV head also for Q.
    case ASSAY_SCALE_REQUEST_HEAD:
      return real_at(s, id.request, head / problem_.group());
    case ASSAY_SCALE_TOKEN_HEAD:
      return real_at(s, row, head);
    case ASSAY_SCALE_CHANNEL:
      break;
  }
  throw CheckError(fmt::format("scale kind {} of q is no single factor", problem_.q_scale));
}

namespace {
// HostOperands::dense_new_keys of a request, and the format that its keys in the cache were gathered to.
int32_t read_as(const HostOperands& operands, int request) {
  return operands.dense_new_keys == nullptr ? 0 : (*operands.dense_new_keys)[static_cast<size_t>(request)];
}
int32_t gathered_to(const HostOperands& operands, int request) { return read_as(operands, request) >> 1; }

// Values of the cache as a gather leaves them where there is one: fp32(code * scale) rounded once more.
void gather(int32_t format, int32_t dim, double* values) {
  if (format == ASSAY_FORMAT_NONE) return;
  for (int32_t d = 0; d < dim; ++d) values[d] = round_to(format, static_cast<float>(values[d]));
}

double largest_channel(const assay_tensor& scale, int32_t head, int32_t dim) {
  double largest = 0;
  for (int32_t d = 0; d < dim; ++d) largest = std::max(largest, std::fabs(real_at(scale, head, d)));
  return largest;
}
}  // namespace

double OperandReader::q_channel_scale(int32_t head, int32_t d) const { return real_at(t_.q_scale, head, d); }
double OperandReader::k_channel_scale(int32_t kv_head, int32_t d) const {
  return real_at(t_.k_scale, kv_head, d);
}

double OperandReader::q_scale_size(RowId id, int32_t head) const {
  if (problem_.q_scale == ASSAY_SCALE_CHANNEL) return largest_channel(t_.q_scale, head, problem_.head_dim_qk);
  return std::fabs(q_factor(id, integer_at(t_.cu_q, id.request) + id.row, head));
}
double OperandReader::k_scale_size(int request, int32_t position, int32_t head) const {
  const Place at = place(request, position);
  if (at.slot == kDense || gathered_to(operands_, request) != ASSAY_FORMAT_NONE) return 1;
  if (problem_.k_scale == ASSAY_SCALE_CHANNEL) return largest_channel(t_.k_scale, head, problem_.head_dim_qk);
  return std::fabs(kv_factor(t_.k_scale, problem_.k_scale, operands_.k_scale_host, request, at, head));
}
double OperandReader::v_scale_size(int request, int32_t position, int32_t head) const {
  if (mla()) return k_scale_size(request, position, head);
  const Place at = place(request, position);
  if (at.slot == kDense || gathered_to(operands_, request) != ASSAY_FORMAT_NONE) return 1;
  if (problem_.v_scale == ASSAY_SCALE_CHANNEL) return largest_channel(t_.v_scale, head, problem_.head_dim_v);
  return std::fabs(kv_factor(t_.v_scale, problem_.v_scale, operands_.v_scale_host, request, at, head));
}

OperandReader::Place OperandReader::place(int request, int32_t position) const {
  if (problem_.op == ASSAY_OP_PREFILL) return {integer_at(t_.cu_kv, request) + position, 0};
  if ((read_as(operands_, request) & 1) != 0)
    if (const int32_t row = position - problem_.requests[request].context_len(); row >= 0)
      return {integer_at(t_.cu_q, request) + row, kDense};
  const int32_t page = position / problem_.page_size, slot = position % problem_.page_size;
  Place at{0, slot};
  // Entries of an encoder before the request's own: tokens, or the whole pages of these.
  const int64_t before = t_.encoder_len.data == nullptr ? 0 : integer_at(t_.encoder_len, request);
  ASSAY_CHECK(problem_.table != ASSAY_TABLE_NONE, "a paged cache without a page table");
  switch (static_cast<assay_table>(problem_.table)) {
    case ASSAY_TABLE_BLOCK:
      at.block =
          integer_at(t_.block_table, request, (before + problem_.page_size - 1) / problem_.page_size + page);
      break;
    case ASSAY_TABLE_CSR:
      at.block = integer_at(t_.indices, integer_at(t_.indptr, request) + page);
      break;
    case ASSAY_TABLE_TOKEN: {
      const int64_t flat = integer_at(t_.block_table, request, before + position);
      at = {flat / problem_.page_size, flat % problem_.page_size};
      break;
    }
    case ASSAY_TABLE_NONE:
      break;
  }
  if (t_.slot_map.data != nullptr) {  // the table is of another pool
    const int64_t own = integer_at(t_.slot_map, at.block * problem_.page_size + at.slot);
    at = {own / problem_.page_size, own % problem_.page_size};
  }
  ASSAY_CHECK(at.block >= 0 && at.block < t_.k.shape[0],
              "request {} position {}: block {} outside the cache of {} blocks", request, position, at.block,
              t_.k.shape[0]);
  return at;
}

OperandReader::Row OperandReader::k_row(Place at, int32_t head) const {
  const assay_tensor& k = t_.k;
  const int64_t dim = problem_.head_dim_qk;
  if (at.slot == kDense) return {offset(t_.dense_k, at.block, head), dim, 0, t_.dense_k.stride[2]};
  if (problem_.op == ASSAY_OP_PREFILL) return {offset(k, at.block, head), dim, 0, k.stride[2]};
  switch (static_cast<assay_layout>(problem_.layout)) {
    case ASSAY_LAYOUT_NHD:
      return {offset(k, at.block, at.slot, head), dim, 0, k.stride[3]};
    case ASSAY_LAYOUT_HND:
      return {offset(k, at.block, head, at.slot), dim, 0, k.stride[3]};
    case ASSAY_LAYOUT_X:
    case ASSAY_LAYOUT_SHUFFLED:
      return {offset(k, at.block, head, 0, at.slot), k.shape[4], k.stride[2], k.stride[4]};
    case ASSAY_LAYOUT_MLA:
      return {offset(k, at.block, at.slot), dim, 0, k.stride[2]};
  }
  throw CheckError(fmt::format("unknown cache layout {}", problem_.layout));
}

OperandReader::Row OperandReader::v_row(Place at, int32_t head) const {
  const assay_tensor& v = t_.v;
  const int64_t dim = problem_.head_dim_v;
  if (at.slot == kDense) return {offset(t_.dense_v, at.block, head), dim, 0, t_.dense_v.stride[2]};
  if (problem_.op == ASSAY_OP_PREFILL) return {offset(v, at.block, head), dim, 0, v.stride[2]};
  switch (static_cast<assay_layout>(problem_.layout)) {
    case ASSAY_LAYOUT_NHD:
      return {offset(v, at.block, at.slot, head), dim, 0, v.stride[3]};
    case ASSAY_LAYOUT_HND:
      return {offset(v, at.block, head, at.slot), dim, 0, v.stride[3]};
    case ASSAY_LAYOUT_X:
      return {offset(v, at.block, head, 0, at.slot), dim, 0, v.stride[2]};
    case ASSAY_LAYOUT_SHUFFLED: {
      const int64_t x = v.shape[4];
      return {offset(v, at.block, head, at.slot / x, 0, at.slot % x), dim, 0, v.stride[3]};
    }
    case ASSAY_LAYOUT_MLA:  // V is part of K's row, which k_row finds
      break;
  }
  throw CheckError(fmt::format("cache layout {} has no rows of V", problem_.layout));
}

// Every kind but CHANNEL.
double OperandReader::kv_factor(const assay_tensor& s, int32_t kind, float host, int request, Place at,
                                int32_t head) const {
  if (at.slot == kDense) return 1;
  switch (static_cast<assay_scale>(kind)) {
    case ASSAY_SCALE_NONE:
      return 1;
    case ASSAY_SCALE_HOST:
      return host;
    case ASSAY_SCALE_TENSOR:
      return real_at(s, 0);
    case ASSAY_SCALE_HEAD:
      return real_at(s, head);
    case ASSAY_SCALE_REQUEST_HEAD:
      return real_at(s, request, head);
    case ASSAY_SCALE_TOKEN_HEAD:
      return problem_.op == ASSAY_OP_PREFILL ? real_at(s, at.block, head)
                                             : real_at(s, at.block, head, at.slot);
    case ASSAY_SCALE_CHANNEL:
      break;
  }
  throw CheckError(fmt::format("scale kind {} is no single factor", kind));
}

void OperandReader::scale_kv(const assay_tensor& s, int32_t kind, float host, int request, Place at,
                             int32_t head, int32_t dim, double* values) const {
  if (at.slot == kDense) return;
  if (kind == ASSAY_SCALE_CHANNEL)
    for (int32_t d = 0; d < dim; ++d) values[d] *= real_at(s, head, d);
  else if (kind != ASSAY_SCALE_NONE)
    scale_all(kv_factor(s, kind, host, request, at, head), dim, values);
  gather(gathered_to(operands_, request), dim, values);
}

bool OperandReader::has_coded() const {
  const bool row_layout = problem_.op == ASSAY_OP_PREFILL ||
                          (problem_.layout != ASSAY_LAYOUT_X && problem_.layout != ASSAY_LAYOUT_SHUFFLED);
  if (!row_layout || t_.k.data == nullptr || problem_.k_scale == ASSAY_SCALE_CHANNEL) return false;
  if (operands_.dense_new_keys != nullptr) return false;  // two formats in one request, or no codes
  if (t_.k.stride[t_.k.rank - 1] != 1 || !has_coded_rows(t_.k.format)) return false;
  if (mla()) return true;
  return t_.v.stride[t_.v.rank - 1] == 1 && has_coded_rows(t_.v.format) &&
         problem_.v_scale != ASSAY_SCALE_CHANNEL;
}

int32_t OperandReader::coded_v_format() const { return mla() ? t_.k.format : t_.v.format; }

void OperandReader::coded(int request, int32_t begin, int32_t end, int32_t kv_head, const uint8_t* wanted,
                          Coded* out) const {
  const bool k_varies = problem_.k_scale == ASSAY_SCALE_TOKEN_HEAD;
  const bool v_varies = !mla() && problem_.v_scale == ASSAY_SCALE_TOKEN_HEAD;
  const auto k_factor = [&](Place at) {
    return kv_factor(t_.k_scale, problem_.k_scale, operands_.k_scale_host, request, at, kv_head);
  };
  const auto v_factor = [&](Place at) {
    return kv_factor(t_.v_scale, problem_.v_scale, operands_.v_scale_host, request, at, kv_head);
  };
  const double k_scale = k_varies ? 1 : k_factor({});
  const double v_scale = mla() ? k_scale : v_varies ? 1 : v_factor({});
  // Within a page only the slot moves (prefill: the rows of a request follow each other).
  const bool prefill = problem_.op == ASSAY_OP_PREFILL, by_page = problem_.table != ASSAY_TABLE_TOKEN;
  const auto token_stride = [&](const assay_tensor& t) {
    return t.stride[prefill ? 0 : problem_.layout == ASSAY_LAYOUT_HND ? 2 : 1] * format_bytes(t.format);
  };
  const int64_t k_step = token_stride(t_.k), v_step = mla() ? k_step : token_stride(t_.v);
  Place at;
  const std::byte *k = nullptr, *v = nullptr;
  for (int32_t key = begin; key < end; ++key) {
    Coded& to = out[key - begin];
    if (!wanted[key - begin]) {
      // Its place in the table may be poison, and so may its values.
      to = {zeros_.data(), zeros_.data(), 1, 1};
      k = nullptr;
      continue;
    }
    if (k != nullptr && (prefill || (by_page && at.slot + 1 < problem_.page_size))) {
      ++(prefill ? at.block : at.slot);
      k += k_step, v += v_step;
    } else {
      at = place(request, key);
      k = element_address(t_.k, k_row(at, kv_head).base);
      v = mla() ? k : element_address(t_.v, v_row(at, kv_head).base);
    }
    to = {k, v, k_varies ? k_factor(at) : k_scale, v_scale};
    if (v_varies) to.v_scale = v_factor(at);
    if (mla()) to.v_scale = to.k_scale;
  }
}

void OperandReader::k_at(int request, Place at, int32_t head, double* out) const {
  const Row row = k_row(at, head);
  const assay_tensor& k = at.slot == kDense ? t_.dense_k : t_.k;
  const int32_t dim = problem_.head_dim_qk;
  for (int64_t d = 0; d < dim; d += row.run)
    decode_strided(k, row.base + d / row.run * row.outer, row.inner, std::min<int64_t>(row.run, dim - d),
                   out + d);
  scale_kv(t_.k_scale, problem_.k_scale, operands_.k_scale_host, request, at, head, dim, out);
}

void OperandReader::v_at(int request, Place at, int32_t head, double* out) const {
  const int32_t dim = problem_.head_dim_v;
  if (problem_.op == ASSAY_OP_PAGED && problem_.layout == ASSAY_LAYOUT_MLA) {
    // V is a prefix of the K vector: the same codes under the same scale.
    const Row row = k_row(at, head);
    decode_strided(at.slot == kDense ? t_.dense_k : t_.k, row.base, row.inner, dim, out);
    return scale_kv(t_.k_scale, problem_.k_scale, operands_.k_scale_host, request, at, head, dim, out);
  }
  const Row row = v_row(at, head);
  decode_strided(at.slot == kDense ? t_.dense_v : t_.v, row.base, row.inner, dim, out);
  scale_kv(t_.v_scale, problem_.v_scale, operands_.v_scale_host, request, at, head, dim, out);
}

void OperandReader::prefetch(Place at, int32_t head) const {
  constexpr int64_t kLineBytes = 64;
  const auto touch = [](const assay_tensor& t, const Row& row, int64_t dim) {
    // Scattered elements would need a line each; only dense vectors are worth it.
    if (row.inner != 1 || row.run < dim) return;
    const std::byte* first = element_address(t, row.base);
    for (int64_t byte = 0; byte < dim * format_bytes(t.format); byte += kLineBytes)
      __builtin_prefetch(first + byte);
  };
  const bool dense = at.slot == kDense;
  touch(dense ? t_.dense_k : t_.k, k_row(at, head), problem_.head_dim_qk);
  // MLA keeps V inside K's row.
  if (problem_.op == ASSAY_OP_PREFILL || problem_.layout != ASSAY_LAYOUT_MLA)
    touch(dense ? t_.dense_v : t_.v, v_row(at, head), problem_.head_dim_v);
}

double OperandReader::sink(int32_t head) const { return real_at(t_.sinks, head); }
double OperandReader::alibi_slope(int32_t head) const { return real_at(t_.alibi_slopes, head); }

bool OperandReader::tree_visible(int request, int32_t row, int32_t draft) const {
  const int64_t width = problem_.drafts(problem_.requests[request]);
  return integer_at(t_.tree_mask, integer_at(t_.tree_indptr, request) + row * width + draft) != 0;
}

DenseKv gather_kv(const Problem& problem, const HostOperands& operands, int request, int32_t kv_head) {
  const OperandReader reader(problem, operands);
  const int64_t keys = problem.requests[request].kv_len;
  DenseKv dense;
  dense.k.resize(keys * problem.head_dim_qk);
  dense.v.resize(keys * problem.head_dim_v);
  for (int32_t j = 0; j < keys; ++j) {
    const OperandReader::Place at = reader.place(request, j);
    reader.k_at(request, at, kv_head, dense.k.data() + int64_t(j) * problem.head_dim_qk);
    reader.v_at(request, at, kv_head, dense.v.data() + int64_t(j) * problem.head_dim_v);
  }
  return dense;
}

std::vector<double> gather_q(const Problem& problem, const HostOperands& operands, RowId id) {
  const OperandReader reader(problem, operands);
  std::vector<double> q(int64_t(problem.heads_q) * problem.head_dim_qk);
  for (int32_t h = 0; h < problem.heads_q; ++h) reader.q(id, h, q.data() + int64_t(h) * problem.head_dim_qk);
  return q;
}

}  // namespace assay
