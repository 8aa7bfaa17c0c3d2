// SPDX-License-Identifier: Apache-2.0
// The kit for authors of kernels: everything of a backend but the kernels. Memory, copies, streams, events,
// graphs and measured limits of a device come from the library assay::kit_cpu, assay::kit_cuda or
// assay::kit_hip (find_package(assay)); an author fills a list of kernels and exports the backend. Examples
// to copy: kernels/examples. Presets for declaring arithmetic: assay_arithmetic.h.
#pragma once

#include <assay/assay_kernel.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace assay_kit {

// Element of a view on the host; indices behind the last axis stay 0.
template <class T>
T& at(const assay_tensor& t, int64_t i, int64_t j = 0, int64_t k = 0, int64_t l = 0, int64_t m = 0) {
  return static_cast<T*>(
      t.data)[i * t.stride[0] + j * t.stride[1] + k * t.stride[2] + l * t.stride[3] + m * t.stride[4]];
}

// bf16 codes to fp32, exact, and back, to nearest even.
inline float from_bf16(uint16_t code) {
  const uint32_t bits = uint32_t{code} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Answers of supports, plan and run. `why`: what is required, supported, missing.
inline int refuse(char* why, size_t size, const char* text) {
  if (why != nullptr && size > 0) std::snprintf(why, size, "%s", text);
  return ASSAY_UNSUPPORTED;
}
inline int fail(char* error, size_t size, const char* text) {
  return refuse(error, size, text), ASSAY_FAILED;
}

// An entry of the table with what every kernel has. arithmetic null: undeclared, judged as plain fp32. For a
// plan, a workspace, refresh or contracts (enum assay_contract) set the fields behind it.
inline assay_kernel kernel(const char* name, int32_t op, const char* arch,
                           decltype(assay_kernel::supports) supports, decltype(assay_kernel::run) run,
                           decltype(assay_kernel::arithmetic) arithmetic = nullptr, void* context = nullptr,
                           uint32_t promises = ASSAY_PROMISE_REPEATABLE) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = "", k.arch = arch, k.op = op;
  k.promises = promises, k.context = context;
  k.supports = supports, k.arithmetic = arithmetic, k.run = run;
  return k;
}

inline std::vector<const assay_kernel*> pointers(const assay_kernel* kernels, int32_t count) {
  std::vector<const assay_kernel*> list;
  for (int32_t i = 0; i < count; ++i) list.push_back(kernels + i);
  return list;
}

// A backend over `count` kernels that live as long as the library; one per shared library. `name` stands in
// the column `backend` and must not be that of another backend of the run.
const assay_backend* cpu_backend(const char* name, const assay_kernel* kernels, int32_t count);   // kit_cpu
const assay_backend* cuda_backend(const char* name, const assay_kernel* kernels, int32_t count);  // kit_cuda
const assay_backend* hip_backend(const char* name, const assay_kernel* kernels, int32_t count);   // kit_hip

#if defined(__CUDACC__)
// Status of a launch: launched(cudaGetLastError(), error, size).
inline int launched(cudaError_t status, char* error, size_t size) {
  return status == cudaSuccess ? int{ASSAY_OK} : fail(error, size, cudaGetErrorString(status));
}
#endif

}  // namespace assay_kit

// Once per shared library: the symbol that assay looks for.
#define ASSAY_EXPORT_BACKEND(backend)                                                        \
  extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open( \
      uint32_t abi_version) {                                                                \
    return abi_version == ASSAY_ABI_VERSION ? (backend) : nullptr;                           \
  }
