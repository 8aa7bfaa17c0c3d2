// SPDX-License-Identifier: Apache-2.0
// In what order threads and blocks take their turns: 0 the same one always, anything else one that is drawn
// from it (assay_disturb.h; backend.cpp sets it for the calls that come). Nothing that waits goes on earlier.
#pragma once

#include <cstdint>

namespace gpu::emulator {

struct Disorder {
  uint64_t threads = 0, blocks = 0;
};
inline Disorder disorder;

}  // namespace gpu::emulator
