// SPDX-License-Identifier: Apache-2.0
// Reference values and error bounds in two passes of matrix products over blocks of rows. This file cuts the
// selected rows into blocks, spreads them over threads and intersects the tiers; the passes are
// bounds_scores.cpp and bounds_values.cpp, the formulas bounds_finish.cpp.
#include "reference/bounds/bounds.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>

#include "reference/bounds/bounds_examined.hpp"
#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_tiers.hpp"

namespace assay {
namespace {

// Rows of one product.
constexpr int64_t kStackedRows = 128;
// Scores of a block are kept for the second pass; this limits them (in entries of 12 bytes).
constexpr int64_t kMostScores = int64_t{6} << 20;
// Row x key x head products below which waking other threads costs more than it saves.
constexpr double kParallelWork = 3e5;

struct StackedRow {
  int64_t selected = 0;  // index into the rows asked for
  int32_t head = 0;
};
struct Task {
  int request = 0;
  int32_t kv_head = 0;
  int64_t first = 0, count = 0;  // of its stacked rows
};

class FastBounds {
 public:
  FastBounds(const Problem& p, const HostOperands& host, const std::vector<RowId>& rows,
             const assay_arithmetic& a, bool followed)
      : p_(p),
        operands_(p, host),
        model_(p, a, followed, smallest_factor_of_p(p, a, operands_, rows)),
        order_(p, model_.arithmetic()),
        rows_(rows) {
    start_tiers(out_, rows, p.heads_q, p.head_dim_v);
  }

  BoundedAttention run() {
    // The blocks are the parallelism. Eigen would otherwise start threads of its own for the products of a
    // small case, and on a busy machine waiting for them costs a hundred times the product.
    Eigen::setNbThreads(1);
    plan();
    std::vector<matrix_bounds::BlockResult> results(tasks_.size());
    std::exception_ptr failure;
    // Exceptions must not leave a parallel region; the first one is rethrown after it.
#pragma omp parallel for schedule(dynamic) if (work_ > kParallelWork)
    for (size_t i = 0; i < tasks_.size(); ++i) {
      try {
        results[i] = bound(tasks_[i]);
      } catch (...) {
#pragma omp critical(assay_bounds)
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    for (const matrix_bounds::BlockResult& r : results) {
      out_.growth = std::max(out_.growth, r.growth);
      out_.largest = std::max(out_.largest, r.largest);
      out_.p_declined += r.counts.p_declined;
      out_.r_applied += r.counts.r_applied;
    }
    return std::move(out_);
  }

 private:
  // Selected rows by request, all query heads of a KV head together, cut into blocks of bounded size.
  void plan() {
    std::vector<int64_t> order(rows_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return std::pair(rows_[a].request, rows_[a].row) < std::pair(rows_[b].request, rows_[b].row);
    });
    for (size_t from = 0; from < order.size();) {
      const int request = rows_[order[from]].request;
      size_t to = from;
      while (to < order.size() && rows_[order[to]].request == request) ++to;
      const int64_t keys = std::max(1, p_.requests[request].kv_len);
      work_ += static_cast<double>(to - from) * p_.heads_q * static_cast<double>(keys);
      const int64_t block =
          std::clamp<int64_t>(kMostScores / keys, std::min<int64_t>(16, p_.group()), kStackedRows);
      for (int32_t kv_head = 0; kv_head < p_.heads_kv; ++kv_head) {
        const auto first = static_cast<int64_t>(stacked_.size());
        for (size_t i = from; i < to; ++i)
          for (int32_t g = 0; g < p_.group(); ++g) stacked_.push_back({order[i], kv_head * p_.group() + g});
        const auto last = static_cast<int64_t>(stacked_.size());
        for (int64_t at = first, to; at < last; at = to) {
          for (to = at; to < std::min(at + block, last) && alike(stacked_[to]) == alike(stacked_[at]);) ++to;
          tasks_.push_back({request, kv_head, at, to - at});
        }
      }
      from = to;
    }
  }

  int64_t alike(const StackedRow& r) const { return order_.alike(rows_[r.selected].row, r.head); }

  matrix_bounds::BlockResult bound(const Task& task) {
    matrix_bounds::Block block{p_, operands_, model_, order_, task.request, task.kv_head,
                               {}, 0,         0,      0,      {},           {}};
    block.rows.resize(task.count);
    for (int64_t i = 0; i < task.count; ++i) {
      const StackedRow& stacked = stacked_[task.first + i];
      matrix_bounds::BlockRow& row = block.rows[i];
      row.id = rows_[stacked.selected];
      row.head = stacked.head;
      row.slot = stacked.selected * p_.heads_q + stacked.head;
      row.keys = key_interval(p_, row.id);
    }
    score_block(block);
    return bound_block(block, out_);
  }

  const Problem& p_;
  const OperandReader operands_;
  const ErrorModel model_;
  const KeyOrder order_;
  const std::vector<RowId>& rows_;
  std::vector<StackedRow> stacked_;
  std::vector<Task> tasks_;
  BoundedAttention out_;
  double work_ = 0;
};

}  // namespace

BoundedAttention bounded_attention(const Problem& problem, const HostOperands& operands,
                                   const std::vector<RowId>& rows, const assay_arithmetic& arithmetic) {
  return FastBounds(problem, operands, rows, arithmetic, false).run();
}

BoundedAttention followed_attention(const Problem& problem, const HostOperands& operands,
                                    const std::vector<RowId>& rows, const assay_arithmetic& arithmetic) {
  return FastBounds(problem, operands, rows, arithmetic, true).run();
}

}  // namespace assay
