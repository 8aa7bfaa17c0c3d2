// SPDX-License-Identifier: Apache-2.0
// Array forms of the softmax functions (tests measure their error) and register-only loops that show what
// an instruction set can do at most (limits.cpp). Included by every isa_*.cpp.
#pragma once

#include "kernels/cpu/online/lane.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

template <vf (*kFunction)(vf)>
void map_array(const float* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kW <= n; i += kW) vstore(out + i, kFunction(vload(in + i)));
  if (i == n) return;
  float tail[kW] = {};
  for (int64_t k = i; k < n; ++k) tail[k - i] = in[k];
  vstore(tail, kFunction(vload(tail)));
  for (int64_t k = i; k < n; ++k) out[k] = tail[k - i];
}

vf exp2_lane(vf x) { return vexp2(x); }
vf tanh_lane(vf x) { return vtanh(x); }

uint64_t read_bytes(const void* data, int64_t bytes) {
  // Four streams of 8-byte words the compiler widens to full vectors; data is 64-byte aligned.
  const uint64_t* words = static_cast<const uint64_t*>(__builtin_assume_aligned(data, 64));
  uint64_t sum[32] = {};
  int64_t i = 0;
  for (; i + 32 <= bytes / 8; i += 32)
    for (int k = 0; k < 32; ++k) sum[k] |= words[i + k];
  for (; i < bytes / 8; ++i) sum[0] |= words[i];
  for (int k = 1; k < 32; ++k) sum[0] |= sum[k];
  return sum[0];
}

// Twelve independent chains cover latency x ports of every machine so far.
double fp32_flops(int64_t rounds, float* sink) {
  vf chain[12];
  for (int k = 0; k < 12; ++k) chain[k] = vset(static_cast<float>(k));
  const vf half = vset(0.5f);
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) chain[k] = vfma(chain[k], half, half);
  }
  vf total = vzero();
  for (int k = 0; k < 12; ++k) total = vadd(total, chain[k]);
  *sink = vreduce_add(total);
  return 2.0 * 12 * kW * static_cast<double>(rounds);
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
