// SPDX-License-Identifier: Apache-2.0
// See repeat.hpp.
#include "harness/run/repeat.hpp"

#include <fmt/format.h>

#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"
#include "harness/run/stage_rows.hpp"

namespace assay {
namespace {

class Command {
 public:
  explicit Command(const std::string& program) : text_(shell_quote(program)) {}
  void word(std::string_view w) { text_.append(" ").append(shell_quote(w)); }
  void option(const char* name, std::string_view value) {
    word(name);
    word(value);
  }
  template <class T>
  void unless_default(const char* name, T value, T its_default) {
    if (value != its_default) option(name, fmt::format("{}", value));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// --cache takes one word for several modes.
std::string cache_word(const std::vector<std::string>& modes) {
  return modes.size() == 1 ? modes[0] : modes.size() == 2 ? "both" : "all";
}

}  // namespace

std::string repeat_command(const Row& row, const RunOptions& o) {
  const RunOptions plain;
  Command c(o.program);
  c.word(o.timed ? "bench" : "check");
  c.word(row.scenario);
  const bool has_kernel = !row.kernel.empty() && row.kernel != kNoKernel;
  if (has_kernel) c.option("--kernel", whole_kernel(row.kernel));
  if (has_kernel && !o.devices.empty()) {  // NAME:DEVICE, see on_devices
    const size_t colon = row.backend.rfind(':');
    c.option("--backend", row.backend.substr(0, colon));
    c.option("--devices", row.backend.substr(colon + 1));
  } else if (has_kernel && !row.backend.empty()) {
    c.option("--backend", row.backend);
  } else {
    for (const std::string& backend : o.backends) c.option("--backend", backend);
  }
  for (const std::string& file : o.calibrations) c.option("--calibration", file);
  if (o.graphs) c.word("--graphs");
  c.unless_default("--walk", o.walk, plain.walk);
  c.unless_default("--races", o.races, plain.races);
  c.unless_default("--rows-budget", o.rows_budget, plain.rows_budget);
  c.unless_default("--timeout", o.timeout_s, plain.timeout_s);
  c.unless_default("--worker-memory", o.worker_memory_bytes, plain.worker_memory_bytes);
  if (!o.timed) return c.text();
  if (o.stages) c.word("--stages");
  if (const std::string cache = row.mode().empty() ? cache_word(o.caches) : row.mode(); cache != "hot")
    c.option("--cache", cache);
  c.unless_default("--precision", o.rule.relative_width, plain.rule.relative_width);
  c.unless_default("--min-samples", o.rule.min_samples, plain.rule.min_samples);
  c.unless_default("--max-samples", o.rule.max_samples, plain.rule.max_samples);
  c.unless_default("--max-seconds", o.rule.max_seconds, plain.rule.max_seconds);
  c.unless_default("--steady", o.rule.steady_seconds, plain.rule.steady_seconds);
  c.unless_default("--noise", o.rule.noise, plain.rule.noise);
  return c.text();
}

}  // namespace assay
