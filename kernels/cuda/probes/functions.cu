// SPDX-License-Identifier: Apache-2.0
// Functions of one fp32 argument: the approximations of the special function unit (PTX ISA, "Floating point
// instructions") and those of CUDA's own functions that kernels here call.
#include "kernels/cuda/probes/probes.hpp"

namespace assay_gpu {
namespace {

template <Function kFunction>
__device__ inline float value(float x) {
  float y = 0;
  if constexpr (kFunction == Function::kEx2Approx)
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  else if constexpr (kFunction == Function::kLg2Approx)
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  else if constexpr (kFunction == Function::kRcpApprox)
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  else if constexpr (kFunction == Function::kTanhApprox)
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  else if constexpr (kFunction == Function::kExp2f)
    y = exp2f(x);
  else if constexpr (kFunction == Function::kLog2f)
    y = log2f(x);
  else
    y = tanhf(x);
  return y;
}

template <Function kFunction>
__global__ void tabulate(uint32_t first, int64_t count, float* out) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    out[i] = value<kFunction>(__uint_as_float(first + static_cast<uint32_t>(i)));
}

template <Function kFunction>
gpu::Status launch(uint32_t first, int64_t count, float* out, gpu::Stream stream) {
  tabulate<kFunction><<<1024, 256, 0, stream>>>(first, count, out);
  return GPU_API(GetLastError)();
}

}  // namespace

gpu::Status launch_function(Function f, uint32_t first, int64_t count, float* out, gpu::Stream stream) {
  switch (f) {
    case Function::kEx2Approx:
      return launch<Function::kEx2Approx>(first, count, out, stream);
    case Function::kLg2Approx:
      return launch<Function::kLg2Approx>(first, count, out, stream);
    case Function::kRcpApprox:
      return launch<Function::kRcpApprox>(first, count, out, stream);
    case Function::kTanhApprox:
      return launch<Function::kTanhApprox>(first, count, out, stream);
    case Function::kExp2f:
      return launch<Function::kExp2f>(first, count, out, stream);
    case Function::kLog2f:
      return launch<Function::kLog2f>(first, count, out, stream);
    case Function::kTanhf:
      return launch<Function::kTanhf>(first, count, out, stream);
  }
  return GPU_API(ErrorInvalidValue);
}

}  // namespace assay_gpu
