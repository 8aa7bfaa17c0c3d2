// SPDX-License-Identifier: Apache-2.0
// The weights of a right kernel on one cell, key by key.
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/explain/predict.hpp"

namespace assay {

Predictor::Weights Predictor::weights(const Cell& cell) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Rules rules;
  rules.arithmetic = declared_;
  rules.arithmetic.tile_keys = 0;
  rules.arithmetic.splits = 1;
  rules.arithmetic.split_keys = 0;
  KvStore& keys = store(cell.request, cell.head / problem_.group());
  const Request& own = problem_.requests[cell.request];
  Scene scene{problem_, cell, keys, own.kv_len, place_of_row(problem_, cell), cell.head / problem_.group()};
  Weights result;
  double top = problem_.sinks ? reader_.sink(cell.head) : -kInf, sum = 0;
  const std::vector<Scored> scored = score_all(rules, scene, cell);
  for (const Scored& s : scored) top = std::max(top, s.x);
  if (problem_.sinks) sum = std::exp(reader_.sink(cell.head) - top);
  for (const Scored& s : scored) {
    result.positions.push_back(s.term.position);
    result.scores.push_back(s.x);
    result.p.push_back(std::exp(s.x - top));
    sum += result.p.back();
  }
  for (double& p : result.p) p /= sum;
  result.lse = top == -kInf ? -kInf : top + std::log(sum);
  return result;
}

}  // namespace assay
