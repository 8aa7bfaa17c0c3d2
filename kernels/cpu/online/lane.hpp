// SPDX-License-Identifier: Apache-2.0
// One vector of fp32 for whichever instruction set this file is compiled for (ASSAY_ISA_LEVEL: 0 SSE,
// 1 AVX2, 2 AVX-512), so that the engines are written once. Only included by the isa_*.cpp files, which
// wrap everything in their own namespace: nothing here may have a symbol another file could pick up.
// exp2 and tanh are polynomials fitted by weighted least squares (Lawson iteration) to the relative
// error; math_test.cpp measures them over their whole range.
#pragma once

#include <immintrin.h>

#include "kernels/common/formats.hpp"

#ifndef ASSAY_ISA_LEVEL
#  error "lane.hpp is for the isa_*.cpp files, which define ASSAY_ISA_LEVEL and ASSAY_ISA_NAMESPACE"
#endif

namespace assay_cpu::ASSAY_ISA_NAMESPACE {

using namespace assay_kernels;
namespace {

#if ASSAY_ISA_LEVEL == 2
constexpr int kW = 16;
using vf = __m512;
using vmask = __mmask16;
ASSAY_INLINE vf vzero() { return _mm512_setzero_ps(); }
ASSAY_INLINE vf vset(float x) { return _mm512_set1_ps(x); }
ASSAY_INLINE vf vload(const float* p) { return _mm512_loadu_ps(p); }
ASSAY_INLINE void vstore(float* p, vf x) { _mm512_storeu_ps(p, x); }
ASSAY_INLINE vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
ASSAY_INLINE vf vmul(vf a, vf b) { return _mm512_mul_ps(a, b); }
ASSAY_INLINE vf vadd(vf a, vf b) { return _mm512_add_ps(a, b); }
ASSAY_INLINE vf vsub(vf a, vf b) { return _mm512_sub_ps(a, b); }
ASSAY_INLINE vf vdiv(vf a, vf b) { return _mm512_div_ps(a, b); }
ASSAY_INLINE vf vsqrt(vf a) { return _mm512_sqrt_ps(a); }
ASSAY_INLINE vf vabs(vf a) { return _mm512_abs_ps(a); }
// A NaN in b survives, one in a does not.
ASSAY_INLINE vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
ASSAY_INLINE vf viota() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
ASSAY_INLINE vmask vless(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
ASSAY_INLINE vmask vboth(vmask a, vmask b) { return static_cast<vmask>(a & b); }
ASSAY_INLINE vf vselect(vmask m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
ASSAY_INLINE vf vcopysign(vf magnitude, vf sign) {
  return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}
ASSAY_INLINE float vreduce_add(vf x) { return _mm512_reduce_add_ps(x); }
ASSAY_INLINE float vreduce_max(vf x) { return _mm512_reduce_max_ps(x); }
// floor part of exp2: t = n + r with 0 <= r <= 1, then poly(r) * 2^n; below 2^-126 the result is 0.
ASSAY_INLINE vf vfraction(vf t) { return _mm512_reduce_ps(t, 0x09); }
ASSAY_INLINE vf vscale2(vf poly, vf t) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), poly, t);
}
#elif ASSAY_ISA_LEVEL == 1
constexpr int kW = 8;
using vf = __m256;
using vmask = __m256;
ASSAY_INLINE vf vzero() { return _mm256_setzero_ps(); }
ASSAY_INLINE vf vset(float x) { return _mm256_set1_ps(x); }
ASSAY_INLINE vf vload(const float* p) { return _mm256_loadu_ps(p); }
ASSAY_INLINE void vstore(float* p, vf x) { _mm256_storeu_ps(p, x); }
ASSAY_INLINE vf vfma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
ASSAY_INLINE vf vmul(vf a, vf b) { return _mm256_mul_ps(a, b); }
ASSAY_INLINE vf vadd(vf a, vf b) { return _mm256_add_ps(a, b); }
ASSAY_INLINE vf vsub(vf a, vf b) { return _mm256_sub_ps(a, b); }
ASSAY_INLINE vf vdiv(vf a, vf b) { return _mm256_div_ps(a, b); }
ASSAY_INLINE vf vsqrt(vf a) { return _mm256_sqrt_ps(a); }
ASSAY_INLINE vf vabs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
ASSAY_INLINE vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
ASSAY_INLINE vf viota() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
ASSAY_INLINE vmask vless(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
ASSAY_INLINE vmask vboth(vmask a, vmask b) { return _mm256_and_ps(a, b); }
ASSAY_INLINE vf vselect(vmask m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }
ASSAY_INLINE vf vcopysign(vf magnitude, vf sign) {
  return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}
ASSAY_INLINE __m128 fold_add(vf x) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  return _mm_add_ps(half, _mm_movehl_ps(half, half));
}
ASSAY_INLINE float vreduce_add(vf x) {
  const __m128 two = fold_add(x);
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
ASSAY_INLINE float vreduce_max(vf x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}
ASSAY_INLINE vf vfraction(vf t) { return _mm256_sub_ps(t, _mm256_floor_ps(vmax(vset(-200.0f), t))); }
ASSAY_INLINE vf vscale2(vf poly, vf t) {
  const __m256i n = _mm256_cvtps_epi32(_mm256_floor_ps(vmax(vset(-126.0f), t)));
  const vf power = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  return vselect(vless(t, vset(-126.0f)), vzero(), vmul(poly, power));
}
#else
constexpr int kW = 4;
using vf = __m128;
using vmask = __m128;
ASSAY_INLINE vf vzero() { return _mm_setzero_ps(); }
ASSAY_INLINE vf vset(float x) { return _mm_set1_ps(x); }
ASSAY_INLINE vf vload(const float* p) { return _mm_loadu_ps(p); }
ASSAY_INLINE void vstore(float* p, vf x) { _mm_storeu_ps(p, x); }
ASSAY_INLINE vf vmul(vf a, vf b) { return _mm_mul_ps(a, b); }
ASSAY_INLINE vf vadd(vf a, vf b) { return _mm_add_ps(a, b); }
ASSAY_INLINE vf vfma(vf a, vf b, vf c) { return vadd(vmul(a, b), c); }  // two roundings
ASSAY_INLINE vf vsub(vf a, vf b) { return _mm_sub_ps(a, b); }
ASSAY_INLINE vf vdiv(vf a, vf b) { return _mm_div_ps(a, b); }
ASSAY_INLINE vf vsqrt(vf a) { return _mm_sqrt_ps(a); }
ASSAY_INLINE vf vabs(vf a) { return _mm_andnot_ps(_mm_set1_ps(-0.0f), a); }
ASSAY_INLINE vf vmax(vf a, vf b) { return _mm_max_ps(a, b); }
ASSAY_INLINE vf viota() { return _mm_setr_ps(0, 1, 2, 3); }
ASSAY_INLINE vmask vless(vf a, vf b) { return _mm_cmplt_ps(a, b); }
ASSAY_INLINE vmask vboth(vmask a, vmask b) { return _mm_and_ps(a, b); }
ASSAY_INLINE vf vselect(vmask m, vf yes, vf no) { return _mm_blendv_ps(no, yes, m); }
ASSAY_INLINE vf vcopysign(vf magnitude, vf sign) {
  return _mm_or_ps(magnitude, _mm_and_ps(sign, _mm_set1_ps(-0.0f)));
}
ASSAY_INLINE float vreduce_add(vf x) {
  const vf two = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
ASSAY_INLINE float vreduce_max(vf x) {
  const vf two = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
ASSAY_INLINE vf vfraction(vf t) { return _mm_sub_ps(t, _mm_floor_ps(vmax(vset(-200.0f), t))); }
ASSAY_INLINE vf vscale2(vf poly, vf t) {
  const __m128i n = _mm_cvtps_epi32(_mm_floor_ps(vmax(vset(-126.0f), t)));
  const vf power = _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23));
  return vselect(vless(t, vset(-126.0f)), vzero(), vmul(poly, power));
}
#endif

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kNegativeInfinity = -__builtin_inff();

// 2^t for t <= 0 (also -inf and NaN). Exact at 0, so equal logits give equal weights of exactly 1.
ASSAY_INLINE vf vexp2(vf t) {
  const vf r = vfraction(t);
  vf y = vfma(vset(0x1.e974fcp-10f), r, vset(0x1.277854p-7f));
  y = vfma(y, r, vset(0x1.c91ce6p-5f));
  y = vfma(y, r, vset(0x1.ebdb56p-3f));
  y = vfma(y, r, vset(0x1.62e4bap-1f));
  y = vfma(y, r, vset(1.0f));
  return vscale2(y, t);
}

// Odd polynomial below 0.55, 1 - 2 e / (1 + e) with e = exp(-2|x|) above.
ASSAY_INLINE vf vtanh(vf x) {
  const vf a = vabs(x);
  const vf z = vmul(a, a);
  vf y = vfma(vset(-0.006274239f), z, vset(0.021071678f));
  y = vfma(y, z, vset(-0.05385231f));
  y = vfma(y, z, vset(0.13332586f));
  y = vfma(y, z, vset(-0.33333316f));
  const vf small = vfma(vmul(y, z), a, a);
  const vf e = vexp2(vmul(a, vset(-2.0f * kLog2e)));
  const vf large = vsub(vset(1.0f), vdiv(vadd(e, e), vadd(vset(1.0f), e)));
  return vcopysign(vselect(vless(a, vset(0.55f)), small, large), x);
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
