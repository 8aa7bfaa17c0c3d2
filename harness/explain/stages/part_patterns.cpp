// SPDX-License-Identifier: Apache-2.0
// O of a whole step read off the results: rows that hold no numbers, or results of other rows. See
// explain_step.hpp.
#include <algorithm>
#include <cmath>

#include "harness/check/verdict.hpp"
#include "harness/explain/causes.hpp"
#include "harness/explain/same_number.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr size_t kPartRows = 64;     // wrong ones that are looked at
constexpr int64_t kRowsOfAll = 256;  // of a step in which other rows' results are looked for
constexpr double kSameRow = 1e-4;    // of the square of a row; rounding of 16 bits is a hundredth of it
constexpr double kPartShare = 0.97, kPartLeast = 0.3;

class StepParts {
 public:
  explicit StepParts(const StageCase& c, const StageVerdict& nothing)
      : c_(c), r_(c.given()), p_(c.problem_of(r_)) {
    first_ = p_.cu_q();
    for (size_t i = 0; i < p_.requests.size(); ++i)
      for (int32_t n = 0; n < p_.requests[i].q_len; ++n)
        if (nothing.bad_rows[static_cast<size_t>(first_[i] + n)] != 0 && rows_.size() < kPartRows)
          rows_.push_back({static_cast<int32_t>(i), n});
    if (rows_.empty()) return;
    p_.only_keys.clear();
  }
  std::vector<StepRanked> all() {
    if (rows_.empty()) return {};
    no_numbers();
    zeros();
    other_rows();
    return std::move(list_);
  }

 private:
  AttentionResult attend(const Problem& p, const std::vector<RowId>& rows) const {
    const HostOperands host{&r_.tensors, r_.problem.q_scale_host, r_.problem.k_scale_host,
                            r_.problem.v_scale_host, r_.dense.empty() ? nullptr : &r_.dense};
    return attention_simple(p, host, rows);
  }
  double got(const RowId& id, int32_t head, int32_t d) const {
    const assay_tensor& o = r_.tensors.o;
    const int64_t row = first_[static_cast<size_t>(id.request)] + id.row;
    return c_.written(Operand::kO, row * o.stride[0] + head * o.stride[1] + d * o.stride[2]);
  }
  void put(std::string_view cause, const std::string& how, double explained) {
    if (explained > kPartLeast)
      list_.push_back({std::string(cause), how, explained, 0, std::string(meaning_of(cause))});
  }
  void no_numbers() {
    int64_t none = 0;
    for (const RowId& id : rows_) none += !std::isfinite(got(id, 0, 0));
    put("memory.unused_slot", "rows hold no numbers",
        StepExplanation::kNotSure * static_cast<double>(none) / static_cast<double>(rows_.size()));
  }

  // Zeros where results are due, in all of a row: more than a reading says that sees no key there.
  void zeros() {
    int64_t none = 0;
    for (const RowId& id : rows_) {
      bool zero = true;
      for (int32_t h = 0; h < p_.heads_q && zero; ++h)
        for (int32_t d = 0; d < p_.head_dim_v && zero; ++d) zero = got(id, h, d) == 0;
      none += zero && !kept(id);
    }
    put("output.zeros", "rows of zeros", static_cast<double>(none) / static_cast<double>(rows_.size()));
    if (none == std::ssize(rows_)) list_.back().whole = true;
  }

  // A row of O as it lay there before.
  bool kept(const RowId& id) const {
    const assay_tensor& o = r_.tensors.o;
    const int64_t row = first_[static_cast<size_t>(id.request)] + id.row;
    for (int32_t h = 0; h < p_.heads_q; ++h)
      for (int32_t d = 0; d < p_.head_dim_v; ++d) {
        const double was = load(o.format, o.data, row * o.stride[0] + h * o.stride[1] + d * o.stride[2]);
        const double is = got(id, h, d);
        if (!same_number(was, is)) return false;
      }
    return true;
  }

  // The results of all rows, in the places of others; rows that then get none are left as they lay there.
  void other_rows() {
    std::vector<RowId> every;
    for (size_t i = 0; i < p_.requests.size(); ++i)
      for (int32_t n = 0; n < p_.requests[i].q_len; ++n) every.push_back({static_cast<int32_t>(i), n});
    if (static_cast<int64_t>(every.size()) > kRowsOfAll) return;
    const AttentionResult all = attend(p_, every);
    const auto holds = [&](const RowId& id, size_t n) {
      double error = 0, size = 0;
      for (int32_t h = 0; h < p_.heads_q; ++h)
        for (int32_t d = 0; d < p_.head_dim_v; ++d) {
          const double due = all.o_at(static_cast<int64_t>(n), h, d), off = got(id, h, d) - due;
          error += off * off, size += due * due;
        }
      return error <= kSameRow * size;
    };
    int64_t moved = 0, left = 0;
    std::string how;
    for (const RowId& id : rows_) {
      size_t own = 0, from = every.size();
      for (size_t n = 0; n < every.size(); ++n) {
        if (every[n] == id)
          own = n;
        else if (from == every.size() && holds(id, n))
          from = n;
      }
      if (from == every.size() || holds(id, own)) {
        left += kept(id);
        continue;
      }
      ++moved;
      if (how.empty())
        how = fmt::format("O of row {} of request {} is that of row {} of request {}", id.row, id.request,
                          every[from].row, every[from].request);
    }
    if (moved > 0)
      put("rows.written_to_other_row", how,
          kPartShare * static_cast<double>(moved + left) / static_cast<double>(rows_.size()));
    if (moved > 0 && moved + left == std::ssize(rows_)) list_.back().whole = true;
  }

  const StageCase& c_;
  Reading r_;
  Problem p_;
  std::vector<int32_t> first_;
  std::vector<RowId> rows_;
  std::vector<StepRanked> list_;
};

}  // namespace

std::vector<StepRanked> part_patterns(const StageCase& c, const StageVerdict& nothing) {
  if (c.kernel().op != ASSAY_OP_PAGED) return {};
  return StepParts(c, nothing).all();
}

}  // namespace assay
