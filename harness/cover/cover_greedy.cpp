// SPDX-License-Identifier: Apache-2.0
// Constraint checks and the greedy construction: the method that works for any mix of levels and any
// constraints. The others only beat it where the levels are even and nothing is forbidden.
#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/cover/cover_parts.hpp"

namespace assay::cover {

TupleSpace::TupleSpace(std::vector<int> axis_levels, int t) : levels(std::move(axis_levels)), strength(t) {
  sets_of.resize(levels.size());
  Row at(t);
  for (int i = 0; i < t; ++i) at[i] = i;
  while (true) {
    Set set;
    int64_t tuples = 1;
    for (int i = t - 1; i >= 0; --i) {
      set.columns[i] = at[i];
      set.strides[i] = static_cast<int>(tuples);
      tuples *= levels[at[i]];
    }
    set.offset = total;
    set.tuples = static_cast<int>(tuples);
    total += tuples;
    for (int i = 0; i < t; ++i) sets_of[at[i]].push_back(static_cast<int>(sets.size()));
    sets.push_back(set);
    int i = t - 1;
    while (i >= 0 && at[i] == columns() - t + i) --i;
    if (i < 0) return;
    ++at[i];
    for (int j = i + 1; j < t; ++j) at[j] = at[j - 1] + 1;
  }
}

Constraints::Constraints(const std::vector<int>& levels, const std::vector<CoverConstraint>& constraints)
    : levels_(levels), constraints_(constraints), of_axis_(levels.size()), scratch_(levels.size(), -1) {
  for (size_t i = 0; i < constraints_.size(); ++i) {
    int64_t tuples = 1;
    for (const int axis : constraints_[i].axes) {
      ASSAY_CHECK(axis >= 0 && axis < static_cast<int>(levels.size()), "constraint {} names axis {} of {}", i,
                  axis, levels.size());
      auto& list = of_axis_[axis];
      if (list.empty() || list.back() != i) list.push_back(i);
      tuples = std::min<int64_t>(tuples * levels[axis], int64_t{1} << 40);
    }
    // Larger tables would cost more memory than asking again costs time.
    known_.emplace_back(tuples <= int64_t{1} << 22 ? tuples : 0, 0);
  }
}

bool Constraints::holds(size_t i, std::span<const int> row) const {
  const CoverConstraint& constraint = constraints_[i];
  size_t key = 0;
  for (const int axis : constraint.axes) key = key * levels_[axis] + row[axis];
  auto& known = known_[i];
  if (!known.empty() && known[key] != 0) return known[key] == 2;
  for (const int axis : constraint.axes) scratch_[axis] = row[axis];
  const bool allowed = constraint.allowed(scratch_);
  for (const int axis : constraint.axes) scratch_[axis] = -1;
  if (!known.empty()) known[key] = allowed ? 2 : 1;
  return allowed;
}

bool Constraints::allows(std::span<const int> row) const {
  for (size_t i = 0; i < constraints_.size(); ++i)
    if (!holds(i, row)) return false;
  return true;
}

namespace {

bool scope_assigned(const CoverConstraint& constraint, const Row& row) {
  return std::all_of(constraint.axes.begin(), constraint.axes.end(),
                     [&](int axis) { return row[axis] >= 0; });
}

}  // namespace

bool Constraints::value_fits(Row* row, int axis, int value) const {
  (*row)[axis] = value;
  bool fits = true;
  for (const size_t i : of_axis_[axis])
    if (scope_assigned(constraints_[i], *row) && !holds(i, *row)) {
      fits = false;
      break;
    }
  (*row)[axis] = -1;
  return fits;
}

// Backtracking over the open axes, always the one with the fewest fitting values next.
bool Constraints::extend(Row* row, std::vector<int>* open) const {
  if (open->empty()) return true;
  size_t best = 0;
  std::vector<int> best_values;
  for (size_t i = 0; i < open->size(); ++i) {
    std::vector<int> values;
    for (int v = 0; v < levels_[(*open)[i]]; ++v)
      if (value_fits(row, (*open)[i], v)) values.push_back(v);
    if (values.empty()) return false;
    if (i == 0 || values.size() < best_values.size()) {
      best = i;
      best_values = std::move(values);
    }
  }
  const int axis = (*open)[best];
  open->erase(open->begin() + static_cast<std::ptrdiff_t>(best));
  for (const int v : best_values) {
    (*row)[axis] = v;
    if (extend(row, open)) return true;
  }
  (*row)[axis] = -1;
  open->insert(open->begin() + static_cast<std::ptrdiff_t>(best), axis);
  return false;
}

bool Constraints::complete(Row* row) const {
  for (size_t i = 0; i < constraints_.size(); ++i)
    if (scope_assigned(constraints_[i], *row) && !holds(i, *row)) return false;
  std::vector<int> open;
  for (size_t axis = 0; axis < levels_.size(); ++axis)
    if ((*row)[axis] < 0 && touches(static_cast<int>(axis))) open.push_back(static_cast<int>(axis));
  return extend(row, &open);
}

namespace {

class Greedy {
 public:
  Greedy(const TupleSpace& space, const Constraints& constraints, std::vector<uint8_t>* coverable)
      : space_(space),
        constraints_(constraints),
        coverable_(*coverable),
        open_(space.total, 1),
        left_(space.total) {
    coverable_.assign(space.total, 1);
    // Work of one candidate is about sets * strength * levels; a large problem gets fewer of them.
    int64_t most = 1;
    for (const int v : space.levels) most = std::max<int64_t>(most, v);
    int64_t rows = 1;
    for (const auto& set : space.sets) rows = std::max<int64_t>(rows, 2 * set.tuples);
    const int64_t work = static_cast<int64_t>(space.sets.size()) * space.strength * most * rows;
    candidates_ = static_cast<int>(std::clamp<int64_t>(300'000'000 / std::max<int64_t>(work, 1), 1, 40));
  }

  Rows run() {
    Rows out;
    while (left_ > 0) {
      Row best;
      int64_t best_gain = -1;
      for (int i = 0; i < candidates_ && left_ > 0; ++i) {
        Row row;
        if (!candidate(&row)) {
          --i;  // its seed turned out to have no valid row and is gone now
          continue;
        }
        const int64_t gain = new_tuples(row);
        if (gain > best_gain) {
          best_gain = gain;
          best = std::move(row);
        }
      }
      if (left_ == 0) break;
      for (const auto& set : space_.sets) close(space_.index(set, best));
      out.push_back(std::move(best));
    }
    return out;
  }

 private:
  void close(int64_t tuple) {
    left_ -= open_[tuple];
    open_[tuple] = 0;
  }

  int64_t new_tuples(const Row& row) const {
    int64_t n = 0;
    for (const auto& set : space_.sets) n += open_[space_.index(set, row)];
    return n;
  }

  // An open tuple: the first one from a random place on.
  int64_t pick_open() {
    auto at = static_cast<int64_t>(random_.bits() % static_cast<uint64_t>(space_.total));
    while (open_[at] == 0)
      if (++at == space_.total) at = 0;
    return at;
  }

  // A row around an open tuple; false (and the tuple is struck out) when no valid row has it.
  bool candidate(Row* out) {
    const int64_t seed = pick_open();
    const auto set =
        std::prev(std::upper_bound(space_.sets.begin(), space_.sets.end(), seed,
                                   [](int64_t tuple, const auto& s) { return tuple < s.offset; }));
    Row row(space_.columns(), -1);
    for (int i = 0; i < space_.strength; ++i)
      row[set->columns[i]] =
          static_cast<int>((seed - set->offset) / set->strides[i] % space_.levels[set->columns[i]]);
    Row witness = row;  // some valid row that agrees with `row` on its assigned axes
    if (!constraints_.complete(&witness)) {
      coverable_[seed] = 0;
      close(seed);
      return false;
    }
    std::vector<int> order;
    for (int c = 0; c < space_.columns(); ++c)
      if (row[c] < 0) order.push_back(c);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random_.below(static_cast<int>(i))]);
    for (const int c : order) assign_best(c, &row, &witness);
    *out = std::move(row);
    return true;
  }

  void assign_best(int column, Row* row, Row* witness) {
    gains_.assign(space_.levels[column], 0);
    for (const int s : space_.sets_of[column]) {
      const auto& set = space_.sets[s];
      int64_t base = set.offset;
      int stride = 0;
      bool assigned = true;
      for (int i = 0; i < space_.strength; ++i) {
        const int c = set.columns[i];
        if (c == column)
          stride = set.strides[i];
        else if ((*row)[c] >= 0)
          base += int64_t{set.strides[i]} * (*row)[c];
        else
          assigned = false;
      }
      if (!assigned) continue;
      for (size_t v = 0; v < gains_.size(); ++v) gains_[v] += open_[base + stride * static_cast<int64_t>(v)];
    }
    // Values by gain, ties in random order.
    std::vector<std::pair<int64_t, int>> ranked;
    for (size_t v = 0; v < gains_.size(); ++v)
      ranked.emplace_back(-(int64_t{gains_[v]} << 20) + random_.below(1 << 20), static_cast<int>(v));
    std::sort(ranked.begin(), ranked.end());
    for (const auto& [rank, v] : ranked) {
      (*row)[column] = v;
      if (!constraints_.touches(column) || (*witness)[column] == v) return;
      Row other = *row;
      if (constraints_.complete(&other)) {
        *witness = std::move(other);
        return;
      }
    }
    ASSAY_CHECK(false, "column {}: the witness's own value was refused", column);
  }

  const TupleSpace& space_;
  const Constraints& constraints_;
  std::vector<uint8_t>& coverable_;
  std::vector<uint8_t> open_;  // per tuple, 1 = not covered yet
  int64_t left_;
  int candidates_ = 1;
  std::vector<int> gains_;
  Random random_{1};
};

}  // namespace

Rows greedy(const TupleSpace& space, const Constraints& constraints, std::vector<uint8_t>* coverable) {
  return Greedy(space, constraints, coverable).run();
}

}  // namespace assay::cover
