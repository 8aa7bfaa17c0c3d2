// SPDX-License-Identifier: Apache-2.0
// See recut.hpp. There are too many ways times mechanisms to keep them all: each is looked at and forgotten.
#include "harness/explain/recut.hpp"

#include <algorithm>

#include "harness/explain/pairs.hpp"
#include "harness/explain/second_line.hpp"

namespace assay {
namespace {

constexpr double kWorth = 0.6;  // share of the misfit of the samples that may be left
constexpr double kOneSide =
    0.2;  // ... of that of O or of the LSE alone: the other may have a cause of its own
constexpr double kLeastSide = 2;  // misfit that such a side has a sample
constexpr size_t kKept = 300;     // hypotheses that go on

}  // namespace

Hypotheses recut(const Clues& clues, Tester& tester, const Choice& choice, size_t probes) {
  const std::vector<size_t> wrong = first_wrong(tester, probes, 3);
  struct Worth {
    double left = 0;
    Hypothesis of;
  };
  std::vector<Worth> found;
  double nothing_o = 0, nothing_lse = 0;
  for (const size_t i : wrong) {
    const Tester::One one = tester.of(clues.predictor.right(), i);
    nothing_o += one.o, nothing_lse += one.lse;
  }
  // One of the samples may be off: a number that lay between two roundings.
  const auto worth_it = [&](const Hypothesis& h, double* left) {
    double before = 0, worst = 0, of_worst = 0, left_o = 0, left_lse = 0;
    bool worthy = true;
    for (const size_t i : wrong) {
      const Tester::One one = tester.of(h.rules, i);
      const double of = tester.by_dims() ? std::min(one.total, one.dims) : one.total;
      left_o += one.o, left_lse += one.lse;
      if (of > kWorth * tester.nothing_at(i) && worst > 0) worthy = false;
      if (of > kWorth * tester.nothing_at(i)) worst = of, of_worst = tester.nothing_at(i);
      before += tester.nothing_at(i), *left += of;
    }
    if (wrong.size() > 2) *left -= worst, before -= of_worst;
    const auto solves = [&](double side, double nothing) {
      return nothing > kLeastSide * static_cast<double>(wrong.size()) && side < kOneSide * nothing;
    };
    return (worthy && *left <= kWorth * before) || solves(left_o, nothing_o) || solves(left_lse, nothing_lse);
  };
  for (const Layout& layout : further_layouts_of(clues.evidence)) {
    Clues in = clues;
    in.one_layout = true;
    in.layouts.clear(), in.tilings.clear();
    if (layout.parts()) in.layouts = {layout};
    if (layout.tile_keys > 1) in.tilings = {layout};
    Hypotheses more;
    for (const Family family : choice.cut) family(in, more);
    // The rest has been tried.
    std::erase_if(more, [&](const Hypothesis& h) { return !h.text.ends_with(layout.words); });
    keep_asked(more, choice);
    for (Hypothesis& h : more) {
      Worth worth;
      if (!worth_it(h, &worth.left)) continue;
      worth.of = std::move(h);
      found.push_back(std::move(worth));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Worth& a, const Worth& b) { return a.left < b.left; });
  if (found.size() > kKept) found.resize(kKept);
  Hypotheses list;
  for (Worth& w : found) list.push_back(std::move(w.of));
  return list;
}

}  // namespace assay
