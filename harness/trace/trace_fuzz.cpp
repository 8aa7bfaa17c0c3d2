// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry for both trace readers: any bytes give requests or an InputError, nothing else. What
// was read is replayed for a few steps, so that odd but legal traces reach the scheduler too.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "harness/base/error.hpp"
#include "harness/trace/trace.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 1 << 16) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const auto trace =
        data[0] % 2 == 0 ? assay::read_trace_csv(text, "fuzz") : assay::read_trace_jsonl(text, "fuzz");
    assay::ReplayOptions options;
    options.step = data[0] / 2 % 8;
    options.max_tokens = 1 + data[0] * 16;
    assay::replay(trace, options);
  } catch (const assay::InputError&) {
  }
  return 0;
}
