// SPDX-License-Identifier: Apache-2.0
// The driver's encoder, found at run time: the library does not link against libcuda, which machines without
// a GPU lack.
#include "kernels/sm90/tensor_map.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "harness/abi/assay_problem.h"

namespace assay_sm90 {

bool make_map(CUtensorMap* map, int32_t format, const void* data, int32_t rank, const MapAxis* axes,
              MapFetch fetch) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    constexpr unsigned int kVersion = 12000;  // of CUDA, the first with this function
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kVersion, cudaEnableDefault,
                                         &result) != cudaSuccess)
      found = nullptr;
    return reinterpret_cast<Encode>(found);
  }();
  if (encode == nullptr) return false;
  const int bytes = format == ASSAY_FP8_E4M3 || format == ASSAY_INT8 ? 1 : 2;
  cuuint64_t size[5] = {}, stride[4] = {};
  cuuint32_t box[5] = {}, step[5] = {};
  for (int32_t i = 0; i < rank; ++i) {
    size[i] = static_cast<cuuint64_t>(std::max<int64_t>(1, axes[i].size));
    box[i] = static_cast<cuuint32_t>(axes[i].box), step[i] = 1;
    // An axis of one element may come with any stride; the encoder wants a legal one.
    if (i > 0) stride[i - 1] = axes[i].size > 1 ? static_cast<cuuint64_t>(axes[i].stride) * bytes : 16;
  }
  return encode(map,
                bytes == 1             ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                : format == ASSAY_FP16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                static_cast<cuuint32_t>(rank), const_cast<void*>(data), size, stride, box, step,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                fetch == MapFetch::kPair ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                                         : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace assay_sm90
