// SPDX-License-Identifier: Apache-2.0
// The cases of a run, one after the other: suites expanded, fields set, seed replaced, filtered, those too
// large left out, limited, cut to the shard. A counting pass over the same stream gives totals for the
// progress line and the fingerprint that says whether two runs are about the same cases.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "harness/run/options.hpp"
#include "harness/run/pattern.hpp"
#include "harness/scenario/re_aim.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {

struct RunCase {
  Scenario scenario;
  std::string line;   // canonical
  std::string place;  // "smoke.suite:12"
};

class CaseStream {
 public:
  struct Scope {
    bool all_shards = false;
    bool keep_repeats = false;  // constant memory; for listing
  };
  // `options` must outlive the stream. InputError for no suites or a bad filter; errors in a suite come from
  // next().
  explicit CaseStream(const RunOptions& options) : CaseStream(options, Scope{}) {}
  CaseStream(const RunOptions& options, Scope);
  std::optional<RunCase> next();
  // After the last case, where there was none: "9 contradict --set, first ...".
  std::string why_none() const;
  int64_t repeated() const { return repeated_; }    // lines that had occurred before: left out
  int64_t too_large() const { return too_large_; }  // of the shard, left out because of options.largest
  const ReAim& aim() const { return aim_; }         // what options.set left out
  // Cases given that have not all the fields of options.set: "2 cases of step have no pad, workers: ...".
  std::vector<std::string> partly_set() const;
  SuiteCounts counts() const;  // over all suites so far

 private:
  Suite open(size_t at);
  [[noreturn]] void raise_all(const InputError& first) const;

  const RunOptions& options_;
  Scope scope_;
  std::optional<Pattern> filter_;
  ReAim aim_;
  size_t suite_at_ = 0;
  std::optional<Suite> suite_;
  SuiteCounts before_;
  int64_t given_ = 0, repeated_ = 0, too_large_ = 0, filtered_ = 0, elsewhere_ = 0;
  std::map<std::pair<int32_t, std::string>, int64_t> partly_set_;  // by op and the fields it lacks
  std::unordered_set<uint64_t> seen_;
};

struct CaseCount {
  int64_t cases = 0;              // of the shard
  bool complete = true;           // false: there are more, counting stopped
  uint64_t fingerprint = 0;       // of the lines of all shards, in order
  int64_t by_op[kOpValues] = {};  // of the shard, by enum assay_op
  std::string why_none;           // CaseStream::why_none() where the shard has no case
};
// Looks at no more than `most` cases: a suite may have billions. The bound is a number, not a time, so
// that the fingerprint is the same on every machine.
inline constexpr int64_t kMostCounted = 200'000;
CaseCount count_cases(const RunOptions&, int64_t most = kMostCounted);

}  // namespace assay
