// SPDX-License-Identifier: Apache-2.0
// Which rows of a long case are judged. Bugs sit at edges, so rows at every kind of edge are always
// taken, from the requests that are special (first, last, longest, shortest) and from the whole batch;
// the rest of the budget goes to seeded random rows. Keys are never sampled. A new kind of edge: one
// bit in EdgeClass and its test in `edges_of`.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <vector>

#include "harness/base/random.hpp"
#include "reference/attention/attention.hpp"
#include "reference/attention/operands.hpp"

namespace assay {
namespace {

enum EdgeClass : int { kEnds, kEmpty, kWindow, kChunk, kPage, kTile64, kTile128, kTile256, kEdgeClasses };

// Rows taken of each class from the front and the back of the candidates: one edge is up to four rows
// (position or end of the range, +-1), and the first edge is often cut off at position 0.
constexpr size_t kAround = 6;
// Random candidates of each class from the whole batch: in a decode batch every request is one row.
constexpr int kScattered = 4;
// Draws in a row that add nothing before the budget counts as used.
constexpr int kIdleDraws = 64;

bool near_multiple(int64_t x, int64_t step) {
  if (x < 0) return false;
  const int64_t rest = x % step;
  return rest <= 1 || rest == step - 1;
}

class Selector {
 public:
  Selector(const Problem& p, double budget)
      : p_(p), budget_(budget), tree_(p.tree_indptr()), cu_q_(p.cu_q()) {}

  RowSelection select() {
    RowSelection selection;
    selection.total_rows = p_.total_q();
    double work = 0;
    for_all_rows([&](RowId id) { work += cost(id); });
    if (work <= budget_) {
      for_all_rows([&](RowId id) { selection.rows.push_back(id); });
      return selection;
    }
    for (const int r : special_requests()) take_edges_of_request(r);
    take_edges_of_batch();
    fill_with_random_rows();
    for (const auto& [request, row] : chosen_) selection.rows.push_back({request, row});
    return selection;
  }

 private:
  using Key = std::pair<int32_t, int32_t>;

  template <class F>
  void for_all_rows(F&& f) const {
    for (int r = 0; r < int(p_.requests.size()); ++r)
      for (int32_t i = 0; i < p_.requests[r].q_len; ++i) f(RowId{r, i});
  }

  double cost(RowId id) const {
    const KeyRange range = visible_range(p_, id.request, id.row);
    return double(range.end - range.begin) * p_.heads_q;
  }

  bool sees_nothing(RowId id) const {
    const KeyRange range = visible_range(p_, id.request, id.row);
    if (p_.mask != ASSAY_MASK_TREE || range.begin >= range.end) return range.begin >= range.end;
    const Request& request = p_.requests[id.request];
    const int64_t context = p_.first_draft(request);
    const int64_t row = tree_[id.request] + int64_t(id.row) * p_.drafts(request);
    if (range.begin < context) return false;
    for (int64_t j = range.begin; j < range.end; ++j)
      if (p_.tree_mask[row + j - context] && visible(p_, id.request, id.row, int32_t(j))) return false;
    return true;
  }

  unsigned edges_of(RowId id) const {
    const Request& request = p_.requests[id.request];
    const int64_t position = row_offset(p_, id);
    const KeyRange range = visible_range(p_, id.request, id.row);
    unsigned edges = 0;
    const auto mark = [&](EdgeClass c, bool yes) { edges |= unsigned(yes) << c; };
    // A range that begins at key 0 is not cut, so its begin is no edge.
    const auto meets = [&](int64_t step) {
      return near_multiple(position, step) || (range.begin < range.end && near_multiple(range.end, step)) ||
             (range.begin > 0 && near_multiple(range.begin, step));
    };
    mark(kEnds, id.row == 0 || id.row == request.q_len - 1);
    mark(kEmpty, sees_nothing(id));
    // Where a window begins to cut, and where its right side meets the end of the keys.
    mark(kWindow, p_.window_left >= 0 && std::llabs(position - p_.window_left) <= 1);
    mark(kWindow, p_.window_right >= 0 && std::llabs(position + p_.window_right - (request.kv_len - 1)) <= 1);
    mark(kChunk, p_.chunk > 0 && near_multiple(position, p_.chunk));
    mark(kPage, p_.op == ASSAY_OP_PAGED && meets(p_.page_size));
    mark(kTile64, meets(64));
    mark(kTile128, meets(128));
    mark(kTile256, meets(256));
    return edges;
  }

  // First, last, longest and shortest of the requests that have rows; lengths in keys and in rows.
  std::set<int> special_requests() const {
    std::vector<int> live;
    for (int r = 0; r < int(p_.requests.size()); ++r)
      if (p_.requests[r].q_len > 0) live.push_back(r);
    if (live.empty()) return {};
    const auto by = [&](int32_t Request::*length) {
      return std::minmax_element(live.begin(), live.end(), [this, length](int a, int b) {
        return p_.requests[a].*length < p_.requests[b].*length;
      });
    };
    const auto keys = by(&Request::kv_len), rows = by(&Request::q_len);
    return {live.front(), live.back(), *keys.first, *keys.second, *rows.first, *rows.second};
  }

  void take(RowId id) {
    if (chosen_.insert(Key(id.request, id.row)).second) spent_ += cost(id);
  }

  void take_edges_of_request(int r) {
    std::array<std::vector<RowId>, kEdgeClasses> candidates;
    for (int32_t i = 0; i < p_.requests[r].q_len; ++i) note(RowId{r, i}, candidates);
    for (const auto& rows : candidates) take_front_and_back(rows);
  }

  void take_edges_of_batch() {
    std::array<std::vector<RowId>, kEdgeClasses> candidates;
    for_all_rows([&](RowId id) { note(id, candidates); });
    for (int c = 0; c < kEdgeClasses; ++c) {
      take_front_and_back(candidates[c]);
      for (int i = 0; i < kScattered && !candidates[c].empty(); ++i)
        take(candidates[c][draw(candidates[c].size())]);
    }
  }

  void note(RowId id, std::array<std::vector<RowId>, kEdgeClasses>& candidates) const {
    const unsigned edges = edges_of(id);
    for (int c = 0; c < kEdgeClasses; ++c)
      if (edges >> c & 1) candidates[c].push_back(id);
  }

  void take_front_and_back(const std::vector<RowId>& rows) {
    for (size_t i = 0; i < std::min(kAround, rows.size()); ++i) {
      take(rows[i]);
      take(rows[rows.size() - 1 - i]);
    }
  }

  uint64_t draw(uint64_t n) { return rng_.below(draws_++, n); }

  void fill_with_random_rows() {
    for (int idle = 0; idle < kIdleDraws && spent_ < budget_;) {
      const auto packed = int32_t(draw(uint64_t(cu_q_.back())));
      const auto next = std::upper_bound(cu_q_.begin(), cu_q_.end(), packed);
      const RowId id{int32_t(next - cu_q_.begin()) - 1, packed - *(next - 1)};
      const bool fits = spent_ + cost(id) <= budget_ && !chosen_.contains(Key(id.request, id.row));
      if (fits) take(id);
      idle = fits ? 0 : idle + 1;
    }
  }

  const Problem& p_;
  const double budget_;
  const std::vector<int64_t> tree_;
  const std::vector<int32_t> cu_q_;
  const CounterRng rng_{p_.seed, kStreamSampling};
  uint64_t draws_ = 0;
  std::set<Key> chosen_;
  double spent_ = 0;
};

}  // namespace

RowSelection select_rows(const Problem& problem, double budget_row_keys) {
  return Selector(problem, budget_row_keys).select();
}

}  // namespace assay
