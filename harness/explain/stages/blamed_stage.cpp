// SPDX-License-Identifier: Apache-2.0
// Why a stage left what it left. See step_search.hpp.
#include <algorithm>
#include <cstring>

#include "harness/explain/causes.hpp"
#include "harness/explain/child.hpp"
#include "harness/explain/explanation.hpp"
#include "harness/explain/stages/step_search.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr double kSecondsOfFamilies = 45;  // of the minute that a call of explain has
constexpr size_t kMostCauses = 40, kMostEntries = 6;
constexpr double kHalf = 0.5;
constexpr size_t kFewNumberless = 2;

// Rows of O that were left as they lay there.
void unwritten_rows(const StageCase& c, const StageVerdict& v, std::vector<StepRanked>& causes) {
  const assay_tensor& o = c.given().tensors.o;
  if (!c.attends() || o.data == nullptr) return;
  const auto width = static_cast<size_t>(format_bytes(o.format));
  int64_t bad = 0, left = 0;
  const StageRun& run = c.run();
  const Bytes &before = run.before[static_cast<int>(Operand::kO)],
              &after = run.after[static_cast<int>(Operand::kO)];
  const int64_t origin = static_cast<const std::byte*>(run.tensors.o.data) - before.address;
  for (size_t row = 0; row < v.bad_rows.size() && static_cast<int64_t>(row) < o.shape[0]; ++row) {
    if (v.bad_rows[row] == 0) continue;
    ++bad;
    bool same = true;
    for (int64_t h = 0; h < o.shape[1] && same; ++h)
      for (int64_t d = 0; d < o.shape[2] && same; ++d) {
        const auto at = static_cast<size_t>(
            origin + (static_cast<int64_t>(row) * o.stride[0] + h * o.stride[1] + d * o.stride[2]) *
                         static_cast<int64_t>(width));
        same = std::memcmp(before.copy.data() + at, after.copy.data() + at, width) == 0;
      }
    left += same;
  }
  if (left == 0) return;
  // All of them: nothing plainer can be said.
  StepRanked r{run.replayed ? "captured_extent" : "row_missing",
               fmt::format("{} of {} wrong rows are not written", left, bad),
               (left == bad ? 1 : 0.99) * static_cast<double>(left) / static_cast<double>(bad), 0, ""};
  r.whole = left == bad;
  if (!run.replayed) r.names.emplace_back("output.unwritten");
  causes.insert(left == bad ? causes.begin() : causes.end(), std::move(r));
}

// All that is wrong lies behind the last request.
void rows_beyond(const StageCase& c, const StageVerdict& v, std::vector<StepRanked>& causes) {
  if (!c.attends()) return;
  int64_t live = 0;
  for (int32_t r = 0; r < c.given().problem.requests; ++r) live += c.given().rows_of(r);
  const auto first = std::find_if(v.bad_rows.begin(), v.bad_rows.end(), [](uint8_t bad) { return bad != 0; });
  // Of a replay a list that was kept says why, and stands before it.
  if (first != v.bad_rows.end() && first - v.bad_rows.begin() >= live)
    causes
        .insert(c.run().replayed ? causes.end() : causes.begin(),
                {"rows_beyond", "rows of padding, behind the last request", 1, 0, ""})
        ->whole = true;
}

// A write that changed what is not its rows.
void beside_rows(const StageCase& c, const StageVerdict& v, std::vector<StepRanked>& causes) {
  if (c.kernel().op == ASSAY_OP_CACHE_WRITE && v.uncounted &&
      v.reason.find("leave alone") != std::string::npos)
    causes.push_back({"beside_rows", v.reason, 0.95, 0, ""}), causes.back().whole = true;
}

// Causes that are not known go; those that explain everything are kept beside the others: what comes to the
// same is no answer either.
void take_unknown(StepExplanation& x) {
  std::erase_if(x.causes, [&](const StepRanked& r) {
    if (x.known(r.cause)) return false;
    if (r.whole && r.explained >= StepExplanation::kSure) x.taken.push_back(r);
    return true;
  });
}

// A write that left all of K, or of V, as it lay there.
void unwritten_side(const StageCase& c, std::vector<StepRanked>& causes) {
  if (c.kernel().op != ASSAY_OP_CACHE_WRITE) return;
  const auto same = [&](Operand o) {
    const Bytes &before = c.run().before[static_cast<int>(o)], &after = c.run().after[static_cast<int>(o)];
    return !before.copy.empty() && before.copy == after.copy;
  };
  const bool k = same(Operand::kK), v = same(Operand::kV);
  if (k != v && !c.run().before[static_cast<int>(Operand::kV)].copy.empty())
    causes.push_back({"v_unwritten", k ? "K lies as before" : "V lies as before", 0.98, 0, ""});
}

}  // namespace

void sort_causes(std::vector<StepRanked>& list) {
  std::stable_sort(list.begin(), list.end(), [](const StepRanked& a, const StepRanked& b) {
    return a.explained != b.explained ? a.explained > b.explained : a.spoilt < b.spoilt;
  });
  // Of one cause the best way.
  std::vector<StepRanked> kept;
  for (const StepRanked& r : list) {
    const auto same =
        std::find_if(kept.begin(), kept.end(), [&](const StepRanked& k) { return k.cause == r.cause; });
    if (same == kept.end())
      kept.push_back(r);
    else if (r.explained >= StepExplanation::kSure)
      same->whole = same->whole || r.whole, same->ways.insert(same->ways.end(), r.ways.begin(), r.ways.end()),
      same->ways.push_back(r.how);
  }
  if (kept.size() > kMostCauses) kept.resize(kMostCauses);
  list = std::move(kept);
}

void explain_stage(const StageCase& c, const StageVerdict& wrong, StepExplanation& x,
                   const std::vector<Misreading>& further) {
  x.place = c.place(), x.stage_kernel = c.kernel().name, x.stage_reason = wrong.reason;
  std::vector<StepRanked> known = std::move(x.causes);
  x.causes = rank_misreadings(c, wrong, further);
  const std::vector<StageCase::Entry> entries = c.wrong_entries();
  for (size_t i = 0; i < entries.size() && i < kMostEntries; ++i) {
    const StageCase::Entry& e = entries[i];
    x.entries.push_back(fmt::format("{}{}[{}]: {} was written, {} is right", operand_name(e.operand),
                                    e.row < 0 ? "" : fmt::format("[{}]", e.row), e.column, e.got, e.wanted));
  }
  if (entries.size() > kMostEntries)
    x.entries.push_back(fmt::format("... {} entries are wrong", entries.size()));
  const auto take = [&](const std::vector<StepRanked>& more) {
    x.causes.insert(x.causes.end(), more.begin(), more.end());
  };
  take(list_patterns(entries, c.given()));
  take(scale_patterns(c));
  take(write_patterns(c));
  take(known);
  unwritten_rows(c, wrong, x.causes);
  beside_rows(c, wrong, x.causes);
  unwritten_side(c, x.causes);
  rows_beyond(c, wrong, x.causes);
  for (const std::string& name : write_names(c))
    for (StepRanked& r : x.causes)
      if (r.whole && r.cause != name) r.names.push_back(name);
  take_unknown(x);
  sort_causes(x.causes);
  // Whatever reads memory without numbers makes NaN: of several that do no one is the cause.
  const auto numberless = [](const StepRanked& r) {
    return r.numberless && r.explained >= StepExplanation::kSure;
  };
  if (c.attends() && !c.run().replayed &&
      static_cast<size_t>(std::count_if(x.causes.begin(), x.causes.end(), numberless)) > kFewNumberless) {
    for (StepRanked& r : x.causes)
      if (numberless(r)) r.explained = StepExplanation::kNotSure;
    sort_causes(x.causes);
  }
  if (!c.attends() || x.sure()) return;
  // What attention can do wrong by itself. Its order is kept, which is that of misfit and of what is assumed:
  // nearly all of them explain as much. One answer where it is sure, with those that are as good.
  run_in_child(
      [&](const Report& report) {
        const Ranking ranking = explain(c.evidence(x.line), x.without).ranking;
        std::vector<Ranked> good = sure(ranking) ? equally_good(ranking) : std::vector<Ranked>{};
        if (ranking.finite < kHalf && good.size() > kFewNumberless) good.clear();
        double most = good.empty() ? StepExplanation::kNotSure
                                   : std::max(StepExplanation::kSure, good.front().explained);
        for (const Ranked& r : ranking.list) {
          const bool one =
              std::any_of(good.begin(), good.end(), [&](const Ranked& g) { return g.cause == r.cause; });
          if (!one) most = std::min({most, StepExplanation::kNotSure, r.explained});
          std::vector<std::string> ways, names(r.names.begin(), r.names.end());
          for (const auto& [cause, text] : ranking.alike)
            if (cause == r.cause) ways.push_back(text);
          // Whether an LSE that nobody asked for holds the sink is not seen.
          const bool no_lse = c.given().tensors.lse.data == nullptr;
          const std::string_view cause =
              no_lse && r.cause == "sinks.not_in_output" ? std::string_view("sinks.ignored") : r.cause;
          report({{"cause", cause},
                  {"how", r.text},
                  {"explained", most},
                  {"meaning", meaning_of(cause)},
                  {"ways", ways},
                  {"names", names},
                  {"whole", one && r.misfit <= kLegalMisfit}});
        }
      },
      [&](const json& r) {
        x.causes.push_back({r["cause"], r["how"], r["explained"], 0, r["meaning"], r["ways"], false,
                            r["whole"], r["names"]});
      },
      kSecondsOfFamilies);
  take_unknown(x);
  sort_causes(x.causes);
}

std::string stage_text(const StageRun& run, const StageVerdict& v) {
  return fmt::format("{}, {}: {}", run.place, run.kernel->name,
                     !v.judged ? "not judged: " + v.reason
                     : v.right ? "right on what it was given"
                               : v.reason);
}

}  // namespace assay
