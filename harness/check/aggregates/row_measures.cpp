// SPDX-License-Identifier: Apache-2.0
// See row_measures.hpp.
#include "harness/check/aggregates/row_measures.hpp"

#include <algorithm>
#include <cmath>
#include <exception>

#include "harness/check/aggregates/certain_elements.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// From how many elements on other threads help.
constexpr int64_t kManyElements = int64_t{1} << 13;

}  // namespace

double RowMeasures::got(RowHead at, int32_t d) const {
  const assay_tensor& t = *out_.o;
  return load(t.format, t.data, packed_row(at.n) * t.stride[0] + at.head * t.stride[1] + d * t.stride[2]);
}

void RowMeasures::load_results(RowHead at, int32_t d, int32_t count, double* to) const {
  const assay_tensor& t = *out_.o;
  const int64_t first = packed_row(at.n) * t.stride[0] + at.head * t.stride[1];
  if (t.stride[2] == 1) {
    const auto* data = static_cast<const std::byte*>(t.data);
    return decode_span(t.format, data + (first + d) * format_bytes(t.format), count, to);
  }
  for (int32_t i = 0; i < count; ++i) to[i] = load(t.format, t.data, first + (d + i) * t.stride[2]);
}

void RowMeasures::measure() {
  const auto slots = static_cast<int64_t>(b_.value.lse.size());
  moments_.resize(b_.value.lse.size());
  places_.assign(static_cast<size_t>((slots + kSlice - 1) / kSlice), {});
  std::exception_ptr thrown;
#pragma omp parallel for schedule(dynamic) if (slots * p_.head_dim_v > kManyElements)
  for (int64_t first = 0; first < slots; first += kSlice) {
    try {
      std::vector<double> shares;
      for (int64_t i = first; i < std::min(slots, first + kSlice); ++i)
        measure({i / p_.heads_q, static_cast<int32_t>(i % p_.heads_q)}, shares);
    } catch (...) {  // may not leave the parallel region
#pragma omp critical(assay_aggregates_rows)
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

// `shares`: scratch.
void RowMeasures::measure(RowHead at, std::vector<double>& shares) {
  RowMoments& m = moments_[slot(at)];
  Places& places = places_[static_cast<size_t>(slot(at) / kSlice)];
  if (lse_ && out_.lse != nullptr) measure_lse(at, m);
  if (out_.o == nullptr) return;
  const size_t base = static_cast<size_t>(slot(at)) * p_.head_dim_v;
  // P has no bound where it declined; a row that sees nothing has no error to speak of.
  for (int32_t d = 0; d < p_.head_dim_v; ++d)
    if (!std::isfinite(b_.o_bound_p[base + d]) || !(b_.o_bound[base + d] > 0)) return;
  m.used = true;
  m.places_first = places.size();
  bool replayed = b_.r_applied > 0;
  for (int32_t d = 0; d < p_.head_dim_v && replayed; ++d) replayed = std::isfinite(b_.o_bound_r[base + d]);
  shares.clear();
  double contested = 0;
  CertainElements certain;
  for (int32_t d = 0; d < p_.head_dim_v; ++d) {
    const size_t i = base + d;
    const int32_t beside = d % CertainElements::kMost;
    if (beside == 0) {
      const int32_t count = std::min(CertainElements::kMost, p_.head_dim_v - d);
      load_results(at, d, count, certain.result);
      certain.look(expected_, i, count, replayed);
    }
    const double result = certain.result[beside];
    if (certain.certain[beside] != 0) {
      certain.add(beside, m);
      if (!replayed && !b_.o_rounding.empty())
        m.rounding += certain.w[beside] * static_cast<double>(b_.o_rounding[i]);
      if (replayed) m.misses += certain.error[beside] != 0;
      continue;
    }
    const ExpectedError x = expected_.about_ideal(i, replayed);
    if (std::isinf(x.place.rounded)) continue;
    const double sigma = x.sigma, bias = x.bias, w = x.w, s2 = x.spacing2, n2 = x.n2, square = x.square;
    const double e = result - x.place.rounded;
    m.lean += w * e;
    m.var += w * w * square;
    m.before += w * w * sigma * sigma;
    m.var_most += std::fabs(w) * std::sqrt(square);
    m.seen += w * w * e * e;
    const double mean = std::fabs(w) * x.place.mean(sigma, bias);
    m.bias += mean, m.here_square += mean * mean, m.anywhere += std::fabs(w) * bias;
    m.size += x.o * w;
    if (!replayed && !b_.o_rounding.empty()) m.rounding += w * static_cast<double>(b_.o_rounding[i]);
    m.one = std::max(m.one, std::fabs(w) * x.place.spacing);
    m.z += e * e / n2;
    m.z_mean += square / n2;
    m.z_var += (s2 * square + 3 * square * square) / (n2 * n2);
    shares.push_back(square / n2);
    double chance = 0;
    if (replayed) {
      const double width = b_.o_bound_r[i];
      chance = x.place.mismatch_chance(width, common_.step ? width : common_.relative * std::fabs(x.o),
                                       common_.stored);
      m.misses += result != x.place.rounded;
      m.misses_mean += chance;
      contested += chance > 0;
    }
    places.add(x.centre, std::sqrt(chance * (1 - chance)), std::sqrt(s2 * square) / n2);
  }
  m.places_last = places.size();
  m.replayed = replayed;
  m.misses_var = contested * m.misses_mean;  // all or none of a row at once
  m.var_most *= m.var_most;
  // All dimensions may be off at once: one weight moves the whole row, and the least likely of two that are
  // off bounds how often both are. The shares of certain elements, 0, would come first and add nothing.
  std::sort(shares.begin(), shares.end());
  for (size_t i = 0; i < shares.size(); ++i)
    m.z_var += 2 * shares[i] * static_cast<double>(shares.size() - 1 - i);
  m.z_var += 2 * m.z_mean * m.z_mean;
}

void RowMeasures::measure_lse(RowHead at, RowMoments& m) const {
  const auto i = static_cast<size_t>(slot(at));
  const double lse = b_.value.lse[i];
  if (!std::isfinite(lse) || !std::isfinite(b_.lse_bound_p[i])) return;
  const assay_tensor& t = *out_.lse;
  const double unit = out_.lse_unit, half = unit * half_ulp(t.format, lse / unit);
  m.lse_error = unit * load(t.format, t.data, packed_row(at.n) * t.stride[0] + at.head * t.stride[1]) - lse;
  m.lse_var = b_.lse_sigma[i] * b_.lse_sigma[i] * kWorstMantissa + half * half / 3;
  m.lse_bias = bias_of(b_.lse_bias, b_.lse_bound_p[i], b_.lse_sigma[i], i);
  if (unit != 1) m.lse_bias += 0x1p-25 * std::fabs(lse);  // of the constant that turns one into the other
}

}  // namespace assay
