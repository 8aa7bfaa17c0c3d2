// SPDX-License-Identifier: Apache-2.0
// See stage_rows.hpp.
#include "harness/run/stage_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/measure/host_load.hpp"
#include "harness/run/stages_in_place.hpp"
#include "harness/run/timed_call.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

Work sum_of(const StagesInPlace& stages, const std::string& place) {
  Work sum;
  for (const StagesInPlace::Run& run : stages.runs()) {
    if (run.place != place) continue;
    sum.flops += run.work.flops, sum.kv_bytes += run.work.kv_bytes, sum.total_bytes += run.work.total_bytes;
    sum.visible_pairs += run.work.visible_pairs;
    sum.tokens = std::max(sum.tokens, run.work.tokens);  // runs in a row are of the same rows
  }
  return sum;
}

RowAnswer time_stage(const TimedCase& c, StagesInPlace& stages, const std::string& place, Judge& judge,
                     const std::string& mode, Row row) {
  RowAnswer answer;
  try {
    stages.stop_before(place);
    TimedCall call(c.backend, c.device, stages.kernel(), judge.inputs().view->get(),
                   judge.device_case().tensors(), mode, c.clock);
    const StoppingRule rule = rule_for(c);
    const HostLoadMeter load;
    Timing t = measure([&] { return call.sample(); }, rule);
    const HostLoad busy = load.read();
    stages.run_whole();
    const Verdict again = judge.recheck();
    if (again.outcome == Outcome::kPassed) {
      answer.samples = fill_timed(row, c, call.clocks(), rule, busy, mode, std::move(t));
    } else {
      fill_verdict(row, again);
      row.reason = "the whole, run again after its stage was timed: " + again.reason;
    }
  } catch (...) {
    fill_untimed(row, mode);
  }
  answer.row = std::move(row);
  return answer;
}

}  // namespace

std::string stage_row_kernel(const std::string& kernel, const std::string& stage) {
  return kernel + ":" + stage;
}

std::string_view whole_kernel(std::string_view row_kernel) {
  const size_t close = row_kernel.rfind(')');
  return row_kernel.substr(0, row_kernel.find(':', close == std::string_view::npos ? 0 : close));
}

void time_stages(const TimedCase& c, const assay_kernel& kernel, Judge& judge, const std::string& mode,
                 const Row& checked) {
  if (!has_stages(kernel)) return;
  const auto start = Clock::now();
  StagesInPlace stages(c.backend, kernel, c.problem, judge.inputs().view->get(),
                       judge.device_case().tensors());
  std::vector<std::string> done;
  for (const StagesInPlace::Run& run : stages.runs()) {
    if (std::find(done.begin(), done.end(), run.place) != done.end()) continue;
    done.push_back(run.place);
    const Work work = sum_of(stages, run.place);
    const TimedCase own = {c.backend, c.device, run.problem, work, c.limits, c.rule, c.clock, c.say};
    c.say(Starting{mode, kernel.name, longest_timing_s(own, c.work, 8)});
    Row row = checked;
    row.kernel = stage_row_kernel(kernel.name, run.place);
    RowAnswer answer = time_stage(own, stages, run.place, judge, mode, std::move(row));
    answer.row.case_s = std::chrono::duration<double>(Clock::now() - start).count();
    c.say(answer);
    if (answer.row.cache.empty()) return;  // a failure: the whole is not what it was
  }
}

}  // namespace assay
