// SPDX-License-Identifier: Apache-2.0
// See joins.hpp. A join weighs either side by how far its maximum lies below the larger one. Of one side or
// both, of O, the row sum or both, in all joins, the first or the last one, that weight may be another.
#include "harness/explain/families/joins.hpp"

#include <cmath>
#include <numbers>

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Parts = std::vector<SplitPart>;

struct Weight {
  std::string_view cause;
  const char* words;
  double (*of)(double down);  // down: the maximum of the side less the larger one
  // Of the output and of the row sum that were joined so far: what it is called of a running maximum.
  const std::string_view* rescales = nullptr;
};
constexpr std::string_view kNotRescaled[] = {"softmax.o_not_rescaled", "softmax.l_not_rescaled"};
constexpr std::string_view kRescaledTwice[] = {"softmax.rescaled_twice", "softmax.rescaled_twice"};
const Weight kWeights[] = {
    {"merge.without_maxima", "not weighted", [](double) { return 1.0; }, kNotRescaled},
    {"merge.without_maxima", "weighted twice", [](double down) { return std::exp(2 * down); },
     kRescaledTwice},
    {"merge.base", "weighted by e^(x log2(e))",
     [](double down) { return std::exp(down * std::numbers::log2e); }},
    {"merge.base", "weighted by 2^x in place of e^x", [](double down) { return std::exp2(down); }},
};

struct Mistake {
  const Weight* weight;
  bool first, second;  // side: what was joined so far, what joins
  bool of_o, of_sum;
  int at;  // 0: in every join, 1: in the first, 2: in the last one
};

struct Sums {
  double maximum = -kInf, sum = 0;
  std::vector<double> o;
};

// Parts of no key are left out before.
void join(Sums& to, const SplitPart& part, const Mistake* mistake) {
  const double sum = std::exp(part.lse - part.maximum);
  if (to.maximum == -kInf) {
    to = {part.maximum, sum, part.o};
    for (double& x : to.o) x *= sum;
    return;
  }
  const double top = std::max(to.maximum, part.maximum);
  const auto weight = [&](double maximum, bool side, bool what) {
    const double down = maximum - top;
    return mistake && side && what ? mistake->weight->of(down) : std::exp(down);
  };
  const bool first = mistake && mistake->first, second = mistake && mistake->second;
  const bool of_o = mistake && mistake->of_o, of_sum = mistake && mistake->of_sum;
  const double old_o = weight(to.maximum, first, of_o), new_o = weight(part.maximum, second, of_o);
  for (size_t d = 0; d < to.o.size(); ++d) to.o[d] = to.o[d] * old_o + part.o[d] * sum * new_o;
  to.sum = to.sum * weight(to.maximum, first, of_sum) + sum * weight(part.maximum, second, of_sum);
  to.maximum = top;
}

// Of each run of so many parts one takes the place of all.
void join_all(Parts& parts, int32_t group, const std::vector<int32_t>& order, const Mistake& mistake) {
  for (size_t from = 0; from < parts.size(); from += group) {
    const size_t n = std::min<size_t>(group, parts.size() - from);
    std::vector<size_t> turn;
    if (order.empty())
      for (size_t i = 0; i < n; ++i) turn.push_back(from + i);
    for (const int32_t i : order)
      if (static_cast<size_t>(i) < n) turn.push_back(from + i);
    std::erase_if(turn, [&](size_t i) { return parts[i].lse == -kInf; });
    if (turn.size() < 2) continue;
    Sums sums;
    for (size_t i = 0; i < turn.size(); ++i) {
      const bool wrong = mistake.at == 0 || (mistake.at == 1 ? i == 1 : i + 1 == turn.size());
      join(sums, parts[turn[i]], wrong ? &mistake : nullptr);
    }
    for (const size_t i : turn) parts[i].lse = -kInf;
    SplitPart& to = parts[turn.front()];
    for (size_t d = 0; d < sums.o.size(); ++d) to.o[d] = sums.o[d] / sums.sum;
    to.maximum = sums.maximum;
    to.lse = sums.maximum + std::log(sums.sum);
  }
}

}  // namespace

void joins_in_turn(Merges& add, const Clues& clues, const Layout& layout) {
  const bool states = layout.cut.states_merge && layout.cut.states > 1;
  const int32_t group = states ? layout.cut.states : 1 << 20;
  std::vector<std::pair<std::string, std::vector<int32_t>>> orders = {{"", {}}};
  if (group == 3)
    orders.push_back({", the second one last", {0, 2, 1}}),
        orders.push_back({", the first one last", {1, 2, 0}});
  if (group == 4) orders.push_back({", the first halves first", {0, 2, 1, 3}});
  const char* sides[] = {"what was joined so far", "what joins", "either side"};
  const char* sums[] = {"output", "row sum", "output and row sum"};
  const char* ats[] = {"", " in the first join", " in the last join"};
  for (const auto& [in, order] : orders)
    for (const Weight& w : kWeights)
      for (int side = 0; side < 3; ++side)
        for (int sum = 0; sum < 3; ++sum)
          for (int at = 0; at < 3; ++at) {
            if (!clues.wants(w.cause)) continue;
            const Mistake m{&w, side != 1, side != 0, sum != 1, sum != 0, at};
            add.parts(w.cause,
                      fmt::format("one joined after the other, the {} of {} {}{}{}", sums[sum], sides[side],
                                  w.words, ats[at], in),
                      0.2 + 0.05 * (at > 0) + 0.05 * !order.empty(),
                      [=](const Scene&, Parts& parts) { join_all(parts, group, order, m); });
            // What was joined so far is what a running maximum rescales.
            if (side == 0 && order.empty() && w.rescales) {
              if (sum != 1) add.also_called(w.rescales[0]);
              if (sum != 0) add.also_called(w.rescales[1]);
            }
          }
}

}  // namespace assay
