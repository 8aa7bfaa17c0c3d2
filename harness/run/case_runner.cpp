// SPDX-License-Identifier: Apache-2.0
// See case_runner.hpp.
#include "harness/run/case_runner.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <optional>

#include "harness/check/expectations/reasons.hpp"
#include "harness/check/graph/graph.hpp"
#include "harness/check/graph/walk.hpp"
#include "harness/check/session/races.hpp"
#include "harness/device/disturber.hpp"
#include "harness/input/contracts.hpp"
#include "harness/measure/host_load.hpp"
#include "harness/measure/limits.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/run/case_needs.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/options.hpp"
#include "harness/run/rank_group.hpp"
#include "harness/run/rank_rows.hpp"
#include "harness/run/results_folder.hpp"
#include "harness/run/stage_rows.hpp"
#include "harness/run/timed_call.hpp"
#include "harness/run/timed_row.hpp"
#include "harness/run/watched_series.hpp"
#include "harness/scenario/fields.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void say_row(const Say& say, const Row& row, Samples samples = {}, bool short_of_memory = false) {
  RowAnswer said{row, std::move(samples), short_of_memory};
  if (short_of_memory) said.row.check = kMemoryCheck;
  say(said);
}

// Looks that took so many times the warm-up are one: what they do besides calling the kernel takes less.
constexpr double kWarmTimes = 10;

// One timed row per mode. The outputs the last timed call left are judged again.
void time_modes(const TimedCase& c, const assay_kernel& kernel, Judge& judge, const RunCaseOrder& order,
                const std::vector<std::string>& modes, const Row& checked, Clock::time_point start) {
  const double rows_budget = order.rows_budget;
  const assay_problem* view = judge.inputs().view->get();
  const assay_tensors* tensors = judge.device_case().tensors();
  for (const std::string& mode : modes) {
    c.say(Starting{mode, kernel.name, longest_timing_s(c, c.work, 4)});
    Row row = checked;
    Samples samples;
    try {
      TimedCall call(c.backend, c.device, kernel, view, tensors, mode, c.clock);
      row.plan_us = call.plan_us();
      row.refresh_us = call.refresh_us();
      StoppingRule rule = rule_for(c);
      WatchedSeries series(judge, call, c.rule.max_seconds / 4, rows_budget);
      if (series.spent_s() > kWarmTimes * rule.warmup_seconds) rule.warmup_seconds = 0;  // long calls
      const HostLoadMeter load;
      Timing t = measure([&] { return series.sample(); }, rule);
      const HostLoad busy = load.read();
      const Objection seen = series.end();
      const Verdict again = judge.recheck();
      if (seen) {
        row.outcome = outcome_name(Outcome::kWrong);
        row.check = seen.check;
        row.reason = seen.reason;
      } else if (again.outcome == Outcome::kPassed) {
        if (!t.samples_us.empty()) {
          call.hold_against_system(t.median_us);
          call.hold_against_host(t.median_us);
          call.hold_against_alone(t.median_us);
        }
        samples = fill_timed(row, c, call.clocks(), rule, busy, mode, std::move(t));
      } else {
        fill_verdict(row, again);
        row.reason = "outputs checked again after timing: " + again.reason;
      }
    } catch (...) {
      fill_untimed(row, mode);  // a refused mode; the others go on
    }
    row.case_s = seconds_since(start);
    say_row(c.say, row, std::move(samples));
    if (row.cache.empty()) return;  // a failure ends the kernel; an untimed row stands for all its modes
    const bool right = row.outcome != outcome_name(Outcome::kUnsupported);
    if (order.stages && right) time_stages(c, kernel, judge, mode, checked);
  }
}

// What else than the batch makes the tensors of the case large, where its line says so.
std::string memory_text(const std::string& scenario, Clock::time_point start) {
  const Scenario s = parse_scenario(scenario);
  std::string large = "batch";
  for (const char* name : {"budget", "pad", "states", "blocks", "workers", "ranks"})
    if (const Field& field = assay::fields()[static_cast<size_t>(field_index(name))];
        takes(op_of(s.op), name) && !field.is_default(s))
      large += fmt::format(", {}", name);
  return fmt::format(
      "needs more memory than a worker may use (after {:.1f} s); raise --worker-memory or make the line "
      "smaller "
      "({})",
      seconds_since(start), large);
}

// Replays of captured calls, for a kernel that is right when it is called; the row says what is wrong.
void check_replays(const TimedCase& c, const assay_kernel& kernel, const RunCaseOrder& order, Row& row) {
  const std::string why = graph_refusal(c.backend, kernel);
  if (!why.empty()) {
    row.outcome = outcome_name(Outcome::kUnsupported);
    row.reason = why;
    return;
  }
  const double each = check_allowance_s(c.work, c.problem, order.rows_budget);
  const auto say = [&](const std::string& reason, const RelationResult& result, const char* check) {
    if (reason.empty() && result.checked) return;
    row.outcome = outcome_name(reason.empty() ? Outcome::kUnsupported : Outcome::kWrong);
    row.check = reason.empty() ? "" : check;
    row.reason = one_line(reason.empty() ? "no shape could be replayed: " + result.note : reason);
  };
  if (order.graphs) {
    c.say(Starting{"check", kernel.name, 3 * each});  // five shapes, each run twice and referenced
    RelationResult result;
    say(check_graph(c.backend, kernel, c.device, c.problem, default_arithmetic(), order.rows_budget, result),
        result, "graph");
  }
  if (order.walk > 0 && row.outcome == outcome_name(Outcome::kPassed)) {
    c.say(Starting{"check", kernel.name, (1 + order.walk) * each});
    RelationResult result;
    say(check_walk(c.backend, kernel, c.device, c.problem, order.walk, default_arithmetic(),
                   order.rows_budget, result),
        result, "walk");
  }
}

// The kernel's call repeated beside disturbances, for one that is right alone.
void check_races(const TimedCase& c, const assay_kernel& kernel, Judge& judge, const RunCaseOrder& order,
                 Row& row) {
  std::string why;
  const std::optional<Disturber> disturber = Disturber::open(c.backend, c.device, &why);
  if (!disturber) {
    row.outcome = outcome_name(Outcome::kUnsupported);
    row.reason = why;
    return;
  }
  // A call on other values beside each, on a part of the processors: a kernel that hangs is seen at once.
  constexpr double kSlowdown = 4, kSlowest = 100, kLongestS = 1e-6 * ASSAY_DISTURB_LONGEST_US;
  const double call_s = kSlowdown * (c.work.flops / 0.5e9 + c.work.total_bytes / 1e9);
  const auto going_on = [&](double undisturbed_s) {
    const double one = undisturbed_s > 0 ? std::min(call_s, kSlowest * undisturbed_s) : call_s;
    c.say(Starting{"check", kernel.name, 2 * kRacesInARow * (one + kLongestS)});
  };
  const uint64_t seed = fingerprint(order.scenario + '|' + kernel.name);
  const Verdict seen = judge.races(*disturber, {order.races, seed, going_on});
  if (seen.outcome == Outcome::kPassed) return;
  row.outcome = outcome_name(seen.outcome);
  row.check = seen.check;
  row.reason = seen.reason;
}

void run_kernel(const TimedCase& c, Judge& judge, const WantedKernel& wanted, const RunCaseOrder& order,
                const Row& base) {
  const auto start = Clock::now();
  Row row = base;
  row.kernel = wanted.kernel;
  bool short_of_memory = false;
  const assay_kernel* kernel = c.backend.find(row.kernel);
  if (kernel == nullptr) {
    row.outcome = outcome_name(Outcome::kCrashed);
    row.check = "call";
    row.reason = not_listed(row.kernel);
    return say_row(c.say, row);
  }
  row.contract = contracts_text(contracts_of(*kernel));
  // Ranks are judged as one kernel.
  std::optional<RankGroup> ranks;
  if (wants_ranks(c.problem)) {
    RankOptions options;
    options.limit_s = std::max(options.limit_s, check_allowance_s(c.work, c.problem, order.rows_budget));
    kernel = &ranks.emplace(c.backend, *kernel, options).kernel();
  }
  try {
    fill_verdict(row, judge.judge(c.backend, *kernel, c.device));
    row.reason += judge.otherwise_declared();
    const auto passed = [&] { return row.outcome == outcome_name(Outcome::kPassed); };
    if (passed() && order.races > 0) check_races(c, *kernel, judge, order, row);
    if (passed() && (order.graphs || order.walk > 0)) check_replays(c, *kernel, order, row);
    row.case_s = seconds_since(start);
    // What the bounds cannot tell from nonsense is timed all the same, and stays untrusted.
    const bool timed = passed() || row.outcome == outcome_name(Outcome::kUntrusted);
    if (timed && !wanted.modes.empty() && ranks) {
      for (const std::string& mode : wanted.modes) {
        c.say(Starting{mode, kernel->name, longest_timing_s(c, c.work, 8)});
        if (!time_ranks(c, *ranks, judge, mode, order.stages, row)) break;
      }
      return;
    }
    if (timed && !wanted.modes.empty()) {
      time_modes(c, *kernel, judge, order, wanted.modes, row, start);
      return;
    }
  } catch (const InputError& e) {
    row.outcome = outcome_name(Outcome::kInvalid);
    row.reason = e.what();
  } catch (const InfrastructureError& e) {  // the device cannot hold this case with this kernel's workspace
    std::string lost;
    row.outcome = outcome_name(device_lost(c.backend, &lost) ? Outcome::kCrashed : Outcome::kInvalid);
    row.reason = e.what();
    short_of_memory = row.outcome == outcome_name(Outcome::kInvalid);
  } catch (const std::bad_alloc&) {
    row.outcome = outcome_name(Outcome::kInvalid);
    row.reason = memory_text(order.scenario, start);
    short_of_memory = true;
  }
  say_row(c.say, row, {}, short_of_memory);
}

}  // namespace

std::string not_listed(const std::string& kernel) {
  return fmt::format("the library has no kernel {} in this process, and had it in another", kernel);
}

Row row_of_line(const std::string& scenario, const std::string& place) {
  Row row;
  row.scenario = scenario;
  row.op = scenario.substr(0, scenario.find(' '));
  row.suite_place = place;
  return row;
}

DeviceClock* clock_of(const Backend& backend, const assay_device& device) {
  static std::string no_clock;
  static const std::unique_ptr<DeviceClock> clock = DeviceClock::open(backend.name(), device, &no_clock);
  return clock.get();
}

void fill_batch(Row& row, const Problem& p) {
  row.op = name_of(op_names(), p.op);
  row.requests = static_cast<int64_t>(p.requests.size());
  row.tokens = p.total_q();
  row.max_kv_len = p.max_kv_len();
  row.decodes = row.extends = row.prefills = 0;
  for (const Request& r : p.requests) {
    if (r.q_len == 0) continue;
    if (r.context_len() <= 0)
      ++row.prefills;
    else if (r.q_len == 1)
      ++row.decodes;
    else
      ++row.extends;
  }
}

void fill_verdict(Row& row, const Verdict& v) {
  row.outcome = outcome_name(v.outcome);
  row.reason = v.reason;
  row.rows_checked = v.rows_checked;
  row.rows_total = v.rows_total;
  if (v.rows_surveyed > 0) row.rows_surveyed = v.rows_surveyed;
  row.reference_s = v.reference_seconds;
  row.check = v.check;
  row.declaration = v.declaration;
  const auto fill = [](const ErrorStats& e, double& max_error, double& ratio, double& median,
                       std::string& where) {
    if (e.checked == 0) return;
    max_error = e.max_error;
    ratio = e.max_ratio;
    median = e.median_ratio;
    where = e.request < 0 ? "" : place_of(e);
  };
  fill(v.o, row.o_max_error, row.o_ratio, row.o_median_ratio, row.o_where);
  fill(v.lse, row.lse_max_error, row.lse_ratio, row.lse_median_ratio, row.lse_where);
  if (v.o.checked > 0)
    row.o_ratio_unrounded = v.o.max_unrounded, row.o_median_unrounded = v.o.median_unrounded;
  if (v.rows_checked > 0) {
    row.p_declined = v.p_declined;
    row.r_applied = v.r_applied;
    row.o_mostly = v.o_mostly, row.lse_mostly = v.lse_mostly;
  }
  row.aggregate_ratio = v.aggregate_ratio;
  row.aggregate_where = v.aggregate_where;
  row.class_gate = v.class_gate;
  row.class_note = v.useless ? "useless" : "";
  row.quantization_rms = v.quantization_rms;
  row.quantization_max = v.quantization_max;
  if (v.repeats) row.repeatable = *v.repeats ? "yes" : "no";
  if (v.batch_invariant) row.batch_invariant = *v.batch_invariant ? "yes" : "no";
}

bool run_case(const RunCaseOrder& order, const Backend& backend, const assay_device& device,
              const std::string& calibration, Housekeeping& house, const Say& say) {
  const auto start = Clock::now();
  Row base = row_of_line(order.scenario, order.place);
  base.backend = backend.name();
  base.device = device.name;
  base.device_uuid = device.uuid;
  base.calibration = calibration;
  const auto starting = [&](const char* stage, const std::string& kernel, double allow_s) {
    say(Starting{stage, kernel, allow_s});
  };

  starting("problem", "", 60);
  std::optional<Judge> judge;
  std::optional<Problem> problem;
  Work work;
  bool short_of_memory = false;
  try {
    problem.emplace(make_problem(parse_scenario(order.scenario)));
    fill_batch(base, *problem);
    const bool shared = backend.table()->host_memory != 0;
    if (std::string large = too_large(*problem, shared, available_memory_bytes()); !large.empty())
      throw InputError(std::move(large));
    work = work_of(*problem);
    starting("inputs", "", check_allowance_s(work, *problem, 0));
    judge.emplace(*problem, order.rows_budget);
  } catch (const InputError& e) {
    base.reason = e.what();
  } catch (const InfrastructureError& e) {  // no buffer of the host's of that size
    base.reason = fmt::format("{}: {}", e.what(), memory_text(order.scenario, start));
    short_of_memory = true;
  } catch (const std::bad_alloc&) {
    base.reason = memory_text(order.scenario, start);
    short_of_memory = true;
  }
  if (!judge) {  // the same for every kernel: nothing could be built
    base.outcome = outcome_name(Outcome::kInvalid);
    for (const WantedKernel& wanted : order.kernels) {
      base.kernel = wanted.kernel;
      say_row(say, base, {}, short_of_memory);
    }
    return true;
  }
  const TimedCase c{backend, device, *problem, work, order.limits, order.rule, clock_of(backend, device),
                    say};
  for (const WantedKernel& wanted : order.kernels) {
    starting("check", wanted.kernel, check_allowance_s(work, *problem, order.rows_budget));
    house.before_kernel();
    std::optional<Assumption> assumption;
    if (const assay_kernel* kernel = backend.find(wanted.kernel); kernel != nullptr && order.assumed)
      assumption.emplace(*kernel, order.assumed->contracts, order.assumed->promises);
    run_kernel(c, *judge, wanted, order, base);
    judge->forget();
    // What one kernel did to the device or the process must not become the next one's row.
    if (std::string why; device_lost(backend, &why)) {
      say(DeviceLost{why});
      return false;
    }
    int threads_left = 0;
    if (const std::string why = house.after_kernel(threads_left); !why.empty()) {
      say(Spent{why});
      return false;
    }
    if (threads_left > 0) {
      say(Left{fmt::format("{} threads", threads_left)});
      house.linger(wanted.kernel);
    }
  }
  return true;
}

}  // namespace assay
