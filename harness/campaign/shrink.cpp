// SPDX-License-Identifier: Apache-2.0
// Greedy: proposals in the order of what they save, from the start again whenever one is taken, until none
// is.
#include "harness/campaign/shrink.hpp"

#include <set>
#include <vector>

#include "harness/campaign/draw_line.hpp"
#include "harness/scenario/fields.hpp"

namespace assay::campaign {
namespace {

// The same line without one of its fields; whole lists (relate, strides) go at once.
bool without(const Scenario& s, const Field& field, Scenario& out) {
  if (field.ops == 0 || field.name == "op" || field.name == "batch" || field.name == "h" ||
      field.name == "d" || field.name == "seed" || (field.ops & op_bit(s.op)) == 0 || field.is_default(s))
    return false;
  const std::string text = print(s);
  const std::string word = " " + std::string(field.name) + "=";
  const size_t from = text.find(word);
  if (from == std::string::npos) return false;
  const size_t end = text.find(' ', from + 1);
  const std::string rest = text.substr(0, from) + (end == std::string::npos ? "" : text.substr(end));
  try {
    out = parse_scenario(rest);
  } catch (const InputError&) {
    return false;  // the other fields need it
  }
  return true;
}

std::vector<Scenario> smaller_ones(const Scenario& s) {
  std::vector<Scenario> all;
  const auto offer = [&](auto change) {
    Scenario smaller = s;
    change(smaller);
    if (!(smaller == s) && broken_rule(smaller) == nullptr) all.push_back(std::move(smaller));
  };
  if (s.batch.groups.size() > 1)
    for (size_t g = 0; g < s.batch.groups.size(); ++g)
      offer([&](Scenario& x) { x.batch.groups = {s.batch.groups[g]}; });
  offer([](Scenario& x) { halve(x.batch); });
  for (size_t g = 0; g < s.batch.groups.size(); ++g) {
    offer([&](Scenario& x) { x.batch.groups[g].count = 1; });
    offer([&](Scenario& x) { x.batch.groups[g].q_len = std::min(1, x.batch.groups[g].q_len); });
    offer([&](Scenario& x) { x.batch.groups[g].shared = 0; });
  }
  offer([](Scenario& x) { x.heads_q = x.heads_q / x.heads_kv, x.heads_kv = 1; });
  offer([](Scenario& x) { x.heads_q = x.heads_kv; });
  offer([](Scenario& x) { x.head_dim_qk = x.head_dim_v = std::min({64, x.head_dim_qk, x.head_dim_v}); });
  for (const Field& field : fields())
    if (Scenario shorter; without(s, field, shorter)) all.push_back(std::move(shorter));
  return all;
}

}  // namespace

Scenario shrink(const Scenario& first, int tries, const std::function<bool(const Scenario&)>& still) {
  Scenario best = first;
  std::set<std::string> asked;
  for (bool taken = true; taken && tries > 0;) {
    taken = false;
    for (Scenario& smaller : smaller_ones(best)) {
      if (tries == 0) break;
      if (!asked.insert(print(smaller)).second) continue;
      --tries;
      if (!still(smaller)) continue;
      best = std::move(smaller);
      taken = true;
      break;
    }
  }
  return best;
}

}  // namespace assay::campaign
