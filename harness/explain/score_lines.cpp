// SPDX-License-Identifier: Apache-2.0
// See score_lines.hpp.
#include "harness/explain/score_lines.hpp"

#include <algorithm>

#include "harness/base/random.hpp"
#include "harness/ops/op.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

double cost_of(const Problem& p) {
  double pairs = 0;
  for (const Request& r : p.requests) pairs += double(r.q_len) * r.kv_len;
  return pairs * p.heads_q * (p.head_dim_qk + p.head_dim_v) / 2;
}

// Lines that tell hypotheses apart: several requests of different kinds, several rows and heads, plain
// values.
double informative(const Problem& p) {
  double value = 0;
  int many = 0, single = 0;
  for (const Request& r : p.requests) {
    many += r.q_len > 1 && r.kv_len > 0;
    single += r.q_len == 1 && r.kv_len > 0;
  }
  value += std::min(many, 2) + std::min(single, 2) + (many > 0 && single > 0);
  // Rows that see hardly anything cannot tell one cause from another.
  double seen = 0, rows = 0;
  for (size_t r = 0; r < p.requests.size(); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; i += std::max(1, p.requests[r].q_len / 8)) {
      const KeyRange range = visible_range(p, static_cast<int>(r), i);
      seen += std::max(0, range.end - range.begin);
      ++rows;
    }
  const double mean = rows > 0 ? seen / rows : 0;
  value += (mean > 8) + (mean > 24) + (mean > 60);
  value += p.heads_kv > 1 ? 1 : 0;
  value += p.group() > 1 ? 1 : 0;
  value += p.recipe == InputRecipe::kNormal ? 3 : p.recipe == InputRecipe::kBoundary ? 2 : 0;
  value += p.max_kv_len() > 128 ? 1 : 0;
  value += op_of(p).has_cache && p.page_size >= 8 && p.page_size <= 64 ? 1 : 0;
  return value;
}

}  // namespace

std::vector<ScoreLine> read_lines(const ExplainScoreOptions& options) {
  std::vector<ScoreLine> lines;
  for (const std::string& name : options.suites) {
    Suite suite = Suite::open(name);
    while (const auto c = suite.next()) {
      if (!op_of(c->scenario.op).whole_context) continue;  // explanations are about attention
      ScoreLine line{print(c->scenario), make_problem(c->scenario)};
      line.cost = cost_of(line.problem);
      if (line.cost == 0 && line.problem.total_q() == 0) continue;
      // A relation between cases says nothing more about one of them.
      line.informative =
          informative(line.problem) - (line.text.find(" relate=") != std::string::npos ? 3 : 0);
      if (line.cost <= options.cost_cap) lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::vector<size_t> order_for(const std::vector<ScoreLine>& lines, const assay_fault& fault,
                              const ExplainScoreOptions& options, uint64_t index) {
  std::vector<size_t> order;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Problem& p = lines[i].problem;
    if ((op_of(p).has_cache ? fault.paged : fault.prefill) == nullptr) continue;
    const ProblemView view(p);
    if (fault.reached != nullptr && !fault.reached(view.get())) continue;
    order.push_back(i);
  }
  const CounterRng rng(options.seed, 1000 + index);
  std::vector<double> key(lines.size());
  for (size_t i : order) key[i] = lines[i].informative + 2 * rng.uniform(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key[a] > key[b]; });
  return order;
}

std::optional<ScoreLine> own_line(const assay_fault& fault) {
  if (fault.struct_size < offsetof(assay_fault, line) + sizeof fault.line || fault.line == nullptr) return {};
  const Scenario scenario = parse_scenario(fault.line);
  return ScoreLine{print(scenario), make_problem(scenario)};
}

}  // namespace assay
