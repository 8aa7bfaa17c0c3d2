// SPDX-License-Identifier: Apache-2.0
// See case_stream.hpp.
#include "harness/run/case_stream.hpp"

#include <fmt/ranges.h>

#include "harness/base/counted.hpp"
#include "harness/base/error.hpp"
#include "harness/base/input_errors.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/work.hpp"

namespace assay {
namespace {

bool exceeds(const Scenario& scenario, double largest) {
  if (largest <= 0) return false;
  try {
    return multiply_adds(make_problem(scenario)) > largest;
  } catch (const InputError&) {
    return false;  // it cannot be built: its row says why
  }
}

}  // namespace

CaseStream::CaseStream(const RunOptions& options, Scope scope) : options_(options), scope_(scope) {
  if (options.suites.empty())
    throw InputError(
        "no suite and no scenario line given; try a suite name such as smoke, a *.suite file, or a line "
        "such as 'paged batch=4q1s1k'; `assay describe fields` says what a line may hold");
  if (!options.filter.empty()) filter_.emplace(options.filter, "--filter");
  if (!options.set.empty()) aim_ = ReAim(options.set);
}

Suite CaseStream::open(size_t at) {
  try {
    return Suite::open(options_.suites[at], static_cast<int>(at) + 1);
  } catch (const InputError& first) {
    suite_at_ = at;
    raise_all(first);
  }
}

// What is wrong with the suites behind this one is said with it. Suite::next() says all that is wrong with
// one.
void CaseStream::raise_all(const InputError& first) const {
  Mistakes found;
  found.add(first);
  for (size_t at = suite_at_ + 1; at < options_.suites.size(); ++at) {
    try {
      Suite::open(options_.suites[at], static_cast<int>(at) + 1).look_through();
    } catch (const InputError& error) {
      found.add(error);
    }
  }
  found.raise();
  throw InputError(first);
}

std::optional<RunCase> CaseStream::next() {
  while (options_.limit < 0 || given_ < options_.limit) {
    if (!suite_) {
      if (suite_at_ == options_.suites.size()) return std::nullopt;
      suite_ = open(suite_at_);
    }
    std::optional<SuiteCase> c;
    try {
      c = suite_->next();
    } catch (const InputError& first) {
      raise_all(first);
    }
    if (!c) {
      before_ = counts();
      suite_.reset();
      ++suite_at_;
      continue;
    }
    std::optional<Scenario> aimed = aim_(c->scenario);
    if (!aimed) continue;
    c->scenario = std::move(*aimed);
    if (options_.seed) c->scenario.seed = *options_.seed;
    std::string line = print(c->scenario);
    if (filter_ && !filter_->found_in(line)) {
      ++filtered_;
      continue;
    }
    // Two suites may hold the same line, and many differ in nothing but what was set; a case has one row per
    // kernel, so it runs once.
    if ((!scope_.keep_repeats || aim_.sets()) && !seen_.insert(fingerprint(line)).second) {
      ++repeated_;
      continue;
    }
    if (exceeds(c->scenario, options_.largest)) {
      too_large_ += scope_.all_shards || in_shard(line, options_.shard);
      continue;
    }
    ++given_;
    if (!in_shard(line, options_.shard)) {
      ++elsewhere_;
      if (!scope_.all_shards) continue;
    }
    if (std::string lacking = aim_.lacking(c->scenario); !lacking.empty())
      ++partly_set_[{c->scenario.op, std::move(lacking)}];
    const SourcePlace& p = c->place;
    std::string place = p.line > 0 ? fmt::format("{}:{}", p.file, p.line) : p.file;
    return RunCase{std::move(c->scenario), std::move(line), std::move(place)};
  }
  return std::nullopt;
}

std::vector<std::string> CaseStream::partly_set() const {
  std::vector<std::string> lines;
  for (const auto& [what, count] : partly_set_)
    lines.push_back(fmt::format("no field {} in {} of {}: --set cannot give it", what.second,
                                counted(count, "case"), op_of(what.first).name));
  return lines;
}

std::string CaseStream::why_none() const {
  std::vector<std::string> parts;
  if (options_.limit == 0) parts.push_back("--limit is 0");
  if (aim_.contradicted() > 0)
    parts.push_back(fmt::format("{} contradict --set, first {}", aim_.contradicted(), aim_.first()));
  if (filtered_ > 0) parts.push_back(fmt::format("--filter matches none of {}", filtered_));
  if (too_large_ > 0)
    parts.push_back(
        fmt::format("{} have more than {:g} multiply-adds (--largest)", too_large_, options_.largest));
  if (elsewhere_ > 0) parts.push_back(fmt::format("{} fall into other shards", elsewhere_));
  if (const int64_t excluded = counts().excluded; excluded > 0)
    parts.push_back(fmt::format("{} combinations are excluded", excluded));
  return parts.empty() ? "the suites are empty" : fmt::format("{}", fmt::join(parts, "; "));
}

SuiteCounts CaseStream::counts() const {
  SuiteCounts sum = before_;
  if (suite_) {
    sum.cases += suite_->counts().cases;
    sum.excluded += suite_->counts().excluded;
    sum.lines += suite_->counts().lines;
  }
  return sum;
}

CaseCount count_cases(const RunOptions& options, int64_t most) {
  CaseCount count;
  CaseStream all(options, {.all_shards = true});
  uint64_t print = fingerprint("");
  for (int64_t n = 0; const auto c = all.next(); ++n) {
    if (n == most) {
      count.complete = false;
      break;
    }
    print = fingerprint("\n", fingerprint(c->line, print));
    if (!in_shard(c->line, options.shard)) continue;
    ++count.cases;
    if (c->scenario.op > 0 && c->scenario.op < kOpValues) ++count.by_op[c->scenario.op];
  }
  count.fingerprint = print;
  if (count.cases == 0) count.why_none = all.why_none();
  return count;
}

}  // namespace assay
