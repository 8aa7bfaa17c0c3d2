// SPDX-License-Identifier: Apache-2.0
// See explain_step.hpp.
#include "harness/explain/stages/explain_step.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/call_once.hpp"
#include "harness/explain/child.hpp"
#include "harness/explain/second_line.hpp"
#include "harness/explain/stages/same_answer.hpp"
#include "harness/explain/stages/same_words.hpp"
#include "harness/explain/stages/step_search.hpp"
#include "harness/explain/stages/watched.hpp"
#include "harness/run/rank_group.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr const char* kUnusedMemory = "unused memory";  // of the judge's reasons
// Searches anew where what is found comes to the same as a cause that is not known, of the minute that a call
// of explain has.
constexpr int kRoundsWithout = 3;
constexpr double kSecondsOfRounds = 15;

// The kernel called, with what was there before and after.
StageRun run_whole(const Backend& backend, const assay_kernel& kernel, StepEnd& end) {
  StageRun run;
  run.kernel = &kernel, run.problem = *end.inputs().view->get(), run.tensors = *end.tensors();
  run.q_len = end.inputs().problem.q_lens(), run.kv_len = end.inputs().problem.kv_lens();
  end.clear();
  copy_operands(backend, run.tensors, run.before);
  const CallResult r = call_once(backend, kernel, &run.problem, end.tensors());
  if (!r.ok()) throw InfrastructureError(fmt::format("{}: {}", kernel.name, r.error));
  copy_operands(backend, run.tensors, run.after);
  return run;
}

// Called once more on what it left: right then, it reads new keys before it writes them.
bool right_on_what_it_left(const Backend& backend, const assay_kernel& kernel, StepEnd& end) {
  return call_once(backend, kernel, end.inputs().view->get(), end.tensors()).ok() && end.look().right;
}

void look_inside(const Backend& backend, const assay_kernel& kernel, const Problem& problem,
                 StepExplanation& x, const Report& report) {
  StepEnd end(backend, kernel, problem);
  x.blame = StepBlame::kUnknown;
  if (StepApart::can(kernel)) {
    StepApart apart(backend, kernel, end.inputs().view->get(), end.tensors());
    end.clear();
    apart.record();
    const StepEnd::Look nothing = end.look();
    for (const StageRun& run : apart.runs()) {
      report({{"at", fmt::format("stage {}, {}", run.place, run.kernel->name)}});
      const StageCase c(backend, run);
      const StageVerdict v = c.judge(c.given());
      x.stages.push_back(stage_text(run, v));
      if (!v.judged || v.right) continue;
      x.blame = StepBlame::kStage;
      explain_stage(c, v, x);
      return;
    }
    report({{"at", "repairs"}});
    if (nothing.right) {
      x.stage_reason = "run by its stages the end is right: calls differ";
      return;
    }
    std::vector<WiringCause> wiring = rank_wiring(apart, end, kernel, nothing);
    for (WiringCause& w : wiring) {
      w.ranked.whole = w.ranked.explained >= 1;
      if (!x.known(w.ranked.cause) && w.ranked.whole) x.taken.push_back(w.ranked);
    }
    std::erase_if(wiring, [&](const WiringCause& w) { return !x.known(w.ranked.cause); });
    if (!wiring.empty() && wiring.front().ranked.explained >= StepExplanation::kSure) {
      x.blame = StepBlame::kWiring;
      x.place = wiring.front().place;
      for (const WiringCause& w : wiring)
        if (w.place == x.place) x.causes.push_back(w.ranked);
      for (const StageRun& run : apart.runs())
        if (run.place == x.place) x.stage_kernel = run.kernel->name;
      sort_causes(x.causes);
      return;
    }
  }
  report({{"at", "the end"}});
  const StageRun whole = run_whole(backend, kernel, end);
  if (!StepApart::can(kernel) && right_on_what_it_left(backend, kernel, end)) {
    const std::string right = "a second call, which finds the new keys in the cache, is right";
    StepRanked late{"out_of_order", right, 1, 0, ""};
    late.whole = true;
    if (x.known(late.cause)) {
      x.blame = StepBlame::kEnd, x.place = "attend", x.stage_kernel = kernel.name;
      x.stages.push_back(right);
      x.causes.push_back(std::move(late));
      return;
    }
    x.taken.push_back(std::move(late));
  }
  // Many things lead to memory that nothing occupies, and alike where it holds no numbers.
  if (x.reason.find(kUnusedMemory) != std::string::npos) {
    StepEnd numbers(backend, kernel, problem, StepEnd::Unused::kNumbers);
    const StageRun there = run_whole(backend, kernel, numbers);
    StepExplanation own = x;
    own.stages.push_back("called with numbers in all memory of the cache that nothing occupies:");
    if (!numbers.look().right &&
        Halves(backend, there, numbers.inputs().problem, numbers.arithmetic()).explain(own, own.stages)) {
      x = std::move(own);
      return;
    }
  }
  Halves(backend, whole, end.inputs().problem, end.arithmetic()).explain(x, x.stages);
}

// A kernel that ends its process: the stage in which it does.
void name_ending_stage(const Problem& problem, const std::string& backend, const std::string& kernel,
                       const CaptureOptions& options, StepExplanation& x) {
  std::string place, stage_kernel, contradiction;
  const ChildEnd end = run_in_child(
      [&](const Report& report) {
        omp_set_num_threads(1);
        const Backend loaded = Backend::load(backend);
        const assay_kernel& step = *loaded.find(kernel);
        char error[512] = "";
        if (!StepApart::can(step) || loaded.table()->use_device(0, error, sizeof error) != ASSAY_OK) return;
        StepEnd step_end(loaded, step, problem);
        StepApart apart(loaded, step, step_end.inputs().view->get(), step_end.tensors());
        step_end.clear();
        apart.record([&](const StageRun& run) {
          StageRun given = run;
          for (int i = 0; i < kOperandCount; ++i) given.after[i] = given.before[i];
          std::string why;
          try {
            const StageCase c(loaded, given);
            Reading r = c.given();
            static_cast<void>(c.problem_of(r));
          } catch (const CheckError& e) {
            why = e.what();
          }
          report({{"place", run.place}, {"kernel", run.kernel->name}, {"contradiction", why}});
        });
        report({{"place", ""}, {"kernel", ""}, {"contradiction", ""}});
      },
      [&](const json& j) {
        place = j["place"], stage_kernel = j["kernel"], contradiction = j["contradiction"];
      },
      options.timeout_s);
  if (place.empty() || end.fine()) return;
  x.blame = contradiction.empty() ? StepBlame::kStage : StepBlame::kWiring;
  x.place = place, x.stage_kernel = stage_kernel;
  x.stage_reason = contradiction.empty() ? end.text() : contradiction;
  x.stages.push_back(
      fmt::format("{}, {}: {}{}", place, stage_kernel, end.text(),
                  contradiction.empty() ? "" : "; it was given what cannot be: " + contradiction));
}

// Of what explains a whole step on one line, what explains it on another one, too, comes first. Where that is
// nothing there is no answer.
// `own_sizes` as same_words().
void look_beside(StepExplanation& x, const StepExplanation& there, bool own_sizes) {
  if (there.outcome != Outcome::kWrong || there.where() != x.where()) return;
  keep_taken(x, there, own_sizes);
  x.beside = true;
  std::set<std::string> held;
  for (StepRanked& r : x.causes)
    for (const StepRanked& t : there.causes) {
      if (t.cause != r.cause || t.explained < StepExplanation::kSure) continue;
      const std::string way = way_of_both(r, t, own_sizes);
      if (!way.empty()) r.how = way, r.whole = r.whole && t.whole, held.insert(r.cause);
    }
  const auto holds = [&](const StepRanked& r) { return held.contains(r.cause); };
  const auto unsure = std::find_if(x.causes.begin(), x.causes.end(),
                                   [](const StepRanked& r) { return r.explained < StepExplanation::kSure; });
  const auto both = std::stable_partition(x.causes.begin(), unsure, holds);
  if (both == x.causes.begin()) {
    for (StepRanked& r : x.causes) r.explained = std::min(r.explained, StepExplanation::kNotSure);
    return;
  }
  for (auto r = both; r != unsure; ++r) r->explained = StepExplanation::kNotSure;
}

}  // namespace

const assay_kernel* kernel_of_step(const Backend& backend, const std::string& kernel, const Report& report) {
  std::string refused;
  try {
    const assay_kernel* found = backend.find(kernel);
    if (found != nullptr && found->op == ASSAY_OP_STEP) return found;
    refused =
        found != nullptr
            ? fmt::format("kernel {} is for another op, and the line is of op step", kernel)
            : fmt::format("backend {} has no kernel {}; assay kernels lists them", backend.name(), kernel);
  } catch (const InputError& e) {  // a stage in the name
    refused = e.what();
  }
  report({{"refused", refused}});
  return nullptr;
}

static StepExplanation explain_line(const std::string& line, const Problem& problem,
                                    const std::string& backend, const std::string& kernel,
                                    const CaptureOptions& options, const std::vector<std::string>& without) {
  const auto start = std::chrono::steady_clock::now();
  StepExplanation x;
  std::string at, refused;
  const ChildEnd end = run_in_child(
      [&](const Report& report) {
        omp_set_num_threads(1);  // repairs are tried in children of this one, which inherit no threads
        const Backend loaded = Backend::load(backend);
        const assay_kernel* found = kernel_of_step(loaded, kernel, report);
        if (found == nullptr) return;
        char error[512] = "";
        if (loaded.table()->use_device(0, error, sizeof error) != ASSAY_OK)
          throw InfrastructureError(fmt::format("backend {}: {}", loaded.name(), error));
        StepExplanation own;
        own.line = line, own.kernel = kernel, own.without = without;
        Judge judge(problem, options.rows_budget);
        const Verdict v = judge.judge(loaded, *found, loaded.device(0));
        own.outcome = v.outcome, own.reason = v.reason + judge.otherwise_declared();
        report(explanation_json(own));
        if (v.outcome == Outcome::kWrong)
          look_inside(loaded, *found, problem, own, report);
        else if (v.outcome != Outcome::kPassed ||
                 !explain_replays(loaded, *found, problem, options, own, report))
          return;
        report(explanation_json(own));
      },
      [&](const json& j) {
        if (j.contains("at"))
          at = j["at"];
        else if (j.contains("refused"))
          refused = j["refused"];
        else
          x = step_explanation(j);
      },
      options.timeout_s);
  if (!refused.empty()) throw InputError(refused);
  if (!end.fine()) {
    if (!end.timed_out && end.signal == 0 && end.exit_code == 0 && at.empty())
      throw InfrastructureError(end.text());
    if (x.kernel.empty()) {
      x.line = line, x.kernel = kernel;
      x.outcome = end.timed_out ? Outcome::kTimedOut : Outcome::kCrashed;
      x.reason = "the kernel " + end.text();
    }
    if (x.outcome == Outcome::kPassed) {  // what was called is right; what follows are replays
      x.outcome = end.timed_out ? Outcome::kTimedOut : Outcome::kCrashed;
      x.reason = "a replay " + end.text(), x.when = kReplayed;
    }
    x.blame = StepBlame::kUnknown;
    x.stage_reason = at.empty() ? end.text() : fmt::format("at {}: {}", at, end.text());
    if (x.when.empty() && (end.signal != 0 || end.timed_out))
      name_ending_stage(problem, backend, kernel, options, x);
  }
  x.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return x;
}

// On all lines that tell something.
static StepExplanation explain_lines(const std::string& line, const Problem& problem,
                                     const std::string& backend, const std::string& kernel,
                                     const CaptureOptions& options, const std::vector<std::string>& without) {
  StepExplanation x = explain_line(line, problem, backend, kernel, options, without);
  if (x.blame != StepBlame::kEnd || !x.when.empty() || !x.sure()) return x;
  const std::string other = second_line(line);
  if (other.empty()) return x;
  try {
    const StepExplanation there =
        explain_line(other, make_problem(parse_scenario(other)), backend, kernel, options, without);
    look_beside(x, there, false);
    x.seconds += there.seconds;
  } catch (const InputError&) {  // no line of this kernel
  }
  // What attention does in a part of the case, or by a number, may be told from it by more rows alone.
  for (const bool many_rows : {true, false})
    for (int step = 0; step < (many_rows ? kManyRowsSteps : 1) && x.sure() && x.place == "attend"; ++step) {
      const std::string third = separating_line(line, step, many_rows);
      if (third.empty()) continue;
      try {
        const StepExplanation there =
            explain_line(third, make_problem(parse_scenario(third)), backend, kernel, options, without);
        x.seconds += there.seconds;
        if (there.outcome != Outcome::kWrong && there.outcome != Outcome::kPassed) continue;
        look_beside(x, there, true);
        return x;
      } catch (const InputError&) {
      }
    }
  return x;
}

StepExplanation explain_step(const std::string& line, const Problem& problem, const std::string& backend,
                             const std::string& kernel, const CaptureOptions& options,
                             const std::string& program, const std::vector<std::string>& taken_away) {
  if (wants_ranks(problem)) return explain_ranks(line, problem, backend, kernel, options, program);
  std::vector<std::string> without = with_other_names(taken_away);
  double seconds = 0;
  for (int round = 0;; ++round) {
    StepExplanation x = explain_lines(line, problem, backend, kernel, options, without);
    x.seconds = seconds += x.seconds, x.without = without;
    join_same(x);
    const std::vector<std::string> go = same_as_taken(x);
    if (go.empty()) return x;
    // Without these, too: what is found then stands for something else, or there is nothing.
    if (round < kRoundsWithout && seconds < kSecondsOfRounds) {
      without.insert(without.end(), go.begin(), go.end());
      continue;
    }
    for (StepRanked& r : x.causes) {
      r.explained = std::min(r.explained, StepExplanation::kNotSure);
      r.same_as_first = false, r.names.clear();
    }
    return x;
  }
}

}  // namespace assay
