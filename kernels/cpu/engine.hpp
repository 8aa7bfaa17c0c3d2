// SPDX-License-Identifier: Apache-2.0
// The door between the fast kernels' driver (online.cpp, plain x86-64) and the code compiled once per
// instruction set (isa_*.cpp). An Engine is a table of function pointers, chosen at run time; the driver
// cuts the work into tasks whose shape depends on one request only, so neither the batch nor the number of
// threads can change a row's bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/operands.hpp"

namespace assay_cpu {

struct Engine {
  const char* name;
  // Element-wise functions of the softmax, for the tests.
  void (*exp2_array)(const float* in, float* out, int64_t n);
  void (*tanh_array)(const float* in, float* out, int64_t n);
  // Measured limits: OR of all bytes read with the widest loads; FLOP done by `rounds` register-only steps.
  uint64_t (*read_bytes)(const void* data, int64_t bytes);
  double (*fp32_flops)(int64_t rounds, float* sink);
  double (*bf16_flops)(int64_t rounds, float* sink);  // null: no bf16 matrix unit at this level
};

const Engine& scalar_engine();
const Engine& avx2_engine();
const Engine& avx512_engine();
const Engine& amx_engine();
const Engine& engine_for(Isa);

}  // namespace assay_cpu
