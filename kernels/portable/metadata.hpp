// SPDX-License-Identifier: Apache-2.0
// The metadata ops (kernels/common/metadata.hpp) with a block of threads for each unit.
#pragma once

#include "kernels/common/metadata.hpp"
#include "kernels/dialect/gpu.h"

namespace assay_gpu {

using assay_kernels::MetadataOperands;

gpu::Status launch_metadata(const MetadataOperands&, gpu::Stream);

}  // namespace assay_gpu
