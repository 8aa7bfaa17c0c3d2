// SPDX-License-Identifier: Apache-2.0
// Runs a kernel on the problems of each relation and says what their results must satisfy. Equal bits need no
// bounds; bits that differ are judged against the bounds of their own problem, and against each other.
#include "harness/check/relations/relations.hpp"

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/relations/relations_compare.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

struct Context {
  const Backend& backend;
  const assay_kernel& kernel;
  const assay_device& device;
  const assay_arithmetic& arithmetic;
  const Problem& problem;
  std::vector<RowId> rows;  // of the whole problem, judged where bits differ
};

uint32_t promise_for(uint32_t relation) {
  if (relation == kRelatePages || relation == kRelateStrides) return ASSAY_PROMISE_REPEATABLE;
  if (relation == kRelateOrder || relation == kRelateAlone) return ASSAY_PROMISE_BATCH_INVARIANT;
  return 0;
}

// Bounds of one run: the reason it breaks them, or empty.
std::string judged(const Context& c, RelationRun& run) {
  run.bounded(c.backend, c.kernel, c.arithmetic, c.rows);
  return run.judge();
}

std::string disagreement(const Agreement& found, RelationResult& result) {
  result.max_ratio = std::max(result.max_ratio, found.ratio);
  return found.ratio > 1 ? "two results of one answer are too far apart: " + found.where : std::string();
}

// One call against the result of the whole problem.
std::string compare_with(const Context& c, RelationRun& whole, RelationRun& run, RelationResult& result) {
  const std::string differs = difference(c.problem, whole, run, &result.rows);
  if (differs.empty()) return {};
  result.same_bits = false;
  if ((promises_of(c.kernel) & promise_for(result.relation)) != 0)
    return fmt::format("{} promised, but {}",
                       promise_for(result.relation) == ASSAY_PROMISE_BATCH_INVARIANT ? "batch invariance is"
                                                                                     : "equal bits are",
                       differs);
  if (std::string reason = judged(c, run); !reason.empty()) return reason;
  whole.bounded(c.backend, c.kernel, c.arithmetic, c.rows);
  return disagreement(agreement(c.problem, c.rows, whole, run), result);
}

// Every call of a case has run. The reason the relation does not hold, or empty.
std::string compare(const Context& c, RelationRun& whole, std::vector<RelationRun>& runs,
                    RelationResult& result) {
  if (result.relation == kRelateSplit) {
    result.same_bits = false;
    result.rows = static_cast<int64_t>(c.rows.size());
    whole.bounded(c.backend, c.kernel, c.arithmetic, c.rows);
    for (size_t i = 0; i < runs.size(); ++i)
      if (std::string reason = judged(c, runs[i]); !reason.empty())
        return fmt::format("the {} of the context: {}", i == 0 ? "front" : "back", reason);
    return disagreement(merged_agreement(c.problem, c.rows, whole, runs[0], runs[1]), result);
  }
  if (result.relation == kRelateSink) {
    result.same_bits = difference(c.problem, runs[0], runs[1], &result.rows).empty();
    const char* names[] = {"sinks of no weight", "no sinks"};
    for (size_t i = 0; i < runs.size(); ++i)
      if (std::string reason = judged(c, runs[i]); !reason.empty())
        return fmt::format("with {}: {}", names[i], reason);
    return disagreement(sink_agreement(c.problem, c.rows, runs[0], runs[1]), result);
  }
  for (size_t i = 0; i < runs.size(); ++i)
    if (std::string reason = compare_with(c, whole, runs[i], result); !reason.empty()) {
      if (result.relation == kRelateAlone)
        return fmt::format("request {} alone: {}", runs[i].origin({0, 0}).request, reason);
      if (result.relation == kRelateChunked)
        return fmt::format("call {} of {}: {}", i + 1, runs.size(), reason);
      return reason;
    }
  return {};
}

}  // namespace

std::optional<bool> RelationReport::batch_invariant() const {
  std::optional<bool> invariant;
  for (const RelationResult& r : results)
    if (r.checked && (r.relation == kRelateOrder || r.relation == kRelateAlone))
      invariant = invariant.value_or(true) && r.same_bits;
  return invariant;
}

std::string check_relations(const Backend& backend, const assay_kernel& kernel, const assay_device& device,
                            const Problem& problem, const assay_arithmetic& arithmetic, double row_key_budget,
                            RelationReport* report) {
  report->results.clear();
  if (problem.relations == 0) return {};
  const InputValues values(problem);
  DerivedCall itself{problem, {}};
  for (int r = 0; r < static_cast<int>(problem.requests.size()); ++r)
    itself.from.requests.push_back({r, 0, 0});
  RelationRun whole(values, itself);
  if (std::string reason = whole.run(backend, kernel, row_key_budget); !reason.empty())
    return one_line("in one more run: " + reason);
  const Context context{backend,    kernel,  device,
                        arithmetic, problem, select_rows(problem, row_key_budget).rows};

  for (const DerivedCase& derived : derive_relations(problem)) {
    RelationResult& result = report->results.emplace_back();
    result.relation = derived.relation;
    result.note = derived.nothing;
    if (derived.relation == kRelateSplit && (contracts_of(kernel) & ASSAY_CONTRACT_NO_LSE) != 0)
      result.note = "two parts of a context are merged by their LSE, and the kernel gives none";
    if (!result.note.empty()) continue;
    const std::string_view name = name_of(relation_names(), static_cast<int32_t>(derived.relation));
    std::vector<RelationRun> runs;
    runs.reserve(derived.calls.size());
    for (const DerivedCall& call : derived.calls) {
      runs.emplace_back(values, call);
      result.note = runs.back().refusal(kernel, device);
      if (!result.note.empty()) break;
      const std::string reason = runs.back().run(backend, kernel, row_key_budget);
      if (result.note = runs.back().refused(); !result.note.empty()) break;
      if (!reason.empty())
        return one_line(
            fmt::format("relate={}: call {} of {}: {}", name, runs.size(), derived.calls.size(), reason));
      ++result.calls;
    }
    if (!result.note.empty()) continue;
    result.checked = true;
    if (std::string reason = compare(context, whole, runs, result); !reason.empty())
      return one_line(fmt::format("relate={}: {}", name, reason));
  }
  return {};
}

}  // namespace assay
