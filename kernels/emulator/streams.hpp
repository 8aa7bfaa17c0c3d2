// SPDX-License-Identifier: Apache-2.0
// Streams beside the caller's, for calls that may run beside each other (kernels/common/stages.hpp). The
// caller's runs at once. What is enqueued on another runs at once too, in the order of the calls, or, while a
// capture or a disturbance is under way, as late as marks allow: when the caller's stream follows one that
// was put behind it. So a wait for another stream that is missing shows in the second order; that another
// stream waits for too little of the caller's shows in neither (gpu.StageLanes finds it).
#pragma once

#include "kernels/emulator/host.hpp"

namespace gpu::emulator {

// Of this thread; 0 is the caller's.
Stream lane(int32_t number);
// Launches are kept in `to` until end_recording(), which says whether the caller's stream reached all of
// them: none was on a stream that had not followed a mark of the recording, and none is left behind.
void begin_recording(Recording* to);
bool end_recording();
void put_mark(void* mark, Stream);
// What a launch that runs now for it did wrong.
Status follow(Stream, void* mark);

}  // namespace gpu::emulator
