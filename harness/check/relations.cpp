// SPDX-License-Identifier: Apache-2.0
// Comparing results of one kernel on problems with one answer. Rows are matched through where their values
// come from. Equal bits need no bounds; bits that differ are judged against the bounds of their own problem,
// and against each other. The merge of a split context is done here, in double.
#include "harness/check/relations.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/check/relations_run.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats.hpp"

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

std::string place(RowId id, int32_t head, int32_t dim) {
  std::string text = fmt::format("request {} row {} head {}", id.request, id.row, head);
  if (dim >= 0) text += fmt::format(" dim {}", dim);
  return text;
}

bool same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// The first element of row `of` (of the whole problem) that differs between two runs; empty when none does.
std::string row_difference(const Problem& p, const RelationRun& a, RowId in_a, const RelationRun& b,
                           RowId in_b, RowId of) {
  for (int32_t head = 0; head < p.heads_q; ++head) {
    for (int32_t dim = 0; dim < p.head_dim_v; ++dim)
      if (const double x = a.o(in_a, head, dim), y = b.o(in_b, head, dim); !same(x, y))
        return fmt::format("O at {} is {:.9g} and {:.9g}", place(of, head, dim), x, y);
    if (const double x = a.lse(in_a, head), y = b.lse(in_b, head); !same(x, y))
      return fmt::format("LSE at {} is {:.9g} and {:.9g}", place(of, head, -1), x, y);
  }
  return {};
}

// All rows of `b` that `a` also has. Gives the first difference.
std::string difference(const Problem& p, const RelationRun& a, const RelationRun& b, int64_t* rows) {
  std::string first;
  for (int32_t r = 0; r < static_cast<int32_t>(b.problem().requests.size()); ++r)
    for (int32_t i = 0; i < b.problem().requests[r].q_len; ++i) {
      const RowId of = b.origin({r, i});
      const auto in_a = a.row_of(of);
      if (!in_a) continue;
      ++*rows;
      if (first.empty()) first = row_difference(p, a, *in_a, b, {r, i}, of);
    }
  return first;
}

// Largest |difference| over the slack of both, for the bounded rows that two runs share.
struct Agreement {
  double ratio = 0;
  std::string where;
  void add(double x, double y, double slack, RowId of, int32_t head, int32_t dim) {
    if (same(x, y)) return;
    double r = std::fabs(x - y) / slack;
    if (std::isnan(r) || x == y) r = x == y ? 0 : std::numeric_limits<double>::infinity();
    if (r <= ratio) return;
    ratio = r;
    where = fmt::format("{} at {} is {:.9g} and {:.9g}, the bounds allow {:.3g}", dim < 0 ? "LSE" : "O",
                        place(of, head, dim), x, y, slack);
  }
};

Agreement agreement(const Context& c, const RelationRun& a, const RelationRun& b) {
  Agreement worst;
  for (const RowId of : c.rows) {
    const auto in_a = a.row_of(of), in_b = b.row_of(of);
    if (!in_a || !in_b) continue;
    for (int32_t head = 0; head < c.problem.heads_q; ++head) {
      for (int32_t dim = 0; dim < c.problem.head_dim_v; ++dim)
        worst.add(a.o(*in_a, head, dim), b.o(*in_b, head, dim),
                  a.o_slack(*in_a, head, dim) + b.o_slack(*in_b, head, dim), of, head, dim);
      // A row without keys has the sink's LSE, or -inf without one.
      const double x = a.lse(*in_a, head), y = b.lse(*in_b, head);
      if (x <= kNoSink && y <= kNoSink) continue;
      worst.add(x, y, a.lse_slack(*in_a, head) + b.lse_slack(*in_b, head), of, head, -1);
    }
  }
  return worst;
}

// Two parts merged by their LSE against the whole. To first order a part's error enters O by its weight w,
// and an error e of the difference of the LSEs by w1 w2 |o1 - o2| e; exp(e) - 1 covers the rest.
Agreement merged_agreement(const Context& c, const RelationRun& whole, const RelationRun& front,
                           const RelationRun& back) {
  Agreement worst;
  for (const RowId of : c.rows) {
    const auto w = whole.row_of(of), f = front.row_of(of), b = back.row_of(of);
    if (!w || !f || !b) continue;
    for (int32_t head = 0; head < c.problem.heads_q; ++head) {
      const double lf = front.lse(*f, head), lb = back.lse(*b, head);
      const double top = std::max(lf, lb);
      const bool nothing = std::isinf(top) && top < 0;
      const double ef = nothing ? 0 : std::exp(lf - top), eb = nothing ? 0 : std::exp(lb - top);
      const double wf = nothing ? 0 : ef / (ef + eb), wb = nothing ? 0 : eb / (ef + eb);
      const double lse = nothing ? top : top + std::log(ef + eb);
      const double sf = front.lse_slack(*f, head), sb = back.lse_slack(*b, head);
      worst.add(whole.lse(*w, head), lse, whole.lse_slack(*w, head) + std::max(sf, sb) + 1e-12, of, head, -1);
      for (int32_t dim = 0; dim < c.problem.head_dim_v; ++dim) {
        const double of_front = front.o(*f, head, dim), of_back = back.o(*b, head, dim);
        const double slack = whole.o_slack(*w, head, dim) + wf * front.o_slack(*f, head, dim) +
                             wb * back.o_slack(*b, head, dim) +
                             wf * wb * std::fabs(of_front - of_back) * std::expm1(sf + sb);
        worst.add(whole.o(*w, head, dim), wf * of_front + wb * of_back, slack + 1e-300, of, head, dim);
      }
    }
  }
  return worst;
}

uint32_t promise_for(uint32_t relation) {
  if (relation == kRelatePages || relation == kRelateStrides) return ASSAY_PROMISE_REPEATABLE;
  if (relation == kRelateOrder || relation == kRelateAlone) return ASSAY_PROMISE_BATCH_INVARIANT;
  return 0;
}

// Bounds of one run: the reason it breaks them, or empty.
std::string judged(const Context& c, RelationRun& run) {
  run.bounded(c.kernel, c.arithmetic, c.rows);
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
  if ((c.kernel.promises & promise_for(result.relation)) != 0)
    return fmt::format("{} promised, but {}",
                       promise_for(result.relation) == ASSAY_PROMISE_BATCH_INVARIANT ? "batch invariance is"
                                                                                     : "equal bits are",
                       differs);
  if (std::string reason = judged(c, run); !reason.empty()) return reason;
  whole.bounded(c.kernel, c.arithmetic, c.rows);
  return disagreement(agreement(c, whole, run), result);
}

// Every call of a case has run. The reason the relation does not hold, or empty.
std::string compare(const Context& c, RelationRun& whole, std::vector<RelationRun>& runs,
                    RelationResult& result) {
  if (result.relation == kRelateSplit) {
    result.same_bits = false;
    result.rows = static_cast<int64_t>(c.rows.size());
    whole.bounded(c.kernel, c.arithmetic, c.rows);
    for (size_t i = 0; i < runs.size(); ++i)
      if (std::string reason = judged(c, runs[i]); !reason.empty())
        return fmt::format("the {} of the context: {}", i == 0 ? "front" : "back", reason);
    return disagreement(merged_agreement(c, whole, runs[0], runs[1]), result);
  }
  if (result.relation == kRelateSink) {
    result.same_bits = difference(c.problem, runs[0], runs[1], &result.rows).empty();
    const char* names[] = {"sinks of no weight", "no sinks"};
    for (size_t i = 0; i < runs.size(); ++i)
      if (std::string reason = judged(c, runs[i]); !reason.empty())
        return fmt::format("with {}: {}", names[i], reason);
    return disagreement(agreement(c, runs[0], runs[1]), result);
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
  if (std::string reason = whole.run(backend, kernel); !reason.empty())
    return one_line("in one more run: " + reason);
  const Context context{backend,    kernel,  device,
                        arithmetic, problem, select_rows(problem, row_key_budget).rows};

  for (const DerivedCase& derived : derive_relations(problem)) {
    RelationResult& result = report->results.emplace_back();
    result.relation = derived.relation;
    result.note = derived.nothing;
    if (derived.calls.empty()) continue;
    const std::string_view name = name_of(relation_names(), static_cast<int32_t>(derived.relation));
    std::vector<RelationRun> runs;
    runs.reserve(derived.calls.size());
    for (const DerivedCall& call : derived.calls) {
      runs.emplace_back(values, call);
      result.note = runs.back().refusal(kernel, device);
      if (!result.note.empty()) break;
      if (std::string reason = runs.back().run(backend, kernel); !reason.empty())
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
