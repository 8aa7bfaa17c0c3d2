// SPDX-License-Identifier: Apache-2.0
// See lines.hpp.
#include "harness/mutants/lines.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

// Streams of the visiting order and of replaced seeds; apart from those of harness/base/random.hpp.
constexpr uint64_t kStreamVisit = 1001, kStreamSeed = 1002;
// Below this many multiply-adds a case costs its overhead, whatever its size.
constexpr double kOverheadCost = 1e5;
// Every byte of a cache is copied, poisoned and compared a few times for each kernel: of a large one that is
// what a case costs.
constexpr double kBytesOfOne = 8, kSmallCache = 1 << 20;

double cost_of(const Problem& p) {
  double bytes = 0;
  for (const Operand operand : {Operand::kK, Operand::kV}) {
    const TensorLayout t = operand_layout(p, operand);
    if (t.rank > 0) bytes += static_cast<double>(t.allocation) * format_bytes(t.format);
  }
  return multiply_adds(p) + std::max(0.0, bytes - kSmallCache) / kBytesOfOne;
}

}  // namespace

LineSet load_lines(const std::vector<std::string>& suites, double cost_cap, ReAim aim) {
  LineSet set;
  set.cap = cost_cap;
  std::unordered_set<std::string> seen;
  for (const std::string& name : suites) {
    Suite suite = Suite::open(name);
    while (auto found = suite.next()) {
      if (!op_of(found->scenario.op).whole_context) continue;  // the catalogue holds attention kernels
      const std::optional<Scenario> aimed = aim(found->scenario);
      if (!aimed) continue;
      Line line{*aimed, print(*aimed), 0};
      if (!seen.insert(line.text).second) continue;
      line.cost = cost_of(make_problem(line.scenario));
      if (line.cost > cost_cap * kDearest)
        ++set.left_out;
      else
        set.lines.push_back(std::move(line));
    }
  }
  const auto dear = std::stable_partition(set.lines.begin(), set.lines.end(),
                                          [&](const Line& l) { return l.cost <= cost_cap; });
  set.cheap = static_cast<size_t>(dear - set.lines.begin());
  std::stable_sort(dear, set.lines.end(), [](const Line& a, const Line& b) { return a.cost < b.cost; });
  if (set.cheap == 0)
    throw InputError(
        fmt::format("no line of {} is left below the cost cap of {:g} multiply-adds; raise --cost",
                    fmt::join(suites, ", "), cost_cap));
  return set;
}

Scenario at_trial(const Line& line, int trial) {
  Scenario s = line.scenario;
  // 31 bits: a seed is printed in every message, so it should be short.
  if (trial > 0) s.seed = CounterRng(s.seed, kStreamSeed).bits(static_cast<uint64_t>(trial)) >> 33;
  return s;
}

std::vector<int> visiting_order(const LineSet& set, int trial) {
  const CounterRng rng(static_cast<uint64_t>(trial), kStreamVisit);
  std::vector<double> when(set.cheap);
  for (size_t i = 0; i < when.size(); ++i)
    when[i] = -std::log(1 - rng.uniform(i)) * std::sqrt(std::max(set.lines[i].cost, kOverheadCost));
  std::vector<int> order(set.lines.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(set.cheap),
                   [&](int a, int b) { return when[a] < when[b]; });
  return order;
}

}  // namespace assay
