// SPDX-License-Identifier: Apache-2.0
// Tools that families share.
#include "harness/explain/hypothesis.hpp"

#include <array>
#include <map>
#include <set>

#include "harness/explain/misfit.hpp"

namespace assay {
namespace {

constexpr auto kPicks = std::to_array<Pick>({
    {"first", [](int32_t) { return 0; }},
    {"second", [](int32_t n) { return n > 1 ? 1 : 0; }},
    {"middle", [](int32_t n) { return n / 2; }},
    {"last", [](int32_t n) { return n - 1; }},
});

constexpr size_t kTrialCells = 3;
constexpr double kWorthwhile = 0.75;  // share of a trial cell's misfit that must go

struct Best {
  const Candidate* candidate = nullptr;
  double misfit = 0;
};

}  // namespace

std::span<const Pick> picks() { return kPicks; }

double misfit_at(const Clues& clues, const Sample& sample, const Rules& rules) {
  return misfit_of(clues.evidence, sample, clues.predictor.predict(rules, sample.cell)).total();
}

Hypothesis propose(const Clues& clues, std::string_view cause, std::string text, double cost) {
  return {cause, std::move(text), clues.predictor.right(), cost};
}

void propose_edit(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
                  Edit edit) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  h.rules.edit_terms = std::move(edit);
  out.push_back(std::move(h));
}

int32_t own_row(Scene& s, int32_t position) {
  if (position < s.kv_len) return position;
  int64_t block = -1, slot = 0;
  if (!s.keys.place(s.keys.request(), position, &block, &slot)) block = -1;
  return s.keys.extra(block, slot);
}

void propose_per_cell(const Clues& clues, std::string_view cause, std::string_view what, double cost,
                      const std::function<std::vector<Candidate>(const Cell&)>& candidates, Hypotheses& out) {
  using Key = std::tuple<int32_t, int32_t, int32_t>;
  std::map<Key, Edit> chosen;
  std::vector<std::string> texts;
  std::set<std::string> different;
  size_t seen = 0, helped = 0;
  for (const Sample& sample : clues.bad) {
    if (sample.call != clues.bad.front().call || sample.call == Call::kLow) continue;
    const std::vector<Candidate> list = candidates(sample.cell);
    Rules rules = clues.predictor.right();
    const double nothing = misfit_at(clues, sample, rules);
    Best best{nullptr, nothing};
    for (const Candidate& c : list) {
      rules.edit_terms = c.edit;
      const double misfit = misfit_at(clues, sample, rules);
      if (misfit < best.misfit) best = {&c, misfit};
    }
    ++seen;
    if (best.candidate != nullptr) {
      chosen[{sample.cell.request, sample.cell.row, sample.cell.head}] = best.candidate->edit;
      different.insert(best.candidate->text);
      helped += best.misfit < (1 - kWorthwhile) * nothing;
      if (texts.size() < 3)
        texts.push_back(fmt::format("{} in request {} row {} head {}", best.candidate->text,
                                    sample.cell.request, sample.cell.row, sample.cell.head));
    }
    if (seen == kTrialCells && helped < 2) return;
  }
  if (helped == 0) return;
  std::string text(what);
  for (size_t i = 0; i < texts.size(); ++i) text += (i ? "; " : ": ") + texts[i];
  Hypothesis h = propose(clues, cause, text, cost);
  h.free = static_cast<int32_t>(different.size());
  h.by_cell = true;
  h.rules.edit_terms = [chosen](Scene& scene, std::vector<Term>& terms) {
    const auto at = chosen.find({scene.cell.request, scene.cell.row, scene.cell.head});
    if (at != chosen.end()) at->second(scene, terms);
  };
  out.push_back(std::move(h));
}

}  // namespace assay
