// SPDX-License-Identifier: Apache-2.0
// What is tried where no hypothesis explains a case by itself: some keys only, and two mistakes at once.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "harness/explain/rank.hpp"
#include "harness/explain/tester.hpp"

namespace assay {

inline constexpr double kCostWeight = 0.03;  // of a hypothesis' cost, in units of misfit

// What was found of a hypothesis on the first samples.
struct Tried {
  size_t index = 0;
  double probe = 0;  // the best of its forms, with its price
  double total = 0, o = 0, lse = 0, rest = 0;
  int solved = 0;                                            // wrong samples of which hardly anything is left
  bool changes = false;                                      // something
  std::vector<double> each;                                  // misfits of the samples
  double by_rule = std::numeric_limits<double>::infinity();  // as `probe`, but for "in the wrong cells only"
};

// Wrong samples to begin with.
std::vector<size_t> first_wrong(const Tester&, size_t probes, size_t count = 2);

// Of the first hypotheses those that are right about some keys only, as far as that is worth a look;
// `as_good`: also where the hypothesis explains as much in all of them.
Hypotheses narrowed_leaders(const Clues&, Tester&, const Hypotheses&, const std::vector<Tried>&,
                            size_t probes, bool as_good);

// Two mistakes at once: a few first ones that explain something alone, each with every other. The best pair
// on all samples, with what it leaves; nothing where none is worth it.
struct Pair {
  size_t first = 0, second = 0;
  double misfit = 0;
  std::string first_in, second_in;  // "requests with one row"; empty: everywhere
  bool earned = true;               // either of them takes something away
};
// `tried` need not hold them all: where one mistake is in the way, the other alone may seem to help nothing.
std::optional<Pair> best_pair(const Clues&, Tester&, const Hypotheses&, std::vector<Tried> tried,
                              size_t probes, size_t samples);

// The same with numbers that are only found once the first one is in place: those families propose on top of
// the likeliest first ones. What is found joins `all`.
std::optional<Pair> second_on_first(const Clues&, Tester&, const std::vector<Family>&, const Choice&,
                                    Hypotheses& all, const std::vector<Tried>&, size_t probes,
                                    size_t samples);

}  // namespace assay
