// SPDX-License-Identifier: Apache-2.0
// See everywhere.hpp. Up to 150 wrong and as many right cells, spread over the case.
#include "harness/explain/everywhere.hpp"

#include <algorithm>
#include <optional>

#include "harness/explain/tester.hpp"

namespace assay {
namespace {

constexpr size_t kEverywhere = 150;      // wrong cells, and right ones, that what is said is looked at in
constexpr size_t kFormsEverywhere = 6;   // of a cause
constexpr double kToldEverywhere = 0.1;  // less that it explains there than in the samples, or it holds

bool better_form(const Offered& a, const Offered& b) { return better(a.ranked, b.ranked); }

}  // namespace

void look_everywhere(const Everywhere& of_case, std::map<std::string_view, Offered>& best,
                     std::map<std::string_view, std::vector<Offered>>& forms_of, Ranking& ranking) {
  const Clues& clues = of_case.clues;
  const Call call = ranking.samples.front().call;
  std::vector<Sample> cells;
  std::vector<char> cells_bad;
  for (const char wanted : {char{1}, char{0}}) {
    std::vector<Cell> of;
    for (const Judged& j : of_case.judged)
      if (j.bad == (wanted != 0)) of.push_back(j.cell);
    const size_t step = of.size() / kEverywhere + 1;
    for (size_t i = 0; i < of.size(); i += step) cells.push_back({of[i], call}), cells_bad.push_back(wanted);
  }
  if (cells.size() <= ranking.samples.size() || ranking.list.empty()) return;
  std::optional<Tester> everywhere;
  const double most = ranking.list.front().misfit + kSameMisfit;
  // What is left of the wrong cells, and what right ones lose.
  const auto explained_everywhere = [&](const Offered& o) {
    double left = 0, nothing = 0;
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool in = o.form.scope >= 0 ? of_case.scopes[o.form.scope].holds(clues.problem(), cells[i].cell)
                      : o.form.in == &of_case.in_bad ? cells_bad[i] != 0
                                                     : true;
      const double was = everywhere->nothing_at(i);
      double is = was;
      if (in) {
        const Tester::One one = everywhere->of(of_case.all[o.index].rules, i);
        is = o.form.dims ? one.dims : one.total;
      }
      left += cells_bad[i] != 0 ? is : std::max(0.0, is - was);
      if (cells_bad[i] != 0) nothing += was;
    }
    return nothing > 0 ? 1 - left / nothing : 1;
  };
  for (Ranked& r : ranking.list) {
    if (r.misfit > most || r.explained < kSure || !r.in_part || of_case.all[best[r.cause].index].by_cell)
      continue;
    if (!everywhere)
      everywhere.emplace(clues, of_case.low, cells, cells_bad,
                         right_dims(clues.evidence, call, of_case.judged));
    // Another form of the same cause may be the one that holds.
    std::vector<Offered>& forms_here = forms_of[r.cause];
    std::stable_sort(forms_here.begin(), forms_here.end(), better_form);
    double of_first = 0;
    bool holds = false;
    for (size_t n = 0; n < forms_here.size() && n < kFormsEverywhere && !holds; ++n) {
      const Offered& o = forms_here[n];
      if (o.ranked.misfit > r.misfit + kSameMisfit) continue;
      const double explained = explained_everywhere(o);
      if (n == 0) of_first = explained;
      holds = explained >= o.ranked.explained - kToldEverywhere;
      if (holds && n > 0) {
        const bool same = r.same_as_first;
        r = o.ranked, r.same_as_first = same, best[r.cause] = o;
      }
    }
    if (holds) continue;
    r.misfit = std::max(r.misfit, (1 - of_first) * ranking.nothing), r.explained = of_first;
    r.same_as_first = false;
  }
  std::stable_sort(ranking.list.begin(), ranking.list.end(), better);
  for (size_t i = 0; i < ranking.list.size(); ++i)
    if (ranking.list[i].misfit > ranking.list.front().misfit + kSameMisfit)
      ranking.list[i].same_as_first = false;
  if (!ranking.list.empty()) ranking.list.front().same_as_first = true;
}

}  // namespace assay
