// SPDX-License-Identifier: Apache-2.0
// See score.hpp. Each fault is a process of its own, which starts others for the calls; the name and the
// cause of a fault never reach the explainer.
#include "harness/explain/score.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "harness/abi/assay_fault.h"
#include "harness/base/error.hpp"
#include "harness/base/globs.hpp"
#include "harness/base/random.hpp"
#include "harness/device/exported.hpp"
#include "harness/explain/child.hpp"
#include "harness/explain/score_lines.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "harness/ops/op.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr std::string_view kNone = "none";  // of the causes is a fault's
constexpr int kLinesTried = 50;             // judged before a fault counts as not wrong anywhere

std::vector<std::string> true_causes(const assay_fault& fault) {
  std::istringstream words(fault.cause ? fault.cause : "");
  std::vector<std::string> causes{std::istream_iterator<std::string>(words), {}};
  std::erase(causes, kNone);
  return causes;
}

const assay_fault_catalogue* open_catalogue(const Backend& backend) {
  const auto open = exported<assay_fault_catalogue_open_fn>(backend, "assay_fault_catalogue_open");
  const assay_fault_catalogue* catalogue = open ? open(ASSAY_ABI_VERSION) : nullptr;
  if (catalogue == nullptr)
    throw InputError(
        fmt::format("{}: has no catalogue of faults (assay_fault_catalogue_open); accepted is a library such "
                    "as faulty/libassay_faulty.so",
                    backend.path()));
  return catalogue;
}

// What is tuned on one half is measured on the other: which is which follows from the catalogue alone.
int half_of(const assay_fault_catalogue& catalogue, std::string_view name) {
  constexpr uint64_t kSplitSeed = 11;
  const CounterRng rng(kSplitSeed, 0);
  double own = 0;
  std::vector<double> keys;
  for (int32_t i = 0; i < catalogue.fault_count; ++i) {
    keys.push_back(rng.uniform(static_cast<uint64_t>(i)));
    if (name == assay_fault_at(catalogue.faults, i)->name) own = keys.back();
  }
  const auto before = std::count_if(keys.begin(), keys.end(), [&](double key) { return key < own; });
  return before < catalogue.fault_count / 2 ? 1 : 2;
}

// Judges candidate lines in children until one is wrong; its index, or -1.
int64_t find_wrong(const std::vector<ScoreLine>& lines, const std::vector<size_t>& order,
                   const std::string& backend, const assay_fault& fault) {
  // First each line by itself; then, for what shows only later, each behind a call on another problem.
  for (size_t next = 0; next < 2 * std::min<size_t>(order.size(), kLinesTried);) {
    const size_t from = next, lines_tried = std::min<size_t>(order.size(), kLinesTried);
    int64_t found = -1;
    const ChildEnd end = run_in_child(
        [&](const Report& report) {
          omp_set_num_threads(1);
          const Backend loaded = Backend::load(backend);
          for (size_t i = from; i < 2 * lines_tried; ++i) {
            report({{"trying", i}});
            const Problem& p = lines[order[i % lines_tried]].problem;
            Judge judge(p, CaptureOptions{}.rows_budget);
            const assay_kernel* kernel =
                loaded.find((op_of(p).has_cache ? fault.paged : fault.prefill)->name);
            if (kernel == nullptr) continue;
            if (i >= lines_tried) {
              const std::vector<Problem> before = previous_problems(p);
              if (i > from) break;  // a process of its own: the first call is the one that is remembered
              if (!before.empty())
                Judge(before.front(), CaptureOptions{}.rows_budget).judge(loaded, *kernel, loaded.device(0));
            }
            if (judge.judge(loaded, *kernel, loaded.device(0)).outcome != Outcome::kWrong) continue;
            report({{"found", i % lines_tried}});
            return;
          }
        },
        [&](const json& r) {
          if (r.contains("trying")) next = r["trying"];
          if (r.contains("found")) found = r["found"];
        },
        60);
    if (found >= 0) return static_cast<int64_t>(order[found]);
    if (end.signal != 0 || end.timed_out)
      return static_cast<int64_t>(order[next]);  // a crash is a wrong result too
    if (from < lines_tried && next < lines_tried && !end.fine()) {
      ++next;
      continue;
    }
    next = std::max(lines_tried, from < lines_tried ? lines_tried : from + 1);
  }
  return -1;
}

ExplainedFault score_one(const std::vector<ScoreLine>& suite_lines, const assay_fault& fault,
                         const ExplainScoreOptions& options, uint64_t index) {
  ExplainedFault score;
  const std::optional<ScoreLine> own = own_line(fault);
  const std::vector<ScoreLine> named = own ? std::vector<ScoreLine>{*own} : std::vector<ScoreLine>{};
  const std::vector<ScoreLine>& lines = own ? named : suite_lines;
  const std::vector<size_t> order = order_for(lines, fault, options, index);
  if (order.empty()) {
    score.problem = "no line reaches it";
    return score;
  }
  const int64_t at = find_wrong(lines, order, options.backend, fault);
  if (at < 0) {
    score.problem =
        fmt::format("judged right on {} lines that reach it", std::min<size_t>(order.size(), kLinesTried));
    return score;
  }
  const Problem& p = lines[at].problem;
  score.line = lines[at].text;
  CaptureOptions capture_options;
  capture_options.threads = 1;
  const char* kernel = (op_of(p).has_cache ? fault.paged : fault.prefill)->name;
  LinesBeside lines_beside(score.line, options.backend, kernel, capture_options);
  const Evidence evidence = capture(score.line, p, options.backend, kernel, capture_options);
  lines_beside.take_order(evidence);
  omp_set_num_threads(1);
  const auto start = std::chrono::steady_clock::now();
  const Beside beside = std::ref(lines_beside);
  const Explanation x = explain(evidence, {}, beside);
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<std::string> truth = true_causes(fault);
  const auto is_true = [&](const Ranked& r) {
    const auto among = [&](std::string_view c) {
      return std::find(truth.begin(), truth.end(), c) != truth.end();
    };
    return among(r.cause) && (r.also.empty() || among(r.also));
  };
  const std::vector<Ranked>& list = x.ranking.list;
  if (!list.empty()) {
    score.first = list.front().cause, score.how = list.front().text;
    score.misfit = list.front().misfit, score.explained = list.front().explained;
  }
  const auto at_true = std::find_if(list.begin(), list.end(), is_true);
  if (at_true != list.end()) score.rank = static_cast<int>(at_true - list.begin()) + 1;
  score.sure = sure(x.ranking);
  score.right = truth.empty() ? !score.sure : score.sure && score.rank == 1;
  const std::vector<Ranked> best = equally_good(x.ranking);
  score.misled = score.sure && std::none_of(best.begin(), best.end(), is_true);
  const auto as_first = [&](const Ranked& r) { return &r == &list.front() || r.same_as_first; };
  const bool same = std::any_of(list.begin(), list.end(), [&](auto& r) { return is_true(r) && as_first(r); });
  score.right_as_same = score.sure && same && !score.right;
  score.tried_without =
      truth.empty() || index % static_cast<uint64_t>(std::max(1, options.without_every)) == 0;
  if (!score.tried_without) return score;
  const Explanation without = truth.empty() ? x : explain(evidence, truth, beside);
  score.sure_without = sure(without.ranking);
  if (!without.ranking.list.empty()) score.first_without = without.ranking.list.front().cause;
  score.synonym_without = score.sure_without && same && without.ranking.list.front().also.empty() &&
                          std::any_of(list.begin(), list.end(), [&](const Ranked& r) {
                            return as_first(r) && r.cause == score.first_without;
                          });
  return score;
}

bool of_step(const assay_fault& fault) {
  return fault.struct_size >= offsetof(assay_fault, place) + sizeof fault.place && fault.step != nullptr;
}

ExplainedFault score_step(const assay_fault& fault, const ExplainScoreOptions& options) {
  ExplainedFault score;
  const Scenario scenario = parse_scenario(fault.line);
  CaptureOptions capture_options;
  capture_options.threads = 1;
  capture_options.timeout_s = options.timeout_s;
  const StepExplanation x = explain_step(print(scenario), make_problem(scenario), options.backend,
                                         fault.step->name, capture_options, options.program);
  score.seconds = x.seconds, score.place = fault.place;
  if (x.outcome == Outcome::kPassed) {
    score.problem = "judged right on its line";
    return score;
  }
  score.line = x.line, score.said_place = x.where();
  const std::vector<std::string> truth = true_causes(fault);
  const auto is_true = [&](const StepRanked& r) {
    return std::find(truth.begin(), truth.end(), r.cause) != truth.end();
  };
  const bool placed = score.said_place == score.place;
  const auto at = std::find_if(x.causes.begin(), x.causes.end(), is_true);
  if (placed && at != x.causes.end()) score.rank = static_cast<int>(at - x.causes.begin()) + 1;
  score.sure = x.sure();
  score.right = score.sure && score.rank == 1;
  // Equally good ones are told with the first.
  const bool among = placed && at != x.causes.end() && at->explained >= x.causes.front().explained;
  score.misled = score.sure && !among;
  score.right_as_same = score.sure && among && !score.right;
  if (!x.causes.empty()) {
    score.first = x.causes.front().cause, score.how = x.causes.front().how;
    score.explained = x.causes.front().explained;
  } else {
    score.first = "-";
  }
  const auto other = std::find_if_not(x.causes.begin(), x.causes.end(), is_true);
  if (other != x.causes.end())
    score.first_without = other->cause, score.sure_without = other->explained >= x.kSure;
  return score;
}

void from_json_to(const json& j, ExplainedFault& s) {
  s.line = j["line"], s.rank = j["rank"], s.first = j["first"], s.how = j["how"];
  s.misfit = j["misfit"], s.explained = j["explained"], s.seconds = j["seconds"];
  s.sure = j["sure"], s.right = j["right"], s.misled = j["misled"];
  s.right_as_same = j["right_as_same"], s.synonym_without = j["synonym_without"];
  s.tried_without = j["tried_without"], s.sure_without = j["sure_without"],
  s.first_without = j["first_without"];
  s.problem = j["problem"], s.place = j["place"], s.said_place = j["said_place"];
}

}  // namespace

json fault_json(const ExplainedFault& s) {
  return {{"fault", s.name},
          {"cause", s.cause},
          {"line", s.line},
          {"rank", s.rank},
          {"first", s.first},
          {"how", s.how},
          {"misfit", s.misfit},
          {"explained", s.explained},
          {"sure", s.sure},
          {"right", s.right},
          {"misled", s.misled},
          {"right_as_same", s.right_as_same},
          {"tried_without", s.tried_without},
          {"sure_without", s.sure_without},
          {"synonym_without", s.synonym_without},
          {"first_without", s.first_without},
          {"seconds", s.seconds},
          {"problem", s.problem},
          {"place", s.place},
          {"said_place", s.said_place}};
}

ExplainScore score_catalogue(const ExplainScoreOptions& options,
                             const std::function<void(const ExplainedFault&)>& each,
                             const std::atomic<bool>* stop) {
  const Backend backend = Backend::load(options.backend);
  const assay_fault_catalogue* catalogue = open_catalogue(backend);
  const std::vector<ScoreLine> lines = read_lines(options);
  std::vector<const assay_fault*> chosen;
  for (int32_t i = 0; i < catalogue->fault_count; ++i) {
    const assay_fault& f = *assay_fault_at(catalogue->faults, i);
    if (f.equivalent || (!options.filter.empty() && !fits_glob(f.name, options.filter))) continue;
    chosen.push_back(&f);
  }
  if (options.half != 0)
    std::erase_if(chosen, [&](const assay_fault* f) { return half_of(*catalogue, f->name) != options.half; });
  if (chosen.empty()) throw InputError(fmt::format("no fault matches '{}'", options.filter));
  std::vector<const assay_fault*> faults;
  for (size_t i = 0; i < chosen.size(); i += static_cast<size_t>(std::max(1, options.every)))
    faults.push_back(chosen[i]);

  ExplainScore report;
  report.faults.resize(faults.size());
  Journal none;
  Journal& journal = options.journal != nullptr ? *options.journal : none;
  const std::string library = std::filesystem::path(options.backend).stem().string();
  const auto key = [&](size_t i) { return fmt::format("explain {} {}", library, faults[i]->name); };
  std::vector<size_t> unknown;
  for (size_t i = 0; i < faults.size(); ++i) {
    const json* known = journal.find(key(i));
    if (known == nullptr) {
      unknown.push_back(i);
      continue;
    }
    ExplainedFault& score = report.faults[i];
    score.name = faults[i]->name, score.cause = faults[i]->cause ? faults[i]->cause : "";
    from_json_to(*known, score);
  }
  std::mutex mutex;
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t n = next++; n < unknown.size() && !(stop && *stop); n = next++) {
      const size_t i = unknown[n];
      ExplainedFault score;
      score.name = faults[i]->name;
      score.cause = faults[i]->cause ? faults[i]->cause : "";
      try {
        const ChildEnd end = run_in_child(
            [&](const Report& say) {
              say(fault_json(of_step(*faults[i]) ? score_step(*faults[i], options)
                                                 : score_one(lines, *faults[i], options, i)));
            },
            [&](const json& j) { from_json_to(j, score); }, options.timeout_s);
        if (!end.fine()) score.problem = "the explanation " + end.text();
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
        return;
      }
      const std::lock_guard lock(mutex);
      if (stop && *stop) return;  // what a signal ended says nothing
      journal.add(key(i), fault_json(score));
      report.faults[i] = score;
      each(score);
    }
  };
  std::vector<std::thread> threads;
  for (int j = 0; j < std::max(1, options.jobs); ++j) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
  for (const ExplainedFault& f : report.faults) {
    if (f.name.empty()) continue;  // stopped before its turn
    if (f.line.empty()) {
      ++report.not_wrong;
      continue;
    }
    ++report.explained;
    report.known += f.cause != kNone;
    report.places += !f.place.empty();
    report.place_right += !f.place.empty() && f.place == f.said_place;
    report.first += f.rank == 1;
    report.in_three += f.rank >= 1 && f.rank <= 3;
    report.right += f.right;
    report.misled += f.misled;
    report.right_as_same += f.right_as_same;
    report.tried_without += f.tried_without;
    report.unknown_without += f.tried_without && !f.sure_without;
    report.synonym_without += f.synonym_without;
  }
  return report;
}

}  // namespace assay
