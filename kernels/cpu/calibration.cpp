// SPDX-License-Identifier: Apache-2.0
// What calibration can ask of the processor: the bf16 tile product where there is one, and the exponential
// and tanh of the fast kernels, which are code of this folder and differ between instruction sets.
#include <omp.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/online/engine.hpp"

namespace assay_cpu {
namespace {

constexpr int kIsas = 4;
constexpr assay_instruction function(const char* name, int32_t what) {
  return {sizeof(assay_instruction), name, ASSAY_INSTRUCTION_FUNCTION, ASSAY_FORMAT_NONE, 0, what};
}
constexpr assay_instruction kExp2[kIsas] = {
    function("exp2 scalar", ASSAY_FUNCTION_EXP2), function("exp2 avx2", ASSAY_FUNCTION_EXP2),
    function("exp2 avx512", ASSAY_FUNCTION_EXP2), function("exp2 amx", ASSAY_FUNCTION_EXP2)};
constexpr assay_instruction kTanh[kIsas] = {
    function("tanh scalar", ASSAY_FUNCTION_TANH), function("tanh avx2", ASSAY_FUNCTION_TANH),
    function("tanh avx512", ASSAY_FUNCTION_TANH), function("tanh amx", ASSAY_FUNCTION_TANH)};
constexpr assay_instruction kTile = {
    sizeof(assay_instruction), kTileInstruction, ASSAY_INSTRUCTION_PRODUCTS, ASSAY_BF16, 32,
    ASSAY_FUNCTION_NONE};

int fail(int status, char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) snprintf(error, size, "%s", text);
  return status;
}
int unknown(char* error, size_t size) {
  return fail(ASSAY_INVALID_ARGUMENT, error, size,
              "not an instruction of this backend's list, or not of this kind");
}

// Exact for values of the format; what is no bf16 value is a mistake of the caller and is cut.
uint16_t bf16_code(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

const char* exp2_instruction(Isa isa) { return kExp2[static_cast<int>(isa)].name; }
const char* tanh_instruction(Isa isa) { return kTanh[static_cast<int>(isa)].name; }

int instructions(const assay_instruction* const** list, int32_t* count, char* error, size_t size) {
  Isa isa;
  if (!active_isa(&isa, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (list == nullptr || count == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "instructions needs places for the list and its length");
  static std::vector<const assay_instruction*> present;
  present = {&kExp2[static_cast<int>(isa)], &kTanh[static_cast<int>(isa)]};
  if (engine_for(isa).bf16_dot != nullptr) present.push_back(&kTile);
  *list = present.data();
  *count = static_cast<int32_t>(present.size());
  return ASSAY_OK;
}

int run_products(const assay_instruction* shown, int64_t count, const float* a, const float* b,
                 const float* c, float* d, char* error, size_t size) {
  Isa isa;
  if (!active_isa(&isa, error, size)) return ASSAY_INVALID_ARGUMENT;
  const auto dot = engine_for(isa).bf16_dot;
  if (shown != &kTile || dot == nullptr) return unknown(error, size);
  uint16_t left[32], right[32];
  for (int64_t i = 0; i < count; ++i) {
    for (int k = 0; k < 32; ++k) left[k] = bf16_code(a[i * 32 + k]), right[k] = bf16_code(b[i * 32 + k]);
    d[i] = dot(left, right, c[i]);
  }
  return ASSAY_OK;
}

int run_function(const assay_instruction* shown, uint32_t first, int64_t count, float* out, char* error,
                 size_t size) {
  Isa isa;
  if (!active_isa(&isa, error, size)) return ASSAY_INVALID_ARGUMENT;
  const Engine& engine = engine_for(isa);
  const auto f = shown == &kExp2[static_cast<int>(isa)]   ? engine.exp2_array
                 : shown == &kTanh[static_cast<int>(isa)] ? engine.tanh_array
                                                          : nullptr;
  if (f == nullptr) return unknown(error, size);
  constexpr int64_t kPiece = 4096;
#pragma omp parallel for schedule(static)
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t n = count - at < kPiece ? count - at : kPiece;
    float x[kPiece];
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = first + static_cast<uint32_t>(at + i);
      memcpy(&x[i], &bits, sizeof bits);
    }
    f(x, out + at, n);
  }
  return ASSAY_OK;
}

int measure_rate(const assay_instruction* shown, double* flops, char* error, size_t size) {
  if (shown != &kTile || flops == nullptr) return unknown(error, size);
  return measure_matrix_rate(ASSAY_BF16, flops, error, size);
}

}  // namespace assay_cpu
