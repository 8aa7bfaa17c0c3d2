// SPDX-License-Identifier: Apache-2.0
// The same mathematics as attention_simple.cpp, organised for speed: rows times the query heads of one KV
// head are stacked, keys come in tiles that are gathered and dequantised once per block of rows, both
// products are matrix products (Eigen), the softmax is online with a running maximum, and keys
// nobody in the block sees are neither read nor multiplied. The division into tasks depends on the
// problem and the rows alone, and partial states merge in a fixed order: results do not depend on the
// number of threads. A rule added in attention_simple.cpp goes into key_interval() (visible_keys.cpp) if it
// is an interval, and into finish_scores() if it changes a score.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <numeric>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "reference/attention/attention.hpp"
#include "reference/attention/coded_rows.hpp"
#include "reference/attention/few_rows.hpp"
#include "reference/attention/operands.hpp"
#include "reference/attention/vector_math.hpp"
#include "reference/attention/visible_keys.hpp"
#include "reference/data_ops/merge.hpp"

namespace assay {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Eigen::Index;

constexpr uint64_t kStreamTurns =
    1003;  // of attention_in_turn(), apart from those of harness/base/random.hpp
constexpr double kInf = std::numeric_limits<double>::infinity();
// Stacked rows (row x query head of the group) per task and keys per tile. At d = 128 the tiles of K and V,
// the scores and the accumulator are 128-256 KiB each and share a 2 MiB second-level cache.
constexpr int32_t kStackedRows = 128;
constexpr int32_t kTileKeys = 128;
// A handful of rows (decode) multiplies a key only once or twice: reading it is the work. Longer tiles, K and
// V taken through the first-level cache in steps of 16 KiB, the step after next fetched ahead.
constexpr int32_t kFewRowsTileKeys = 512;
constexpr int32_t kStepKeys = 16;
constexpr int32_t kAheadKeys = 24;
// Few tasks over long contexts (decode) are also split along the keys, so that every core has work.
constexpr int64_t kFewTasks = 16;
constexpr int32_t kSplitKeys = 4096;

// One block of rows against one range of keys, for one KV head.
struct Task {
  int request = 0;
  int32_t kv_head = 0;
  int64_t first_row = 0, row_count = 0;  // into the sorted order of the selected rows
  int64_t key_begin = 0, key_end = 0;
};

// (O, LSE) of the stacked rows of a task, before the sink.
struct Partial {
  Matrix o;
  std::vector<double> lse;
};

class FastAttention {
 public:
  // With `in_turn`, one KV head for each block of rows; it gets that of every row.
  FastAttention(const Problem& p, const HostOperands& host, const std::vector<RowId>& rows,
                std::vector<int32_t>* in_turn = nullptr)
      : p_(p), operands_(p, host), rows_(rows), order_(rows.size()), in_turn_(in_turn) {
    if (in_turn_ != nullptr) in_turn_->assign(rows.size(), 0);
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
      return std::pair(rows[a].request, rows[a].row) < std::pair(rows[b].request, rows[b].row);
    });
    ranges_.reserve(rows.size());
    for (const int64_t n : order_) ranges_.push_back(key_interval(p, rows_[n]));
  }

  AttentionResult run() {
    plan();
    std::vector<Partial> partials(tasks_.size());
    std::exception_ptr failure;
    // Exceptions must not leave a parallel region; the first one is rethrown after it.
#pragma omp parallel for schedule(dynamic) if (worth_threads())
    for (size_t i = 0; i < tasks_.size(); ++i) {
      try {
        partials[i] = attend(tasks_[i]);
      } catch (...) {
#pragma omp critical(assay_attention_fast)
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    return collect(partials);
  }

 private:
  RowId row(int64_t sorted) const { return rows_[order_[sorted]]; }

  // Waking threads costs more than a small case.
  bool worth_threads() const {
    double products = 0;
    for (const Task& task : tasks_)
      products += double(task.row_count * p_.group()) * double(task.key_end - task.key_begin);
    return products * (p_.head_dim_qk + p_.head_dim_v) > 1e6;
  }

  void plan() {
    const auto count = static_cast<int64_t>(order_.size());
    const int64_t rows_per_task = std::max(1, kStackedRows / p_.group());
    std::vector<Task> blocks;
    for (int64_t first = 0; first < count;) {
      Task task;
      task.request = row(first).request;
      task.first_row = first;
      task.key_begin = ranges_[first].begin;
      int64_t last = first;
      for (; last < count && last - first < rows_per_task && row(last).request == task.request; ++last) {
        task.key_begin = std::min(task.key_begin, ranges_[last].begin);
        task.key_end = std::max(task.key_end, ranges_[last].end);
      }
      task.row_count = last - first;
      if (in_turn_ != nullptr) {
        const CounterRng rng(p_.seed, kStreamTurns);
        task.kv_head =
            static_cast<int32_t>(rng.below(static_cast<uint64_t>(first), static_cast<uint64_t>(p_.heads_kv)));
        for (int64_t i = first; i < last; ++i) (*in_turn_)[order_[i]] = task.kv_head;
        blocks.push_back(task);
        first = last;
        continue;
      }
      first = last;
      for (task.kv_head = 0; task.kv_head < p_.heads_kv; ++task.kv_head) blocks.push_back(task);
    }
    const bool split = static_cast<int64_t>(blocks.size()) < kFewTasks;
    for (Task task : blocks) {
      const int64_t end = task.key_end;
      do {
        task.key_end = split ? std::min(end, task.key_begin + kSplitKeys) : end;
        tasks_.push_back(task);
        task.key_begin = task.key_end;
      } while (task.key_end < end);
    }
  }

  Partial attend(const Task& task) const {
    const int32_t group = p_.group();
    const Index stacked = task.row_count * group;
    const int64_t tile = stacked <= kFewRows ? kFewRowsTileKeys : kTileKeys;
    const int64_t step = stacked <= kFewRows ? kStepKeys : kTileKeys;
    Matrix q(stacked, p_.head_dim_qk), k(step, p_.head_dim_qk), v(step, p_.head_dim_v), scores(stacked, tile),
        acc = Matrix::Zero(stacked, p_.head_dim_v);
    std::vector<double> largest(stacked, -kInf), sum(stacked, 0.0);
    for (int64_t i = 0; i < task.row_count; ++i)
      for (int32_t g = 0; g < group; ++g)
        operands_.q(row(task.first_row + i), task.kv_head * group + g, q.row(i * group + g).data());

    std::vector<uint8_t> wanted(tile);
    std::vector<OperandReader::Place> places(tile);
    CodedTile coded(stacked <= kFewRows && operands_.has_coded() ? tile : 0);
    for (int64_t begin = task.key_begin; begin < task.key_end; begin += tile) {
      const int64_t end = std::min(task.key_end, begin + tile);
      // Rows ascend, so those that meet the tile are neighbours except in odd selections; the few
      // between them that do not are masked like any invisible key.
      int64_t first = task.row_count, last = 0;
      for (int64_t i = 0; i < task.row_count; ++i) {
        const KeyInterval& range = ranges_[task.first_row + i];
        if (range.begin >= end || range.end <= begin) continue;
        first = std::min(first, i);
        last = i + 1;
      }
      if (first >= last) continue;
      if (!mark_wanted(task, first, last, begin, end, wanted)) continue;
      const Index at = first * group, count = (last - first) * group;
      if (!coded.keys.empty()) {
        attend_codes(task, at, count, begin, end, wanted, q, coded, scores, largest.data(), sum.data(), acc);
        continue;
      }
      for (int64_t key = begin; key < end; ++key)
        if (wanted[key - begin]) places[key - begin] = operands_.place(task.request, int32_t(key));

      for (int64_t j = begin; j < end; j += step) {
        const int64_t stop = std::min(end, j + step);
        for (int64_t key = j; key < stop; ++key) {
          const int64_t ahead = key + kAheadKeys;
          if (ahead < end && wanted[ahead - begin]) operands_.prefetch(places[ahead - begin], task.kv_head);
          fetch(task, places[key - begin], wanted[key - begin], &OperandReader::k_at, k.row(key - j));
        }
        multiply_scores(q, k, at, count, j - begin, stop - j, scores);
      }
      for (Index s = at; s < at + count; ++s)
        softmax_step(task, s, begin, end, scores.row(s).data(), &largest[s], &sum[s], acc.row(s).data());
      for (int64_t j = begin; j < end; j += step) {
        const int64_t stop = std::min(end, j + step);
        for (int64_t key = j; key < stop; ++key)
          fetch(task, places[key - begin], wanted[key - begin], &OperandReader::v_at, v.row(key - j));
        accumulate(scores, v, at, count, j - begin, stop - j, acc);
      }
    }

    Partial partial;
    partial.lse.assign(stacked, -kInf);
    for (Index s = 0; s < stacked; ++s) {
      if (sum[s] == 0) continue;
      acc.row(s) /= sum[s];
      partial.lse[s] = largest[s] + std::log(sum[s]);
      const RowId id = row(task.first_row + s / group);
      ASSAY_CHECK(std::isfinite(partial.lse[s]) && acc.row(s).allFinite(),
                  "request {} row {}, KV head {}: a visible operand is not finite (or scores overflow): the "
                  "inputs or the page table are wrong",
                  id.request, id.row, task.kv_head);
    }
    partial.o = std::move(acc);
    return partial;
  }

  // The vectors of one tile as codes.
  struct CodedTile {
    explicit CodedTile(int64_t tile) : keys(tile), k(tile), v(tile) {}
    std::vector<OperandReader::Coded> keys;
    std::vector<const std::byte*> k, v;
  };

  // One tile for a handful of rows, K and V decoded in registers. Scales of K join the scores and scales of
  // V the weights, after the row sum has taken them.
  void attend_codes(const Task& task, Index at, Index count, int64_t begin, int64_t end,
                    const std::vector<uint8_t>& wanted, const Matrix& q, CodedTile& tile, Matrix& scores,
                    double* largest, double* sum, Matrix& acc) const {
    const int64_t n = end - begin;
    operands_.coded(task.request, int32_t(begin), int32_t(end), task.kv_head, wanted.data(),
                    tile.keys.data());
    for (int64_t j = 0; j < n; ++j) tile.k[j] = tile.keys[j].k, tile.v[j] = tile.keys[j].v;
    coded_rows_scores(p_.k_format, q.row(at).data(), count, tile.k.data(), n, q.cols(), scores.row(at).data(),
                      scores.cols());
    for (Index s = at; s < at + count; ++s) {
      double* row = scores.row(s).data();
      for (int64_t j = 0; j < n; ++j) row[j] *= tile.keys[j].k_scale;
      softmax_step(task, s, begin, end, row, &largest[s], &sum[s], acc.row(s).data());
      for (int64_t j = 0; j < n; ++j) row[j] *= tile.keys[j].v_scale;
    }
    coded_rows_accumulate(operands_.coded_v_format(), scores.row(at).data(), scores.cols(), count,
                          tile.v.data(), n, acc.cols(), acc.row(at).data());
  }

  // Marks the keys of a tile that some row of [first, last) sees. False when there is none.
  bool mark_wanted(const Task& task, int64_t first, int64_t last, int64_t begin, int64_t end,
                   std::vector<uint8_t>& wanted) const {
    std::fill(wanted.begin(), wanted.end(), uint8_t(0));
    for (int64_t i = first; i < last; ++i) {
      const KeyInterval range = clip(ranges_[task.first_row + i], begin, end);
      if (p_.mask != ASSAY_MASK_TREE) {
        std::fill(wanted.begin() + (range.begin - begin), wanted.begin() + (range.end - begin), uint8_t(1));
        continue;
      }
      for (int64_t j = range.begin; j < range.end; ++j)
        wanted[j - begin] |= draft_visible(p_, operands_, row(task.first_row + i), j);
    }
    return std::find(wanted.begin(), wanted.end(), uint8_t(1)) != wanted.end();
  }

  // One key's K or V. A key nobody sees becomes zeros: it may be poison, and a weight of zero times NaN would
  // not vanish in the product.
  template <class Read, class Row>
  void fetch(const Task& task, OperandReader::Place at, bool wanted, Read read, Row&& to) const {
    if (wanted)
      (operands_.*read)(task.request, at, task.kv_head, to.data());
    else
      to.setZero();
  }

  // Columns [column, column + keys) of the scores of rows [at, at + count).
  static void multiply_scores(const Matrix& q, const Matrix& k, Index at, Index count, Index column,
                              Index keys, Matrix& scores) {
    if (count <= kFewRows)
      few_rows_scores(q.row(at).data(), count, k.data(), keys, q.cols(), scores.row(at).data() + column,
                      scores.cols());
    else
      scores.block(at, column, count, keys).noalias() = q.middleRows(at, count) * k.topRows(keys).transpose();
  }

  static void accumulate(const Matrix& weights, const Matrix& v, Index at, Index count, Index column,
                         Index keys, Matrix& acc) {
    if (count <= kFewRows)
      few_rows_accumulate(weights.row(at).data() + column, weights.cols(), count, v.data(), keys, acc.cols(),
                          acc.row(at).data());
    else
      acc.middleRows(at, count).noalias() += weights.block(at, column, count, keys) * v.topRows(keys);
  }

  static KeyInterval clip(KeyInterval range, int64_t begin, int64_t end) {
    KeyInterval clipped{std::clamp(range.begin, begin, end), std::clamp(range.end, begin, end)};
    return clipped;
  }

  // Scores of one row in one tile become weights relative to the row's running maximum; what was
  // accumulated so far is rescaled when the maximum moves.
  void softmax_step(const Task& task, Index stacked, int64_t begin, int64_t end, double* scores,
                    double* largest, double* sum, double* acc) const {
    const int64_t sorted = task.first_row + stacked / p_.group();
    const KeyInterval seen = clip(ranges_[sorted], begin, end);
    const Index low = seen.begin - begin, high = seen.end - begin, keys = end - begin;
    finish_scores(task, stacked, seen, begin, scores);

    Eigen::Map<Eigen::ArrayXd> visible(scores + low, high - low);
    const double peak = high > low ? visible.maxCoeff() : -kInf;
    const double moved = peak > *largest ? peak : *largest;
    std::fill(scores, scores + low, 0.0);
    std::fill(scores + high, scores + keys, 0.0);
    if (moved == -kInf) {
      // A maximum passes over NaN: nothing may be left that a sum would have shown.
      ASSAY_CHECK((visible == -kInf).all(), "request {}: a visible Q or K is NaN", task.request);
      visible.setZero();
      return;
    }
    for (Index j = low; j < high; ++j) scores[j] = vector_math::exp(scores[j] - moved);
    if (moved > *largest) {
      const double factor = std::exp(*largest - moved);
      *sum *= factor;
      for (int32_t d = 0; d < p_.head_dim_v; ++d) acc[d] *= factor;
      *largest = moved;
    }
    *sum += visible.sum();
  }

  // Dot products to final scores, in the order of the definition: scale, cap, bias, tree.
  void finish_scores(const Task& task, Index stacked, KeyInterval seen, int64_t begin, double* scores) const {
    const int64_t sorted = task.first_row + stacked / p_.group();
    const int32_t head = task.kv_head * p_.group() + int32_t(stacked % p_.group());
    const int64_t context = p_.first_draft(p_.requests[task.request]);
    const int64_t position = row_offset(p_, row(sorted));
    const Index low = seen.begin - begin, high = seen.end - begin;

    const double scale = p_.softmax_scale, cap = p_.softcap;
    for (Index j = low; j < high; ++j) scores[j] *= scale;
    if (cap > 0)
      for (Index j = low; j < high; ++j) scores[j] = cap * vector_math::tanh(scores[j] / cap);
    if (p_.alibi != ASSAY_ALIBI_NONE) {
      const double slope = operands_.alibi_slope(head);
      // Drafts that stand by their rows come after.
      const int64_t end = drafts_by_row(p_) ? std::max<int64_t>(0, context) : position + 1;
      const Index past = std::min<int64_t>(high, end - begin);
      for (Index j = low; j < past; ++j) {
        const auto distance = double(position - begin - j);
        scores[j] -= slope * (p_.alibi == ASSAY_ALIBI_SQRT ? std::sqrt(distance) : distance);
      }
      for (Index j = std::max<Index>(low, past); drafts_by_row(p_) && j < high; ++j) {
        const auto distance = double(position - key_offset(p_, task.request, begin + j));
        if (distance >= 0)
          scores[j] -= slope * (p_.alibi == ASSAY_ALIBI_SQRT ? std::sqrt(distance) : distance);
      }
    }
    if (p_.mask == ASSAY_MASK_TREE)
      for (int64_t j = std::max(seen.begin, context); j < seen.end; ++j)
        if (!draft_visible(p_, operands_, row(sorted), j)) scores[j - begin] = -kInf;
  }

  // Splits of the same rows stand next to each other; the sink enters once, here.
  AttentionResult collect(const std::vector<Partial>& partials) const {
    AttentionResult result;
    result.rows = rows_;
    result.heads_q = p_.heads_q;
    result.head_dim_v = p_.head_dim_v;
    result.o.assign(rows_.size() * p_.heads_q * p_.head_dim_v, 0.0);
    result.lse.assign(rows_.size() * p_.heads_q, -kInf);
    const int32_t group = p_.group();
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const Task& task = tasks_[i];
      for (Index s = 0; s < task.row_count * group; ++s) {
        const int32_t head = task.kv_head * group + int32_t(s % group);
        const int64_t slot = order_[task.first_row + s / group] * p_.heads_q + head;
        merge_into(result.o.data() + slot * p_.head_dim_v, &result.lse[slot], partials[i].o.row(s).data(),
                   partials[i].lse[s], p_.head_dim_v);
      }
    }
    if (p_.sinks) {
      const std::vector<double> nothing(p_.head_dim_v, 0.0);
      for (size_t slot = 0; slot < result.lse.size(); ++slot)
        merge_into(result.o.data() + slot * p_.head_dim_v, &result.lse[slot], nothing.data(),
                   operands_.sink(int32_t(slot % p_.heads_q)), p_.head_dim_v);
    }
    return result;
  }

  const Problem& p_;
  const OperandReader operands_;
  const std::vector<RowId>& rows_;
  std::vector<int64_t> order_;       // indices into rows_, by request and row
  std::vector<KeyInterval> ranges_;  // of the rows in that order
  std::vector<Task> tasks_;
  std::vector<int32_t>* in_turn_;
};

}  // namespace

AttentionResult attention_fast(const Problem& problem, const HostOperands& operands,
                               const std::vector<RowId>& rows) {
  return FastAttention(problem, operands, rows).run();
}

AttentionResult attention_in_turn(const Problem& problem, const HostOperands& operands,
                                  const std::vector<RowId>& rows, std::vector<int32_t>* kv_head) {
  return FastAttention(problem, operands, rows, kv_head).run();
}

}  // namespace assay
