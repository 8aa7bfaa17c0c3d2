// SPDX-License-Identifier: Apache-2.0
// See bounds_elementwise.hpp. The matrix form does the same with hashes (bounds_alike.cpp).
#include <bit>
#include <map>

#include "reference/bounds/bounds_alike.hpp"
#include "reference/bounds/bounds_elementwise.hpp"
#include "reference/bounds/bounds_finish.hpp"

namespace assay::elementwise {

void count_alike(Keys& keys) {
  std::map<uint64_t, int> groups;
  const auto score_of = [](const Key& k) { return (std::bit_cast<uint64_t>(k.x) + 0x80000) >> 20; };
  for (const Key& k : keys) ++groups[score_of(k)];
  for (Key& k : keys) k.alike = groups[score_of(k)];
}

bool structured(const Keys& keys, bool coarse) {
  if (coarse) {
    double alike = 0, whole = 0;
    for (const Key& k : keys) alike += k.p * k.alike, whole += k.p;
    return alike > kMostAlike * whole;
  }
  std::vector<double> scores, weights;
  for (const Key& k : keys) scores.push_back(k.x), weights.push_back(k.p);
  return repeated_share(scores, weights) > kRepeatedShare;
}

}  // namespace assay::elementwise
