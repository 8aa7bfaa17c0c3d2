// SPDX-License-Identifier: Apache-2.0
// See bounds_tiers.hpp.
#include "reference/bounds/bounds_tiers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/bounds/bounds_infinity.hpp"

namespace assay {
namespace {

// So few numbers are set before another thread is awake.
constexpr size_t kManyElements = size_t{1} << 15;

// Where all is systematic tier P is a little wider than D, of the same parts.
constexpr double kLittleWider = 1.25;

double no_nan(double x) { return std::isnan(x) ? kInf : x; }

// One or eight channels, one after the other.
const double* lanes(const double& x) { return &x; }
const double* lanes(const Eight& x) { return x.data(); }
double* lanes(double& x) { return &x; }
double* lanes(Eight& x) { return x.data(); }

// The interval of one row and head. Numbers so large that their squares leave fp32 have no bound.
void intersect_slot(BoundedAttention& b, size_t slot) {
  const size_t dim = static_cast<size_t>(b.value.head_dim_v), first = slot * dim;
  const double *o = &b.value.o[first], *replayed = &b.o_replayed[first];
  double *d = &b.o_bound[first], *p = &b.o_bound_p[first], *r = &b.o_bound_r[first];
  double *low = &b.o_low[first], *high = &b.o_high[first];
#pragma omp simd
  for (size_t i = 0; i < dim; ++i) {
    d[i] = no_nan(d[i]);
    p[i] = no_nan(p[i]);
    r[i] = no_nan(r[i]);
    const double about_exact = p[i] < d[i] ? p[i] : d[i];
    const double exact_low = o[i] - about_exact, replayed_low = replayed[i] - r[i];
    const double exact_high = o[i] + about_exact, replayed_high = replayed[i] + r[i];
    low[i] = exact_low < replayed_low ? replayed_low : exact_low;
    high[i] = replayed_high < exact_high ? replayed_high : exact_high;
  }
  b.lse_bound[slot] = no_nan(b.lse_bound[slot]);
  b.lse_bound_p[slot] = no_nan(b.lse_bound_p[slot]);
  const double lse = b.value.lse[slot];
  const double bound = std::isinf(lse) ? 0.0 : std::min(b.lse_bound[slot], b.lse_bound_p[slot]);
  b.lse_low[slot] = lse - bound;
  b.lse_high[slot] = lse + bound;
}

}  // namespace

void start_tiers(BoundedAttention& b, const std::vector<RowId>& rows, int32_t heads_q, int32_t head_dim_v) {
  b.value.rows = rows;
  b.value.heads_q = heads_q;
  b.value.head_dim_v = head_dim_v;
  const size_t slots = rows.size() * heads_q, elements = slots * head_dim_v;
  struct Start {
    std::vector<double>& all;
    double value;
  } const starts[] = {{b.value.o, 0},      {b.o_bound, 0},    {b.o_bound_p, kInf},
                      {b.o_bound_r, kInf}, {b.o_replayed, 0}, {b.o_sigma, 0},
                      {b.o_bias, 0},       {b.o_low, 0},      {b.o_high, 0}};
  for (const Start& s : starts) s.all.reserve(elements);
    // Megabytes that leave the caches; nothing throws any more.
#pragma omp parallel for schedule(dynamic) if (elements > kManyElements)
  for (const Start& s : starts) s.all.assign(elements, s.value);
  b.o_rounding.assign(elements, 0.0f);
  b.value.lse.assign(slots, -kInf);
  b.lse_bound.assign(slots, 0.0);
  b.lse_bound_p.assign(slots, kInf);
  b.lse_sigma.assign(slots, 0.0);
  b.lse_bias.assign(slots, 0.0);
  b.o_mostly.assign(slots, BoundPart::kWorstCase);
  b.lse_mostly.assign(slots, BoundPart::kWorstCase);
  b.lse_low.assign(slots, -kInf);
  b.lse_high.assign(slots, -kInf);
}

RowTiers::RowTiers(BoundedAttention& out, int64_t slot, int32_t head_dim_v, const RowBounds& bounds)
    : out_(out), slot_(slot), first_(slot * head_dim_v), dim_(head_dim_v), bounds_(bounds) {
  if (bounds.narrow()) rounded_.assign(static_cast<size_t>(dim_), kInf);
}

template <class T>
void RowTiers::element(int32_t d, const ChannelFacts<T>& c) {
  const ElementBounds<T> b = bounds_.element(c);
  const bool narrow = bounds_.narrow(), followed = bounds_.followed();
  const int64_t first = first_ + d;
  constexpr int32_t kHere = kLanes<T>;
  const double *o = lanes(c.o), *replayed = lanes(c.replayed), *of_d = lanes(b.d), *of_p = lanes(b.p),
               *of_r = lanes(b.r), *rounded = lanes(b.p_rounded), *sigma = lanes(b.sigma),
               *replay_sigma = lanes(b.replay_sigma), *bias = lanes(b.bias);
  double *to_o = &out_.value.o[first], *to_d = &out_.o_bound[first], *to_p = &out_.o_bound_p[first],
         *to_r = &out_.o_bound_r[first], *to_replayed = &out_.o_replayed[first],
         *to_sigma = &out_.o_sigma[first], *to_bias = &out_.o_bias[first];
  float* to_rounding = &out_.o_rounding[first];
  T p = every<T>(0), r = p;
  double *all_p = lanes(p), *all_r = lanes(r);
#pragma omp simd
  for (int32_t k = 0; k < kHere; ++k) {
    to_o[k] = o[k], to_d[k] = of_d[k], to_bias[k] = bias[k];
    const double p_k = rounded[k] < of_p[k] ? rounded[k] : of_p[k];
    // A replay that is no sharper than the other tiers (scores worse than P's own grid) is left out.
    const bool finite = std::fabs(of_r[k]) <= std::numeric_limits<double>::max();
    const bool useful = finite & !((of_r[k] > 2 * of_d[k]) & (of_r[k] > 2 * p_k));
    const double r_k = useful ? of_r[k] : kInf;
    const double sharper = replay_sigma[k] < sigma[k] ? replay_sigma[k] : sigma[k];
    to_p[k] = p_k, to_r[k] = r_k;
    to_rounding[k] = narrow ? static_cast<float>(replayed[k] - o[k]) : 0.0f;
    to_replayed[k] = useful ? replayed[k] : o[k];
    to_sigma[k] = useful & followed ? sharper : sigma[k];
    all_p[k] = p_k, all_r[k] = r_k;
  }
  if (narrow) std::copy_n(rounded, kHere, &rounded_[static_cast<size_t>(d)]);
  const auto add = [](Eight& to, const T& from) {
    if constexpr (kHere == 1)
      to[0] += from;
    else
      to += from;
  };
  add(all_.d, b.d), add(all_.p, p), add(all_.rounded, b.p_rounded), add(all_.r, r);
  for (size_t part = 0; part < kBoundParts; ++part)
    add(all_.parts_p[part], b.parts_p[part]), add(all_.parts_r[part], b.parts_r[part]);
  suspicious_ |= b.suspicious;
}

template void RowTiers::element(int32_t, const ChannelFacts<double>&);
template void RowTiers::element(int32_t, const ChannelFacts<Eight>&);

BoundPart RowTiers::o_mostly(bool p_applies) const {
  const auto largest = [](const Eight(&parts)[kBoundParts]) {
    return static_cast<BoundPart>(
        std::max_element(parts, parts + kBoundParts,
                         [](const Eight& a, const Eight& b) { return sum_of(a) < sum_of(b); }) -
        parts);
  };
  const double d = sum_of(all_.d), p = p_applies ? sum_of(all_.p) : kInf, rounded = sum_of(all_.rounded);
  if (sum_of(all_.r) < std::min(d, p)) return largest(all_.parts_r);
  if (p <= kLittleWider * d) return largest(all_.parts_p);
  return !p_applies && rounded <= kLittleWider * d ? BoundPart::kRoundedP : BoundPart::kWorstCase;
}

RowTiersCounts RowTiers::drop_random() {
  for (std::vector<double>* tier : {&out_.o_bound_p, &out_.o_bound_r})
    std::fill_n(tier->begin() + first_, dim_, kInf);
  std::copy_n(out_.value.o.begin() + first_, dim_, out_.o_replayed.begin() + first_);
  out_.lse_bound_p[slot_] = kInf;
  all_.r = all_.rounded = every<Eight>(kInf), rounded_.clear();
  return {1, 0};
}

void RowTiers::leave_open(RowTiersCounts& counts) {
  const bool whole = bounds_.weights_may_overflow();
  if (!whole && !bounds_.second_pass_may_overflow(true)) return;
  std::fill_n(out_.o_bound.begin() + first_, dim_, kInf), all_.d = every<Eight>(kInf);
  if (!whole && !bounds_.second_pass_may_overflow(false)) return;
  const double lse_p = out_.lse_bound_p[slot_];
  counts = drop_random();
  std::fill_n(out_.o_bias.begin() + first_, dim_, kInf);
  if (whole)
    out_.lse_bound[slot_] = out_.lse_bias[slot_] = kInf;
  else
    out_.lse_bound_p[slot_] = lse_p;
}

RowTiersCounts RowTiers::finish(const RowFacts& row) {
  out_.value.lse[slot_] = row.lse;
  out_.lse_bound[slot_] = bounds_.lse_hard();
  out_.lse_bound_p[slot_] = bounds_.lse_random();
  out_.lse_sigma[slot_] = bounds_.lse_sigma();
  out_.lse_bias[slot_] = bounds_.lse_bias();
  RowTiersCounts counts;
  if (row.keys) counts.r_applied = row.replayed;
  if (row.keys && (suspicious_ || row.structured)) {
    std::fill_n(out_.o_bound_p.begin() + first_, dim_, kInf);
    // Where the row sum takes rounded P, its rounding is no more random than the numerator's.
    if (bounds_.joint()) out_.lse_bound_p[slot_] = kInf;
    counts.p_declined = 1;
  }
  if (row.keys && bounds_.only_hard()) counts = drop_random();
  if (row.keys && bounds_.row_sum_leans()) out_.lse_bound_p[slot_] = kInf;
  if (row.keys) leave_open(counts);
  if (out_.lse_bound_p[slot_] <= kLittleWider * out_.lse_bound[slot_])
    out_.lse_mostly[slot_] = bounds_.lse_mostly();
  if (row.keys) out_.o_mostly[slot_] = o_mostly(counts.p_declined == 0);
  intersect_slot(out_, static_cast<size_t>(slot_));
  if (!row.keys || !suspicious_ || row.structured || rounded_.empty()) return counts;
  // Whatever the rounding of P is like: aggregates, which count on it, see a declined row.
  for (size_t d = 0; d < rounded_.size(); ++d) {
    const size_t at = static_cast<size_t>(first_) + d;
    out_.o_low[at] = std::max(out_.o_low[at], out_.value.o[at] - rounded_[d]);
    out_.o_high[at] = std::min(out_.o_high[at], out_.value.o[at] + rounded_[d]);
  }
  return counts;
}

void intersect_tiers(BoundedAttention& b) {
  const auto fill = [](std::vector<double>& v, size_t size, double value) {
    if (v.empty()) v.assign(size, value);
  };
  const size_t elements = b.value.o.size(), rows = b.value.lse.size();
  fill(b.o_bound_p, elements, kInf);
  fill(b.o_bound_r, elements, kInf);
  fill(b.o_sigma, elements, 0.0);
  fill(b.lse_bound_p, rows, kInf);
  fill(b.lse_sigma, rows, 0.0);
  if (b.o_replayed.empty()) b.o_replayed = b.value.o;
  b.o_low.resize(elements);
  b.o_high.resize(elements);
  b.lse_low.resize(rows);
  b.lse_high.resize(rows);
  for (size_t slot = 0; slot < rows; ++slot) intersect_slot(b, slot);
}

}  // namespace assay
