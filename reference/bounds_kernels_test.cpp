// SPDX-License-Identifier: Apache-2.0
// The bounds against emulated kernels: correct ones must always fit every tier, mistaken ones must not, and
// the largest error must come near the bound. Every class of arithmetic meets every family of inputs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/bounds.hpp"
#include "reference/bounds_classes.hpp"
#include "reference/bounds_emulator.hpp"

namespace assay {
namespace {

using testing::arithmetic;
using testing::Class;
using testing::classes;
using testing::DenseCase;
using testing::Emulation;
using testing::Emulator;
using testing::Family;
using testing::make_case;
using testing::Mutant;
using testing::tensor_core;

constexpr double kInf = std::numeric_limits<double>::infinity();

double ratio(double got, double expected, double bound) {
  const double error = std::fabs(got - expected);
  return got == expected || error == 0 ? 0.0 : bound > 0 ? error / bound : kInf;
}

// Largest error over bound, per tier; tiers that do not apply count as 0.
struct Ratios {
  double d = 0, p = 0, r = 0, lse = 0, lse_p = 0;
  bool outside = false;  // of the intersection
  int64_t elements = 0;
  void add(const Ratios& other) {
    d = std::max(d, other.d), p = std::max(p, other.p), r = std::max(r, other.r);
    lse = std::max(lse, other.lse), lse_p = std::max(lse_p, other.lse_p);
    outside |= other.outside;
    elements += other.elements;
  }
  bool o_rejected() const { return d > 1 || p > 1 || r > 1; }
  bool lse_rejected() const { return lse > 1 || lse_p > 1; }
};

Ratios ratios(const BoundedAttention& b, const Emulation& e) {
  Ratios r;
  r.elements = static_cast<int64_t>(e.o.size() + e.lse.size());
  for (size_t i = 0; i < e.o.size(); ++i) {
    r.d = std::max(r.d, ratio(e.o[i], b.value.o[i], b.o_bound[i]));
    r.p = std::max(r.p, ratio(e.o[i], b.value.o[i], b.o_bound_p[i]));
    r.r = std::max(r.r, ratio(e.o[i], b.o_replayed[i], b.o_bound_r[i]));
    r.outside |= !(e.o[i] >= b.o_low[i] && e.o[i] <= b.o_high[i]);
  }
  // The LSE is judged after its rounding to fp32, which the bound covers through 4 u |LSE|.
  for (size_t i = 0; i < e.lse.size(); ++i) {
    r.lse = std::max(r.lse, ratio(e.lse[i], b.value.lse[i], b.lse_bound[i]));
    r.lse_p = std::max(r.lse_p, ratio(e.lse[i], b.value.lse[i], b.lse_bound_p[i]));
  }
  return r;
}

// A family in the operand format and scale kind of a class.
DenseCase case_for(const Class& c, Family family, int32_t n, int32_t m, int32_t d, uint64_t seed) {
  DenseCase data = make_case(family, n, m, d, seed);
  Problem& p = data.problem;
  p.q_format = p.k_format = p.v_format = c.operands;
  const int32_t query = c.scale == ASSAY_SCALE_NONE ? ASSAY_SCALE_NONE : ASSAY_SCALE_TENSOR;
  p.k_scale = p.v_scale = c.scale;
  p.q_scale = query;
  const double largest = c.operands == ASSAY_INT8 ? 127 : c.operands == ASSAY_FP8_E4M3 ? 448 : 57344;
  data = data.rebuilt(largest);
  return data;
}

void expect_fits(const Ratios& r, const std::string& what) {
  EXPECT_LE(r.d, 1) << what;
  EXPECT_LE(r.p, 1) << what;
  EXPECT_LE(r.r, 1) << what;
  EXPECT_LE(r.lse, 1) << what;
  EXPECT_LE(r.lse_p, 1) << what;
  EXPECT_FALSE(r.outside) << what;
}

TEST(BoundedKernels, FitEveryTierAndComeNearIt) {
  int64_t elements = 0;
  for (const Class& c : classes()) {
    Ratios worst;
    int64_t declined = 0, replayed = 0;
    for (int f = 0; f < static_cast<int>(Family::kCount); ++f) {
      for (const int32_t m : {1, 61, 200}) {
        const DenseCase data = case_for(c, static_cast<Family>(f), 4, m, 32, 100 * f + m);
        const BoundedAttention b = bounded_attention(data.problem, data.host(), data.rows(), c.arithmetic);
        const Ratios r = ratios(b, Emulator(data, c.arithmetic).run());
        expect_fits(r, fmt::format("{}, family {}, keys {}", c.name, f, m));
        worst.add(r);
        declined += b.p_declined;
        replayed += b.r_applied;
      }
    }
    elements += worst.elements;
    std::printf("  %-48s D %.2f P %.2f R %.2f  LSE %.2f %.2f  declined %3ld replayed %3ld\n", c.name, worst.d,
                worst.p, worst.r, worst.lse, worst.lse_p, static_cast<long>(declined),
                static_cast<long>(replayed));
  }
  std::printf("  %ld elements\n", static_cast<long>(elements));
}

}  // namespace
}  // namespace assay
