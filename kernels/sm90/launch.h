// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels here. By the runtime's function instead of <<<>>>, which only CUDA compilers read:
// the emulator offers the same function (kernels/emulator/sm90).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace assay_sm90 {

struct LaunchShape {
  int grid, threads;  // blocks, threads of each; one axis
  size_t bytes;       // dynamic shared memory of a block
  cudaStream_t stream;
  int cluster = 1;  // blocks of a cluster
  int rows = 1;     // so often as many blocks, on the second axis
};

// What the launch function takes; `attribute` is where it reads the size of clusters.
inline cudaLaunchConfig_t launch_config(const LaunchShape& shape, cudaLaunchAttribute& attribute) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.grid), static_cast<unsigned>(shape.rows));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.bytes, config.stream = shape.stream;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  if (shape.cluster > 1) config.attrs = &attribute, config.numAttrs = 1;
  return config;
}

// The arguments are converted to the types of the parameters.
template <class... P, class... A>
cudaError_t launch_kernel(void (*kernel)(P...), const LaunchShape& shape, A&&... arguments) {
  cudaLaunchAttribute attribute{};
  const cudaLaunchConfig_t config = launch_config(shape, attribute);
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

}  // namespace assay_sm90
