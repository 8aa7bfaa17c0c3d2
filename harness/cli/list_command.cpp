// SPDX-License-Identifier: Apache-2.0
// assay list: the canonical lines. Fast and in constant memory, because looking at a suite of a million
// cases before running it must be cheap; lines are gathered in a large buffer.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/cli/commands.hpp"
#include "harness/run/case_stream.hpp"

namespace assay {
namespace {

constexpr size_t kBuffer = 1 << 20;

// False when the reader went away (assay list | head): no error, just nothing left to do.
bool flush(std::string& buffer) {
  const bool whole =
      std::fwrite(buffer.data(), 1, buffer.size(), stdout) == buffer.size() && std::fflush(stdout) == 0;
  if (!whole && errno != EPIPE)
    throw InfrastructureError(std::string("cannot write the list: ") + std::strerror(errno));
  buffer.clear();
  return whole;
}

}  // namespace

int list_command(const RunOptions& options, bool count_only) {
  CaseStream cases(options, {.keep_repeats = true});
  std::string buffer;
  int64_t count = 0;
  while (const auto c = cases.next()) {
    ++count;
    if (count_only) continue;
    buffer += c->line;
    buffer += '\n';
    if (buffer.size() >= kBuffer && !flush(buffer)) return kExitOk;
  }
  if (!flush(buffer)) return kExitOk;
  const SuiteCounts counts = cases.counts();
  if (count_only) {
    fmt::print("{} cases from {} lines", count, counts.lines);
    if (counts.excluded > 0) fmt::print(", {} combinations excluded", counts.excluded);
    if (cases.too_large() > 0) fmt::print(", {} left out by --largest", cases.too_large());
    if (counts.skipped > 0) fmt::print(", {} optional cases skipped", counts.skipped);
    fmt::print("\n");
    for (const std::string& reason : counts.skip_reasons) fmt::print("  {}\n", reason);
  }
  if (count > 0) return kExitOk;
  fmt::print(stderr, "no case{}\n", options.filter.empty() ? "" : " matches --filter");
  return kExitUsage;
}

}  // namespace assay
