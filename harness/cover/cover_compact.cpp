// SPDX-License-Identifier: Apache-2.0
// Randomised post-optimisation of a covering array. Reading the rows in a random order, a cell is needed
// when some wanted tuple through it occurs there first; all other cells are free. A row without needed
// cells goes. The row with the fewest needed tuples is read last, and what it alone covers is moved into
// free cells of other rows; the cells still free are refilled at random, and so on.
#include <algorithm>

#include "harness/cover/cover_parts.hpp"

namespace assay::cover {

int64_t uncovered(const TupleSpace& space, const std::vector<uint8_t>& wanted, const Rows& rows) {
  std::vector<uint8_t> seen(space.total, 0);
  for (const Row& row : rows)
    for (const auto& set : space.sets) seen[space.index(set, row)] = 1;
  int64_t missing = 0;
  for (int64_t i = 0; i < space.total; ++i) missing += wanted[i] && !seen[i];
  return missing;
}

namespace {

class Compactor {
 public:
  Compactor(const TupleSpace& space, const Constraints& constraints, const std::vector<uint8_t>& wanted,
            Rows rows)
      : space_(space), constraints_(constraints), wanted_(wanted), rows_(std::move(rows)) {}

  Rows run(int64_t effort) {
    fill_outside_levels();
    const int64_t visits = static_cast<int64_t>(space_.sets.size()) * space_.strength;
    size_t last = 0;  // row to be emptied
    while (effort > 0 && rows_.size() > 1) {
      effort -= visits * static_cast<int64_t>(rows_.size());
      shuffle(last);
      mark();
      const size_t before = rows_.size();
      drop_unneeded();
      if (rows_.size() > 1) {
        refill_free_cells();
        empty_last();
      }
      last = rows_.size() == before ? choose_target() : 0;
    }
    return rows_;
  }

 private:
  bool is_free(size_t row, int column) const { return !needed_[row][column]; }

  // Arrays made for more symbols than an axis has: their surplus symbols may become anything.
  void fill_outside_levels() {
    for (Row& row : rows_)
      for (int c = 0; c < space_.columns(); ++c)
        if (row[c] < 0 || row[c] >= space_.levels[c]) row[c] = random_.below(space_.levels[c]);
  }

  void shuffle(size_t last) {
    std::swap(rows_[last], rows_.back());
    for (size_t i = rows_.size() - 1; i > 1; --i)
      std::swap(rows_[i - 1], rows_[random_.below(static_cast<int>(i))]);
  }

  void mark() {
    seen_.assign(space_.total, 0);
    needed_.assign(rows_.size(), std::vector<uint8_t>(space_.columns(), 0));
    load_.assign(rows_.size(), 0);
    for (size_t r = 0; r < rows_.size(); ++r)
      for (const auto& set : space_.sets) {
        const int64_t i = space_.index(set, rows_[r]);
        if (seen_[i] || !wanted_[i]) continue;
        seen_[i] = 1;
        ++load_[r];
        for (int c = 0; c < space_.strength; ++c) needed_[r][set.columns[c]] = 1;
      }
  }

  void drop_unneeded() {
    size_t kept = 0;
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (load_[r] == 0) continue;
      if (kept != r) {
        rows_[kept] = std::move(rows_[r]);
        needed_[kept] = std::move(needed_[r]);
        load_[kept] = load_[r];
      }
      ++kept;
    }
    rows_.resize(kept);
    needed_.resize(kept);
    load_.resize(kept);
  }

  // Random values into free cells (not of the last row): they cover by chance what others then need not.
  void refill_free_cells() {
    for (size_t r = 0; r + 1 < rows_.size(); ++r) {
      for (int c = 0; c < space_.columns(); ++c) {
        if (!is_free(r, c)) continue;
        const int before = rows_[r][c];
        rows_[r][c] = random_.below(space_.levels[c]);
        if (constraints_.touches(c) && !constraints_.allows(rows_[r])) rows_[r][c] = before;
      }
    }
  }

  // Moves the tuples that only the last row covers elsewhere, as far as free cells allow.
  void empty_last() {
    const size_t last = rows_.size() - 1;
    const Row target = rows_[last];
    for (const auto& set : space_.sets) {
      const int64_t tuple = space_.index(set, target);
      if (!wanted_[tuple] || !needed_by_last(set)) continue;
      const auto offset = static_cast<size_t>(random_.below(static_cast<int>(last)));
      for (size_t i = 0; i < last; ++i)
        if (place(set, target, (offset + i) % last)) break;
    }
  }

  bool needed_by_last(const TupleSpace::Set& set) const {
    const auto& needed = needed_.back();
    for (int i = 0; i < space_.strength; ++i)
      if (!needed[set.columns[i]]) return false;
    return true;
  }

  bool place(const TupleSpace::Set& set, const Row& target, size_t r) {
    Row& row = rows_[r];
    for (int i = 0; i < space_.strength; ++i) {
      const int c = set.columns[i];
      if (row[c] != target[c] && !is_free(r, c)) return false;
    }
    const Row before = constraints_.none() ? Row{} : row;
    for (int i = 0; i < space_.strength; ++i) row[set.columns[i]] = target[set.columns[i]];
    if (!constraints_.none() && !constraints_.allows(row)) {
      row = before;
      return false;
    }
    for (int i = 0; i < space_.strength; ++i) needed_[r][set.columns[i]] = 1;
    return true;
  }

  size_t choose_target() {
    // Mostly the lightest row; a random one now and then, against going round in circles.
    if (random_.below(8) == 0) return static_cast<size_t>(random_.below(static_cast<int>(rows_.size())));
    return static_cast<size_t>(std::min_element(load_.begin(), load_.end()) - load_.begin());
  }

  const TupleSpace& space_;
  const Constraints& constraints_;
  const std::vector<uint8_t>& wanted_;
  Rows rows_;
  std::vector<uint8_t> seen_;                 // per tuple
  std::vector<std::vector<uint8_t>> needed_;  // per row and column
  std::vector<int> load_;                     // per row, tuples it is the first to cover
  Random random_{3};
};

}  // namespace

Rows compact(const TupleSpace& space, const Constraints& constraints, const std::vector<uint8_t>& wanted,
             Rows rows, int64_t effort) {
  return Compactor(space, constraints, wanted, std::move(rows)).run(effort);
}

}  // namespace assay::cover
