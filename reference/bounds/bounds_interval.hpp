// SPDX-License-Identifier: Apache-2.0
// Real numbers as intervals of MPFR numbers, for the independent evaluation of tier D: every operation rounds
// its ends outwards, so the true value is always inside.
#pragma once

#include <mpfr.h>

#include <algorithm>
#include <cmath>

namespace assay::testkit {

class Interval {
 public:
  Interval(double value = 0) {  // NOLINT: numbers are intervals
    start();
    mpfr_set_d(low_, value, MPFR_RNDD);
    mpfr_set_d(high_, value, MPFR_RNDU);
  }
  Interval(const Interval& other) {
    start();
    *this = other;
  }
  Interval& operator=(const Interval& other) {
    mpfr_set(low_, other.low_, MPFR_RNDD);
    mpfr_set(high_, other.high_, MPFR_RNDU);
    return *this;
  }
  ~Interval() {
    mpfr_clear(low_);
    mpfr_clear(high_);
  }

  double low() const { return mpfr_get_d(low_, MPFR_RNDD); }
  double high() const { return mpfr_get_d(high_, MPFR_RNDU); }
  double middle() const { return low() + (high() - low()) / 2; }

  friend Interval operator+(const Interval& a, const Interval& b) {
    Interval r;
    mpfr_add(r.low_, a.low_, b.low_, MPFR_RNDD);
    mpfr_add(r.high_, a.high_, b.high_, MPFR_RNDU);
    return r;
  }
  friend Interval operator-(const Interval& a, const Interval& b) {
    Interval r;
    mpfr_sub(r.low_, a.low_, b.high_, MPFR_RNDD);
    mpfr_sub(r.high_, a.high_, b.low_, MPFR_RNDU);
    return r;
  }
  friend Interval operator*(const Interval& a, const Interval& b) { return ends(a, b, mpfr_mul); }
  // b must not contain 0.
  friend Interval operator/(const Interval& a, const Interval& b) { return ends(a, b, mpfr_div); }
  Interval& operator+=(const Interval& b) { return *this = *this + b; }

  friend Interval exp(const Interval& a) { return rising(a, mpfr_exp); }
  friend Interval expm1(const Interval& a) { return rising(a, mpfr_expm1); }
  friend Interval log(const Interval& a) { return rising(a, mpfr_log); }
  friend Interval sqrt(const Interval& a) { return rising(max(a, Interval(0)), mpfr_sqrt); }
  friend Interval tanh(const Interval& a) { return rising(a, mpfr_tanh); }
  friend Interval max(const Interval& a, const Interval& b) {
    Interval r;
    mpfr_max(r.low_, a.low_, b.low_, MPFR_RNDD);
    mpfr_max(r.high_, a.high_, b.high_, MPFR_RNDU);
    return r;
  }
  friend Interval min(const Interval& a, const Interval& b) {
    Interval r;
    mpfr_min(r.low_, a.low_, b.low_, MPFR_RNDD);
    mpfr_min(r.high_, a.high_, b.high_, MPFR_RNDU);
    return r;
  }
  friend Interval abs(const Interval& a) {
    if (mpfr_sgn(a.low_) >= 0) return a;
    const Interval negated = Interval(0) - a;
    return mpfr_sgn(a.high_) <= 0 ? negated : max(Interval(0), max(a, negated));
  }

 private:
  static constexpr mpfr_prec_t kBits = 128;
  using Binary = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_srcptr, mpfr_rnd_t);
  using Unary = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);
  void start() {
    mpfr_init2(low_, kBits);
    mpfr_init2(high_, kBits);
  }
  // The smallest and the largest of f over the four pairs of ends.
  static Interval ends(const Interval& a, const Interval& b, Binary f) {
    Interval r, down, up;
    bool first = true;
    for (const mpfr_t* x : {&a.low_, &a.high_})
      for (const mpfr_t* y : {&b.low_, &b.high_}) {
        f(down.low_, *x, *y, MPFR_RNDD);
        f(up.high_, *x, *y, MPFR_RNDU);
        if (first || mpfr_less_p(down.low_, r.low_)) mpfr_set(r.low_, down.low_, MPFR_RNDD);
        if (first || mpfr_greater_p(up.high_, r.high_)) mpfr_set(r.high_, up.high_, MPFR_RNDU);
        first = false;
      }
    return r;
  }
  static Interval rising(const Interval& a, Unary f) {
    Interval r;
    f(r.low_, a.low_, MPFR_RNDD);
    f(r.high_, a.high_, MPFR_RNDU);
    return r;
  }
  mpfr_t low_, high_;
};

}  // namespace assay::testkit
