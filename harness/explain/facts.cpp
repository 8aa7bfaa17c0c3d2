// SPDX-License-Identifier: Apache-2.0
// Causes that show in the comparison of calls: unwritten elements, guards, inputs, crashes, scratch memory,
// earlier calls, results that change from call to call.
#include <algorithm>
#include <cmath>

#include "harness/check/session/before_plan.hpp"
#include "harness/explain/explanation.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/same_number.hpp"
#include "harness/input/poison.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

struct Difference {
  int64_t o = 0, lse = 0;
  double largest = 0;
  bool any() const { return o + lse > 0; }
};

// Elements that hold the poison of the outputs in two calls with different poisons.
struct Unwritten {
  std::vector<char> o, lse;
  int64_t elements = 0, logsums = 0;
  int64_t whole_rows = 0;  // packed rows of which nothing was written
};

Difference compare(const Evidence& e, Call a, Call b, const Unwritten* but = nullptr) {
  Difference d;
  const CallResultCopy &x = e.call(a), &y = e.call(b);
  if (!x.made || !y.made) return d;
  const auto left_out = [](const std::vector<char>& list, size_t i) { return i < list.size() && list[i]; };
  for (size_t i = 0; i < x.o.size(); ++i)
    if (!(but && left_out(but->o, i)) && !same_number(x.o[i], y.o[i]))
      ++d.o, d.largest = std::max(d.largest, std::fabs(x.o[i] - y.o[i]));
  for (size_t i = 0; i < x.lse.size(); ++i)
    if (!(but && left_out(but->lse, i)) && !same_number(x.lse[i], y.lse[i]))
      ++d.lse, d.largest = std::max(d.largest, std::fabs(x.lse[i] - y.lse[i]));
  return d;
}

Unwritten find_unwritten(const Evidence& e) {
  Unwritten u;
  const CallResultCopy &nan = e.call(Call::kFirst), &low = e.call(Call::kLow),
                       &scratch = e.call(Call::kScratch);
  if (!nan.made || !low.made || !scratch.made) return u;
  const double poison_o = decode(e.problem.o_format, unwritten_code(e.problem.o_format, Poison::kLow));
  const double poison_lse = decode(ASSAY_FP32, unwritten_code(ASSAY_FP32, Poison::kLow));
  const double other_lse = decode(ASSAY_FP32, unwritten_code(ASSAY_FP32, Poison::kHigh));
  u.o.resize(nan.o.size());
  u.lse.resize(nan.lse.size());
  for (size_t i = 0; i < nan.o.size(); ++i)
    u.elements += u.o[i] = std::isnan(nan.o[i]) && low.o[i] == poison_o && scratch.o[i] == poison_o;
  for (size_t i = 0; i < nan.lse.size(); ++i)
    u.logsums += u.lse[i] = std::isnan(nan.lse[i]) && low.lse[i] == poison_lse && scratch.lse[i] == other_lse;
  const auto per_row = static_cast<size_t>(e.problem.heads_q) * e.problem.head_dim_v;
  for (size_t row = 0; per_row > 0 && row * per_row < u.o.size(); ++row)
    u.whole_rows +=
        std::all_of(u.o.begin() + static_cast<ptrdiff_t>(row * per_row),
                    u.o.begin() + static_cast<ptrdiff_t>((row + 1) * per_row), [](char c) { return c; });
  return u;
}

int64_t bad_cells(const Evidence& e, Call call) {
  if (!e.call(call).made) return 0;
  int64_t bad = 0;
  for (const RowId& row : e.bounded.value.rows)
    for (int32_t h = 0; h < e.problem.heads_q; ++h) {
      bool fine = true;
      for (int32_t d = -1; d < e.problem.head_dim_v && fine; ++d)
        fine = accepted(e, call, {row.request, row.row, h}, d);
      bad += !fine;
    }
  return bad;
}

class Facts {
 public:
  Facts(const Evidence& e, Explanation& x) : e_(e), x_(x) {}

  void say(std::string text) { x_.facts.push_back(std::move(text)); }
  // `certain`: nothing else needs explaining; else the share of the error it leaves open.
  void cause(std::string_view name, std::string text, bool certain) {
    Ranked r;
    r.cause = name;
    r.text = std::move(text);
    r.fact = true;
    r.misfit = certain ? 0 : std::max(0.05, 0.5 * x_.ranking.nothing);
    r.explained = certain ? 1 : 0.5;
    r.cost = certain ? 0.5 : 1;  // a rule that predicts the same says more
    const auto same = std::find_if(x_.ranking.list.begin(), x_.ranking.list.end(),
                                   [&](const Ranked& k) { return k.cause == name; });
    if (same == x_.ranking.list.end())
      x_.ranking.list.push_back(std::move(r));
    else if (better(r, *same))
      *same = std::move(r);
  }

  void damage() {
    for (int i = 0; i < kCallCount; ++i) {
      const CallResultCopy& c = e_.calls[i];
      if (!c.damage.empty() && !guard_) {
        guard_ = true;
        say(fmt::format("{}: wrote outside its outputs: {}", call_name(static_cast<Call>(i)), c.damage));
        cause("memory.guard_written", c.damage, right_);
      }
      if (!c.changed.empty() && !input_) {
        input_ = true;
        say(fmt::format("{}: changed an input: {}", call_name(static_cast<Call>(i)), c.changed));
        cause("memory.input_written", c.changed, right_);
      }
    }
  }

  void crashes() {
    int crashed = 0, made = 0;
    std::string text;
    for (int i = 0; i < kCallCount; ++i) {
      made += e_.calls[i].made;
      if (!e_.calls[i].crashed) {
        if (!e_.calls[i].failure.empty())
          say(fmt::format("{}: failed: {}", call_name(static_cast<Call>(i)), e_.calls[i].failure));
        continue;
      }
      ++crashed;
      text = e_.calls[i].failure;
      say(fmt::format("{}: the kernel {}", call_name(static_cast<Call>(i)), text));
    }
    if (crashed == 0) return;
    if (made > 0)
      cause(
          "memory.out_of_range",
          fmt::format("{} of {} calls end the process, depending on what unused memory and table tails hold",
                      crashed, crashed + made),
          true);
    else if (text.find("SEGV") != std::string::npos || text.find("BUS") != std::string::npos)
      cause("memory.out_of_range", "every call " + text, true);
  }

  void repetition() {
    const Difference again = compare(e_, Call::kFirst, Call::kAgain),
                     third = compare(e_, Call::kAgain, Call::kThird),
                     two = compare(e_, Call::kFirst, Call::kThird);
    if (!again.any() && !third.any()) return;
    const int64_t bad_first = bad_cells(e_, Call::kFirst), bad_again = bad_cells(e_, Call::kAgain);
    say(fmt::format(
        "equal calls differ: first and second in {} elements of O and {} LSEs, second and third in {} and "
        "{}; wrong cells: first {}, second {}, third {}",
        again.o, again.lse, third.o, third.lse, bad_first, bad_again, bad_cells(e_, Call::kThird)));
    // A function of what was called before settles or returns; a race does neither, and stays small or wild
    // alike.
    const bool settles = again.any() && !third.any();
    const bool alternates = again.any() && !two.any();
    // Every second call wrong: work that a leftover counter skips is a clean piece; a race mixes.
    const bool clean = alternates && !x_.left_out_again.empty();
    const bool state = (settles || clean) && (bad_first > 0) != (bad_again > 0);
    if (clean) say("the wrong call leaves work out: " + x_.left_out_again);
    if (state)
      cause("state.previous_call",
            settles ? "the first call of a process differs from all later ones" : "every second call differs",
            true);
    else
      cause("race.unstable", "three equal calls do not agree", true);
  }

  void scratch(const Unwritten& u) {
    const CallResultCopy &a = e_.call(Call::kFirst), &b = e_.call(Call::kScratch);
    if (!a.made || !b.made || u.o.empty()) return;
    int64_t differ = 0;
    for (size_t i = 0; i < a.o.size(); ++i) differ += !u.o[i] && !same_number(a.o[i], b.o[i]);
    for (size_t i = 0; i < a.lse.size(); ++i) differ += !u.lse[i] && !same_number(a.lse[i], b.lse[i]);
    if (differ == 0) return;
    say(fmt::format("{} results change with what workspace and outputs held before the call", differ));
    const bool merges = e_.declared.splits > 1 || e_.declared.split_keys > 0;
    cause(merges ? "merge.partial_stale" : "state.previous_call",
          merges ? "the merge of splits reads workspace or outputs before they are written"
                 : "workspace or outputs are read before they are written",
          true);
  }

  void earlier_call() {
    const Difference d = compare(e_, Call::kFirst, Call::kAfterOther);
    const CallResultCopy& after = e_.call(Call::kAfterOther);
    if (after.crashed) {
      say("after a call with other lengths the kernel " + after.failure);
      if (e_.call(Call::kFirst).made)
        cause("state.previous_call", "it crashes after another problem only", true);
      return;
    }
    if (!d.any() || compare(e_, Call::kFirst, Call::kAgain).any()) return;
    say(fmt::format(
        "a call with other lengths and another scale before it changes {} elements of O and {} LSEs", d.o,
        d.lse));
    cause("state.previous_call", "a call after another problem differs",
          right_ || bad_cells(e_, Call::kAfterOther) > bad_cells(e_, Call::kFirst));
  }

  void unwritten(const Unwritten& u) {
    if (u.elements + u.logsums == 0) return;
    say(fmt::format("{} elements of O and {} LSEs are never written; {} rows are left out whole", u.elements,
                    u.logsums, u.whole_rows));
    // Is anything else wrong?
    int64_t others = 0, bad = 0;
    for (const RowId& row : e_.bounded.value.rows)
      for (int32_t h = 0; h < e_.problem.heads_q; ++h)
        for (int32_t d = -1; d < e_.problem.head_dim_v; ++d) {
          const Cell c{row.request, row.row, h};
          if (accepted(e_, Call::kFirst, c, d)) continue;
          ++bad;
          const int64_t slot = e_.packed_row(c) * e_.problem.heads_q + h;
          others += d < 0 ? !u.lse[slot] : !u.o[slot * e_.problem.head_dim_v + d];
        }
    const bool certain = others * 2 < bad;
    const bool dropped = work_dropped(u);
    cause("output.unwritten", fmt::format("{} elements of O, {} LSEs", u.elements, u.logsums),
          certain && !dropped);
    if (dropped)
      cause("output.row_dropped", fmt::format("{} rows, the last ones of their requests", u.whole_rows),
            certain);
  }

  // Rows that nobody computed are the ends of requests, or whole requests, with keys to see. Single rows and
  // rows without keys are skipped stores instead.
  bool work_dropped(const Unwritten& u) const {
    const Problem& p = e_.problem;
    const auto row_missing = [&](int64_t packed) {
      const auto first = u.o.begin() + static_cast<ptrdiff_t>(packed * p.heads_q * p.head_dim_v);
      return std::all_of(first, first + static_cast<ptrdiff_t>(int64_t{p.heads_q} * p.head_dim_v),
                         [](char c) { return c != 0; });
    };
    bool several = false, sees = false;
    // The end of the batch counts as well.
    int64_t written = p.total_q();
    while (written > 0 && row_missing(written - 1)) --written;
    if (written + 1 < p.total_q() && p.total_q() - written == u.whole_rows) return true;
    for (size_t r = 0; r < p.requests.size(); ++r) {
      const int32_t n = p.requests[r].q_len;
      int32_t missing = 0, from = n;
      for (int32_t i = 0; i < n; ++i)
        if (row_missing(e_.first_rows[r] + i)) {
          ++missing;
          from = std::min(from, i);
          const KeyRange range = visible_range(p, static_cast<int>(r), i);
          sees = sees || range.begin < range.end;
        }
      if (missing == 0) continue;
      if (missing != n - from) return false;  // not the end of the request
      several = several || missing > 1 || n == 1;
    }
    return several && sees;
  }

  // What nobody wrote differs from call to call whatever is read.
  void unused_memory(const Unwritten& u) {
    const Difference low = compare(e_, Call::kFirst, Call::kLow, &u),
                     high = compare(e_, Call::kFirst, Call::kHigh, &u),
                     tails = compare(e_, Call::kFirst, Call::kTails);
    if (low.any() || high.any())
      say(fmt::format("results change with the contents of unused memory: {} elements of O, {} LSEs{}",
                      std::max(low.o, high.o), std::max(low.lse, high.lse),
                      tails.any() ? "; with the tails of page tables too" : ""));
    if (tails.any() && !compare(e_, Call::kFirst, Call::kAgain).any())
      cause("memory.out_of_range", "results change with table entries that belong to no page", false);
    if (low.any() || high.any())
      cause("memory.unused_slot", "results change with memory that no key occupies", false);
  }

  void set_right(bool right) { right_ = right; }

 private:
  const Evidence& e_;
  Explanation& x_;
  bool right_ = false, guard_ = false, input_ = false;
};

}  // namespace

void add_facts(const Evidence& e, Explanation& x) {
  Facts facts(e, x);
  facts.set_right(x.bad_cells == 0);
  facts.damage();
  facts.crashes();
  facts.repetition();
  const Unwritten u = find_unwritten(e);
  facts.unwritten(u);
  facts.scratch(u);
  facts.earlier_call();
  facts.unused_memory(u);
  if (e.verdict.reason.find(kKeptFromPlan) != std::string::npos && x.bad_cells == 0)
    facts.cause("state.plan", "right where the plan was made over what the run finds", true);
  if (e.verdict.reason.find("relation") != std::string::npos && x.bad_cells == 0)
    facts.cause("batch.dependent",
                "right by itself, but a relation between cases does not hold: " + e.verdict.reason, true);
  std::stable_sort(x.ranking.list.begin(), x.ranking.list.end(), better);
}

}  // namespace assay
