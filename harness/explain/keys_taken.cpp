// SPDX-License-Identifier: Apache-2.0
// See keys_taken.hpp.
#include "harness/explain/keys_taken.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/explain/cut.hpp"

namespace assay {
namespace {

Scene scene_of(const Clues& clues, const Cell& cell) {
  const Problem& p = clues.problem();
  const int32_t kv_head = cell.head / p.group();
  KvStore& store = clues.predictor.store(cell.request, kv_head);
  return Scene{p, cell, store, store.keys(), place_of_row(p, cell), kv_head, &clues.predictor};
}

std::vector<Term> terms_of(const Rules& rules, Scene& scene) {
  const Problem& p = scene.problem;
  std::vector<Term> terms;
  for (int32_t j = 0; j < scene.kv_len; ++j)
    if (rules.sees ? rules.sees(scene, j) : visible(p, scene.cell.request, scene.cell.row, j))
      terms.push_back({j, j, j});
  if (rules.edit_terms) rules.edit_terms(scene, terms);
  // A key of no weight is none.
  std::erase_if(terms, [](const Term& t) { return t.weight == 0 || (t.in_sum == 0 && t.in_output == 0); });
  return terms;
}

bool counts_once(const Term& t) {
  return t.weight == 1 && t.in_sum == 1 && t.in_output == 1 && t.k_factor == 1 && t.v_factor == 1 &&
         !t.k_for_v && !t.v_for_k && std::isnan(t.forced) && t.position >= 0;
}

}  // namespace

std::optional<KeysTaken> keys_taken(const Clues& clues, const Rules& rules, const Cell& cell) {
  const Problem& p = clues.problem();
  Scene scene = scene_of(clues, cell);
  KvStore& store = scene.keys;
  KeysTaken keys;
  keys.kv_len = scene.kv_len;
  std::vector<char> taken(scene.kv_len, 0);
  for (const Term& t : terms_of(rules, scene)) {
    if (!counts_once(t) || (!t.zero && (t.k_row != t.v_row || !store.has(t.k_row, t.v_row))))
      return std::nullopt;
    if (t.position >= scene.kv_len) {
      if (t.k_row < scene.kv_len && !t.zero) return std::nullopt;
      keys.behind.push_back(t.position);
      keys.unused = keys.unused || (!t.zero && std::isnan(store.k(t.k_row)[0]));
      continue;
    }
    if (t.zero || t.k_row != t.position || taken[t.position] != 0) return std::nullopt;
    taken[t.position] = 1;
  }
  for (int32_t j = 0; j < scene.kv_len; ++j) {
    const bool right = visible(p, cell.request, cell.row, j);
    if (right && taken[j] != 0) keys.kept.push_back(j);
    if (right && taken[j] == 0) keys.missing.push_back(j);
    if (right || taken[j] == 0) continue;
    keys.added.push_back(j);
    keys.newest_added = std::max(keys.newest_added, place_of_key(scene, j));
  }
  return keys;
}

std::optional<Rules> keys_without_parts(const Clues& clues, const Rules& rules,
                                        const std::vector<Cell>& changed) {
  if (!rules.edit_parts || rules.edit_terms || rules.merge_lse || rules.merge_weight || rules.lse ||
      rules.finish)
    return std::nullopt;
  // The keys of the parts that are gone, of each cell that was asked for; none: something else is done.
  struct Known {
    std::vector<Cell> cells;
    std::vector<std::optional<std::vector<char>>> gone;  // by position
  };
  const auto look = [&clues, rules](const Cell& cell) -> std::optional<std::vector<char>> {
    std::vector<SplitPart> before, after;
    Rules watched = rules;
    watched.edit_parts = [&](const Scene& s, std::vector<SplitPart>& parts) {
      before = parts;
      rules.edit_parts(s, parts);
      after = parts;
    };
    clues.predictor.predict(watched, cell);
    if (before.size() != after.size()) return std::nullopt;
    std::vector<char> part_gone(before.size(), 0);
    for (size_t i = 0; i < before.size(); ++i) {
      part_gone[i] = std::isfinite(before[i].lse) && std::isinf(after[i].lse);
      if (!part_gone[i] && (before[i].lse != after[i].lse || before[i].o != after[i].o)) return std::nullopt;
    }
    const Scene scene = scene_of(clues, cell);
    const PartsOf parts(rules, scene);
    std::vector<char> gone(scene.kv_len, 0);
    for (int32_t j = 0; j < scene.kv_len; ++j) {
      const int32_t part = parts.of(j);
      gone[j] = part >= 0 && part < static_cast<int32_t>(part_gone.size()) && part_gone[part] != 0;
    }
    return gone;
  };
  const auto known = std::make_shared<Known>();
  const auto gone_of = [known, look](const Cell& cell) -> const std::optional<std::vector<char>>& {
    const auto at = std::find(known->cells.begin(), known->cells.end(), cell);
    if (at != known->cells.end()) return known->gone[at - known->cells.begin()];
    known->cells.push_back(cell);
    return known->gone.emplace_back(look(cell));
  };
  for (const Cell& cell : changed)
    if (!gone_of(cell)) return std::nullopt;
  Rules fewer = clues.predictor.right();
  fewer.sees = [gone_of](const Scene& s, int32_t j) {
    const std::optional<std::vector<char>>& gone = gone_of(s.cell);
    return visible(s.problem, s.cell.request, s.cell.row, j) && !(gone && (*gone)[j] != 0);
  };
  return fewer;
}

std::optional<KeysRead> keys_read(const Clues& clues, const Rules& rules, const Cell& cell) {
  Scene scene = scene_of(clues, cell);
  KeysRead keys;
  std::vector<char> taken(scene.kv_len, 0);
  for (const Term& t : terms_of(rules, scene)) {
    const bool own = t.position < scene.kv_len && std::min(t.k_row, t.v_row) >= 0 &&
                     std::max(t.k_row, t.v_row) < scene.kv_len;
    if (!counts_once(t) || t.zero || !own || taken[t.position] != 0) return std::nullopt;
    taken[t.position] = 1;
    if (t.k_row == t.position && t.v_row == t.position) continue;
    keys.at.push_back(t.position), keys.k_from.push_back(t.k_row), keys.v_from.push_back(t.v_row);
  }
  for (int32_t j = 0; j < scene.kv_len; ++j)
    if ((taken[j] != 0) != visible(scene.problem, cell.request, cell.row, j)) return std::nullopt;
  return keys;
}

}  // namespace assay
