// SPDX-License-Identifier: Apache-2.0
// See judging.hpp.
#include "harness/campaign/judging.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/campaign/near_line.hpp"
#include "harness/campaign/shrink.hpp"
#include "harness/ops/problem_view.hpp"

namespace assay::campaign {
namespace {

constexpr uint64_t kStreamSuspects = uint64_t{1} << 40;  // beyond those of the lines
constexpr uint64_t kStreamNear = uint64_t{1} << 41;
constexpr int kShrinkingTries = 60;
// Of the near lines: beside a recorded one, not at a corner of a kernel; and at a corner, of other kernels
// too.
constexpr double kBesideRecorded = 0.5, kOthersAtCorners = 0.2;

// Reasons are counted, so what differs from case to case is left out: everything from the first figure on.
std::string kind_of(const std::string& reason) {
  const size_t figure = reason.find_first_of("0123456789");
  std::string kind = reason.substr(0, std::min<size_t>(figure, 90));
  while (!kind.empty() && (kind.back() == ' ' || kind.back() == '(')) kind.pop_back();
  return kind;
}

class LineJudge {
 public:
  LineJudge(double rows_budget, const Say& say) : rows_budget_(rows_budget), say_(say) {}

  void judge(uint64_t number, const Scenario& scenario, const Problem& problem,
             const std::vector<Suspect>& suspects, int from) const {
    const std::string text = print(scenario);
    std::optional<Judge> judge;
    try {
      judge.emplace(problem, rows_budget_);
    } catch (const InputError& e) {
      say_(Unbuilt{kind_of(e.what())});
      say_(LineDone{number});
      return;
    }
    for (int i = from; i < static_cast<int>(suspects.size()); ++i) {
      const Suspect& s = suspects[static_cast<size_t>(i)];
      const Judging about{number, i, text, s.kernel->name, *s.library};
      say_(about);
      const Verdict v = judge->judge(*s.backend, *s.kernel, *s.device);
      const bool passed = v.outcome == Outcome::kPassed;
      const auto known = [&](double ratio) { return passed && std::isfinite(ratio) ? ratio : 0; };
      say_(Judged{s.kernel->name, std::string(outcome_name(v.outcome)), v.check,
                  passed ? "" : kind_of(v.reason), passed && v.useless, known(v.o.max_ratio),
                  known(v.o.max_unrounded)});
      if (is_alarm(v)) alarm(scenario, s, v, about);
    }
    say_(LineDone{number});
  }

 private:
  void alarm(const Scenario& scenario, const Suspect& s, const Verdict& first, const Judging& about) const {
    Verdict last = first;
    const auto still = [&](const Scenario& smaller) {
      say_(about);  // a sign of life
      try {
        Judge judge(make_problem(smaller), rows_budget_);
        const Verdict v = judge.judge(*s.backend, *s.kernel, *s.device);
        if (v.outcome != first.outcome || v.check != first.check) return false;
        last = v;
        return true;
      } catch (const InputError&) {
        return false;
      }
    };
    const Scenario least = shrink(scenario, kShrinkingTries, still);
    say_(Alarm{print(least), about.text, s.kernel->name, *s.library, std::string(outcome_name(last.outcome)),
               last.check, last.reason});
  }

  double rows_budget_;
  const Say& say_;
};

struct Near {
  Line line;
  std::vector<Suspect> suspects;
};

std::optional<Near> draw_near(Draws& d, const Suspects& suspects, const DrawOptions& options) {
  Near near;
  bool others = true;
  if (!options.near.empty() && d.chance(kBesideRecorded)) {
    const Recorded& one = d.one_of(std::span(options.near));
    std::optional<Line> line = neighbour(d, parse_scenario(one.line), options.largest);
    if (!line) return std::nullopt;
    near.line = std::move(*line);
    near.suspects = suspects.named(one.kernel, near.line.problem);
  } else {
    const Suspect one = suspects.any(d);
    const auto declares = [&](const Problem& p) {
      assay_arithmetic a = assay_default_arithmetic();
      call_arithmetic(*one.backend, *one.kernel, ProblemView(p).get(), a);
      return a;
    };
    std::optional<Line> line = corner_line(d, op_of(one.kernel->op), declares, options.largest);
    if (!line) return std::nullopt;
    near.line = std::move(*line);
    near.suspects = {one};
    others = d.chance(kOthersAtCorners);
  }
  if (!others) return near;
  for (const Suspect& s : suspects.of_line(d, near.line.problem))
    if (std::none_of(near.suspects.begin(), near.suspects.end(),
                     [&](const Suspect& x) { return x.kernel == s.kernel; }))
      near.suspects.push_back(s);
  return near;
}

}  // namespace

bool is_alarm(const Verdict& v) {
  return v.outcome == Outcome::kWrong || v.outcome == Outcome::kCrashed || v.outcome == Outcome::kTimedOut ||
         (v.outcome == Outcome::kUntrusted && v.check == "bounds");
}

void judge_lines(Suspects& suspects, const DrawOptions& options, uint64_t first, uint64_t end, int suspect,
                 const Say& say) {
  suspects.open_backends();
  const LineJudge judge(options.rows_budget, say);
  for (uint64_t number = first; number < end; ++number) {
    if (Draws d(options.seed, kStreamNear + number); d.chance(options.near_share))
      if (const auto near = draw_near(d, suspects, options)) {
        judge.judge(number, near->line.scenario, near->line.problem, near->suspects,
                    number == first ? suspect : 0);
        continue;
      }
    const Line line = draw_line(options.seed, number, options.largest, options.corner);
    Draws draws(options.seed, kStreamSuspects + number);
    judge.judge(number, line.scenario, line.problem, suspects.of_line(draws, line.problem),
                number == first ? suspect : 0);
  }
}

void judge_recorded(Suspects& suspects, const std::vector<Recorded>& all, double rows_budget, uint64_t first,
                    uint64_t end, int suspect, const Say& say) {
  suspects.open_backends();
  const LineJudge judge(rows_budget, say);
  for (uint64_t number = first; number < end; ++number) {
    const Recorded& one = all[number];
    const Scenario scenario = parse_scenario(one.line);
    const Problem problem = make_problem(scenario);
    const std::vector<Suspect> named = suspects.named(one.kernel, problem);
    if (named.empty())
      throw InputError(fmt::format("{}: '{}': no kernel {} of its op is in the libraries of this campaign",
                                   one.place, one.line, one.kernel));
    judge.judge(number, scenario, problem, named, number == first ? suspect : 0);
  }
}

}  // namespace assay::campaign
