// SPDX-License-Identifier: Apache-2.0
// What kernels/sm90 uses of <cuda.h>: tensor maps. The emulator's map holds its description as it was given.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

using cuuint64_t = uint64_t;
using cuuint32_t = uint32_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
using CUtensorMap = gpu::emulator::TensorMap;

enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_UINT8,
  CU_TENSOR_MAP_DATA_TYPE_UINT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle {
  CU_TENSOR_MAP_SWIZZLE_NONE,
  CU_TENSOR_MAP_SWIZZLE_32B,
  CU_TENSOR_MAP_SWIZZLE_64B,
  CU_TENSOR_MAP_SWIZZLE_128B
};
enum CUtensorMapL2promotion {
  CU_TENSOR_MAP_L2_PROMOTION_NONE,
  CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };

inline CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                       void* data, const cuuint64_t* sizes, const cuuint64_t* strides,
                                       const cuuint32_t* boxes, const cuuint32_t* steps,
                                       CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const uint32_t bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8     ? 1
                         : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4
                                                                   : 2;
  return gpu::emulator::encode_map(map, bytes, rank, data, sizes, strides, boxes, steps,
                                   static_cast<uint32_t>(swizzle))
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

// The driver's entry points by name, as the runtime finds them.
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
constexpr unsigned long long cudaEnableDefault = 0;
inline cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** found, unsigned, unsigned long long,
                                                    cudaDriverEntryPointQueryResult* result) {
  *found = reinterpret_cast<void*>(&cuTensorMapEncodeTiled), *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
