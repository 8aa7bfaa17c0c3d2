// SPDX-License-Identifier: Apache-2.0
// What connects emulated ranks, a process each: assay's exchanges, for the memory of emulated devices is the
// host's. While a call is captured they are kept, as launches are, and run at each replay.
#include "kernels/common/group.hpp"

#include "kernels/emulator/host.hpp"

namespace {

assay_group given{}, emulated{};  // live as long as the process

template <class Exchange>
int now_or_later(void* stream, const Exchange& exchange) {
  gpu::emulator::Recording* const list = gpu::emulator::recording(stream);
  if (list == nullptr) return exchange();
  list->push_back({[=] { return exchange() == ASSAY_OK ? emulatorSuccess : emulatorErrorLaunch; }});
  return ASSAY_OK;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int assay_backend_join(const assay_group* group,
                                                                         char* error, size_t size) {
  if (const int status = assay_kernels::join_group(group, error, size); status != ASSAY_OK) return status;
  given = emulated = *group;
  emulated.all_gather = [](const assay_group*, const void* send, void* receive, int64_t bytes, void* stream,
                           char*, size_t) {
    return now_or_later(stream,
                        [=] { return given.all_gather(&given, send, receive, bytes, nullptr, nullptr, 0); });
  };
  emulated.reduce_scatter = [](const assay_group*, const float* send, float* receive, int64_t count,
                               void* stream, char*, size_t) {
    return now_or_later(
        stream, [=] { return given.reduce_scatter(&given, send, receive, count, nullptr, nullptr, 0); });
  };
  return assay_kernels::join_group(&emulated, error, size);
}
