// SPDX-License-Identifier: Apache-2.0
// Calibration and quantisation. A scale is absmax / largest code, and up to 2^-8 more (far_from_short); a
// code is the value over that fp32 scale, rounded once (the quotient is taken in double), so dequantising is
// off by half a step at most, or where the rounding of the scale itself pushed the largest value past the
// last code, clamped.
#include "harness/input/scale_set.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "harness/base/error.hpp"
#include "harness/input/spans.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"
#include "reference/formats/quantize.hpp"

namespace assay {
namespace {

// The scale, or the next one above, whose last 16 bits stand well between two numbers of bf16: who keeps
// scales in such a format is off by 0.1 to 0.4 %.
float far_from_short(float scale) {
  constexpr uint32_t kLast = 1u << 16, kFirstBetween = 0x4123, kBehind = 0xC000;
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t last = bits % kLast, whole = bits - last;
  if (last >= kFirstBetween && last <= kBehind) return scale;
  return std::bit_cast<float>(whole + kFirstBetween + (last > kBehind ? kLast : 0));
}

double magnitude(const double* values, int32_t count) {
  double largest = 0;
  for (int32_t d = 0; d < count; ++d) largest = std::max(largest, std::abs(values[d]));
  return largest;
}

}  // namespace

ScaleSet::ScaleSet(const Problem& p, const ValueSource& source, Side side)
    : p_(p),
      source_(source),
      // A latent cache has one set of codes: V is read with the scales found for K.
      side_(op_of(p).has_cache && p.layout == ASSAY_LAYOUT_MLA && side == Side::kV ? Side::kK : side),
      kind_(side == Side::kQ   ? p.q_scale
            : side == Side::kK ? p.k_scale
                               : p.v_scale),
      format_(side == Side::kQ   ? p.q_format
              : side == Side::kK ? p.k_format
                                 : p.v_format),
      heads_(side == Side::kQ ? p.heads_q : p.heads_kv),
      dims_(side_ == Side::kV ? p.head_dim_v : p.head_dim_qk) {
  if (kind_ == ASSAY_SCALE_NONE) return;
  max_code_ = largest_code(format_);
  if (kind_ == ASSAY_SCALE_TOKEN_HEAD) return;

  const auto requests = static_cast<int64_t>(p.requests.size());
  const bool channels = kind_ == ASSAY_SCALE_CHANNEL;
  size_t count = 1;
  if (kind_ == ASSAY_SCALE_HEAD) count = heads_;
  if (kind_ == ASSAY_SCALE_REQUEST_HEAD) count = requests * p.heads_kv;
  if (channels) count = static_cast<size_t>(heads_) * dims_;
  units_.resize(count);

  if (const ExactRecipe* exact = source.exact()) {
    for (size_t i = 0; i < count; ++i)
      units_[i] = static_cast<float>(side_ == Side::kQ ? exact->q_scale(i, count == 1)
                                                       : exact->kv_scale(i, count == 1));
  } else {
    // The maximum does not depend on the order, so neither does the result on the number of threads.
    std::vector<double> largest(count, 0.0);
    const std::vector<int32_t> first = side_ == Side::kQ ? p.cu_q() : p.cu_kv();
#pragma omp parallel if (int64_t{first.back()} * heads_ * dims_ > kParallelElements)
    {
      std::vector<double> mine(count, 0.0), row(dims_);
#pragma omp for schedule(static)
      for (int64_t at = 0; at < first.back(); ++at) {
        const int request = request_of_row(first, at);
        const auto token = static_cast<int32_t>(at - first[request]);
        for (int32_t h = 0; h < heads_; ++h) {
          if (side_ == Side::kQ) source.q(request, token, h, row.data());
          if (side_ == Side::kK) source.k(request, token, h, row.data());
          if (side_ == Side::kV) source.v(request, token, h, row.data());
          if (channels) {
            for (int32_t d = 0; d < dims_; ++d) {
              double& m = mine[static_cast<size_t>(h) * dims_ + d];
              m = std::max(m, std::abs(row[d]));
            }
          } else {
            double& m = mine[unit(request, h)];
            m = std::max({m, magnitude(row.data(), dims_), source.up_to(side_, request, token, h)});
          }
        }
      }
#pragma omp critical(assay_scale_set)
      for (size_t i = 0; i < count; ++i) largest[i] = std::max(largest[i], mine[i]);
    }
    for (size_t i = 0; i < count; ++i) units_[i] = scale_for(largest[i]);
  }
  // Requests of one sharing chain own the same pages, hence the same codes, hence one scale: all of them
  // collected in the entry of the root.
  if (kind_ == ASSAY_SCALE_REQUEST_HEAD && side_ != Side::kQ)
    for (int64_t r = 0; r < requests; ++r)
      for (int32_t h = 0; h < p.heads_kv; ++h)
        units_[r * p.heads_kv + h] = units_[static_cast<int64_t>(source.roots()[r]) * p.heads_kv + h];
}

size_t ScaleSet::unit(int request, int32_t head) const {
  switch (static_cast<assay_scale>(kind_)) {
    case ASSAY_SCALE_HEAD:
      return head;
    case ASSAY_SCALE_REQUEST_HEAD: {
      const int32_t kv_head = side_ == Side::kQ ? head / p_.group() : head;
      const int owner = side_ == Side::kQ ? request : source_.roots()[request];
      return static_cast<size_t>(owner) * p_.heads_kv + kv_head;
    }
    case ASSAY_SCALE_NONE:
    case ASSAY_SCALE_HOST:
    case ASSAY_SCALE_TENSOR:
    case ASSAY_SCALE_TOKEN_HEAD:  // beside its row, not in a unit
    case ASSAY_SCALE_CHANNEL:
      break;
  }
  return 0;
}

float ScaleSet::scale_for(double largest) const {
  // A unit of zeros, or of no token at all, still needs a finite scale.
  return largest > 0 ? far_from_short(static_cast<float>(largest / max_code_)) : 1.0f;
}

float ScaleSet::token_scale(int request, int32_t token, int32_t head, const double* values) const {
  const ExactRecipe* exact = source_.exact();
  if (exact == nullptr)
    return scale_for(std::max(magnitude(values, dims_), source_.up_to(side_, request, token, head)));
  const bool of_q = side_ == Side::kQ;
  const int owner = of_q ? request : token_owner(p_, request, token);
  const uint64_t index = (static_cast<uint64_t>(owner) << 44) + static_cast<uint64_t>(token) * heads_ + head;
  return static_cast<float>(of_q ? exact->q_scale(index, false) : exact->kv_scale(index, false));
}

float ScaleSet::encode_row(int request, int32_t token, int32_t head, double* values, std::byte* codes) const {
  float scale = 1;
  if (kind_ == ASSAY_SCALE_CHANNEL) {
    const float* channel = units_.data() + static_cast<size_t>(head) * dims_;
    for (int32_t d = 0; d < dims_; ++d) values[d] /= channel[d];
  } else if (kind_ != ASSAY_SCALE_NONE) {
    scale = kind_ == ASSAY_SCALE_TOKEN_HEAD ? token_scale(request, token, head, values)
                                            : units_[unit(request, head)];
    for (int32_t d = 0; d < dims_; ++d) values[d] /= scale;
  }
  // A recipe may want more than the format holds (a small softmax scale).
  keep_finite(format_, {values, static_cast<size_t>(dims_)});
  encode_span(format_, values, dims_, codes);
  return scale;
}

void ScaleSet::write(const TensorLayout& t, std::byte* payload,
                     const std::vector<RequestOrigin>& requests) const {
  ASSAY_CHECK(has_scale_tensor(kind_) && kind_ != ASSAY_SCALE_TOKEN_HEAD,
              "scale kind {} has no static tensor", kind_);
  const int64_t rows = t.rank == 2 ? t.shape[0] : 1, columns = t.shape[t.rank - 1];
  // The tensor may be narrower than the units: V of a latent cache sees the front channels of K.
  const int64_t stride = kind_ == ASSAY_SCALE_CHANNEL ? dims_ : columns;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      store(ASSAY_FP32, payload, t.rank == 2 ? t.at({r, c}) : t.at({c}),
            units_[(kind_ == ASSAY_SCALE_REQUEST_HEAD ? requests[r].request : r) * stride + c]);
}

}  // namespace assay
