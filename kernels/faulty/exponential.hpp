// SPDX-License-Identifier: Apache-2.0
// The transcendental functions of the model kernel over arrays: right to fp32 rounding, or with a relative
// error of a declared size that is a fixed function of the argument's bits, or FlashAttention-4's cubic.
// Integer arguments give exact powers of two, as on hardware, unless the form of the error says otherwise.
#pragma once

#include <cstdint>

namespace assay_faulty {

// Largest relative error of the accurate form (fp32 rounding of a nearly exact double), and of the cubic.
inline constexpr double kExpAccurate = 0x1.02p-24, kExpCubic = 8.9e-5;

// How a relative error of a declared size is spread over the arguments. A declaration says nothing of it, so
// each is legal.
enum class ErrorForm : int8_t {
  kTable,  // like noise; none at integers
  kNoise,  // like noise, at integers too: exp(0) is not 1
  kHigh,   // every value too large by all of it
  kLow,
  kWave,  // smooth in the fraction of the argument, as of a polynomial
};

struct Exponential {
  double error = 0;        // relative, beyond kExpAccurate
  int32_t poly_every = 0;  // every n-th element takes the cubic; 0 = none
  ErrorForm form = ErrorForm::kTable;
};

// out[i] = 2^x[i] for i = first .. end - 1; the index counts for poly_every. Below 2^-126: zero.
void exp2_all(const float* x, int first, int end, const Exponential&, float* out);
float exp2_one(float x, const Exponential& how = {});  // never the cubic

// values[i] = tanh(values[i]) with a smooth relative error below `error` (0: fp32 rounding only) and another
// one that does not become smaller with the value.
void tanh_all(float* values, int first, int end, double error, double absolute = 0);

// The logarithm with errors of a fixed sign for each argument, as large as they may be.
double log_of(float x, double absolute, double relative);

}  // namespace assay_faulty
