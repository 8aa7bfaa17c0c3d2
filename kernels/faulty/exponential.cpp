// SPDX-License-Identifier: Apache-2.0
// Double-precision Taylor forms, rounded to fp32 once. The cubic's coefficients are those of
// FlashAttention-4's exponential emulation (flash_attn/cute/utils.py, degree 3).
#include "kernels/faulty/exponential.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace assay_faulty {
namespace {

// 2^y for |y| < 1000: 2^n times the Taylor series of 2^f, |f| <= 1/2; the tenth term is below 2^-37.
inline double exp2_double(double y) {
  const double n = __builtin_rint(y), f = y - n;
  double p = 1.0178086009239699e-07;
  p = p * f + 1.3215486790144308e-06;
  p = p * f + 1.5252733804059841e-05;
  p = p * f + 1.5403530393381609e-04;
  p = p * f + 1.3333558146428443e-03;
  p = p * f + 9.6181291076284772e-03;
  p = p * f + 5.5504108664821580e-02;
  p = p * f + 2.4022650695910072e-01;
  p = p * f + 6.9314718055994531e-01;
  p = p * f + 1.0;
  return p * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52);
}

// A fixed number in [-1, 1) for each argument: the error of a table or an approximation, which is the same
// every time. Bits mixed by multiplication (the finaliser of MurmurHash3).
inline double noise_of(float x) {
  uint32_t h = std::bit_cast<uint32_t>(x);
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  h ^= h >> 16;
  return static_cast<double>(static_cast<int32_t>(h)) * 0x1p-31;
}

// In -1 .. 1, as the form says.
template <ErrorForm kForm>
inline double error_at(float y) {
  if (kForm == ErrorForm::kHigh) return 1.0;
  if (kForm == ErrorForm::kLow) return -1.0;
  if (kForm == ErrorForm::kWave) return std::cos(6.283185307179586 * (y - __builtin_rintf(y)));
  return kForm == ErrorForm::kTable && y == __builtin_rintf(y) ? 0.0 : noise_of(y);
}

template <ErrorForm kForm>
inline float exp2_of(float x, double error) {
  const float y = x > -127.0f ? (x < 127.99999f ? x : 127.99999f) : -127.0f;
  const double exact = exp2_double(y);
  const float value = static_cast<float>(exact + exact * (error * error_at<kForm>(y)));
  return x >= -126.0f ? value : (x < -126.0f ? 0.0f : x);  // NaN stays
}

float exp2_cubic(float x) {
  if (!(x >= -126.0f)) return x < -126.0f ? 0.0f : x;
  const float n = std::floor(x), f = x - n;
  const float p =
      std::fmaf(std::fmaf(std::fmaf(0.077119089663028717041015625f, f, 0.227564394474029541015625f), f,
                          0.695146143436431884765625f),
                f, 1.0f);
  return std::ldexp(p, static_cast<int>(n));
}

template <ErrorForm kForm>
void exp2_range(const float* x, int first, int end, double error, float* out) {
  if (error == 0)
    for (int i = first; i < end; ++i) out[i] = exp2_of<ErrorForm::kTable>(x[i], 0.0);
  else
    for (int i = first; i < end; ++i) out[i] = exp2_of<kForm>(x[i], error);
}

}  // namespace

void exp2_all(const float* x, int first, int end, const Exponential& how, float* out) {
  switch (how.form) {
    case ErrorForm::kTable:
      exp2_range<ErrorForm::kTable>(x, first, end, how.error, out);
      break;
    case ErrorForm::kNoise:
      exp2_range<ErrorForm::kNoise>(x, first, end, how.error, out);
      break;
    case ErrorForm::kHigh:
      exp2_range<ErrorForm::kHigh>(x, first, end, how.error, out);
      break;
    case ErrorForm::kLow:
      exp2_range<ErrorForm::kLow>(x, first, end, how.error, out);
      break;
    case ErrorForm::kWave:
      exp2_range<ErrorForm::kWave>(x, first, end, how.error, out);
      break;
  }
  if (how.poly_every <= 0) return;
  for (int i = first; i < end; ++i)
    if (i % how.poly_every == how.poly_every - 1) out[i] = exp2_cubic(x[i]);
}

float exp2_one(float x, const Exponential& how) {
  float out = 0;
  exp2_all(&x, 0, 1, {how.error, 0, how.form}, &out);
  return out;
}

double log_of(float x, double absolute, double relative) {
  const double exact = std::log(static_cast<double>(x));
  if (absolute == 0 && relative == 0) return exact;
  const double size = absolute + relative * std::fabs(exact);
  return exact + (noise_of(x) < 0 ? -size : size);
}

void tanh_all(float* values, int first, int end, double error, double absolute) {
  for (int i = first; i < end; ++i) {
    const double x = values[i], a = std::fabs(x) < 20.0 ? std::fabs(x) : 20.0;
    const double e = exp2_double(a * 2.8853900817779268);  // e^(2a)
    const double small = a - a * a * a / 3;                // below 2^-7 the fifth power is under 2^-30
    double y = a < 0x1p-9 ? small : (e - 1) / (e + 1);
    y += y * error * 0.98 * std::sin(37.0 * x) + absolute * 0.98 * std::cos(23.0 * x);
    values[i] = static_cast<float>(x < 0 ? -y : y);
  }
}

}  // namespace assay_faulty
