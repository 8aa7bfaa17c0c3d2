// SPDX-License-Identifier: Apache-2.0
// Elements of attention. Every row is asked about, so that what is not an element of O or LSE (the spare head
// of a strided output) shows as touched; rows that were not sampled need only be numbers.
#include "harness/check/expectations/attention.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/trust/trust.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/packed_rows.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = RunOutputs::Kind;
constexpr Interval kAnyNumber{-std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::infinity()};

// Whether fp32 may run out of numbers: in partial sums, or where scores are divided by a small cap.
// Infinities and NaN are then what a correct kernel writes. Or a cap so large that scale over cap is zero
// there, and with it every score.
bool may_overflow(const BoundedAttention& b, const Problem& p) {
  const double divided = p.softcap > 0 && p.softcap < 1 ? 1.0 / p.softcap : 1.0;
  const double factor = static_cast<double>(p.softmax_scale) * divided;
  if (p.softcap > 0 &&
      std::fabs(p.softmax_scale / static_cast<double>(p.softcap)) < std::numeric_limits<float>::min())
    return true;
  return !(std::max(b.largest * divided, factor) < std::numeric_limits<float>::max());
}

// The part that is largest in most of the rows and heads whose LSE has a bound.
std::string mostly(const BoundedAttention& b, const std::vector<BoundPart>& largest) {
  constexpr std::array<const char*, kBoundParts> kWords = {"scores",
                                                           "exponentials",
                                                           "merge of parts",
                                                           "row sum",
                                                           "rounding of P",
                                                           "logarithm",
                                                           "accumulation of P V",
                                                           "rounding of V",
                                                           "weights that may round otherwise",
                                                           "worst cases"};
  std::array<int64_t, kBoundParts> slots{};
  for (size_t i = 0; i < largest.size(); ++i)
    if (b.lse_bound[i] > 0) ++slots[static_cast<size_t>(largest[i])];
  const auto most = std::max_element(slots.begin(), slots.end());
  return *most > 0 ? kWords[static_cast<size_t>(most - slots.begin())] : "";
}

}  // namespace

HostOperands host_operands(const Inputs& inputs) {
  return {&inputs.tensors, inputs.q_scale_host, inputs.k_scale_host, inputs.v_scale_host};
}

Widths o_widths(const BoundedAttention& b, int64_t at) {
  return {b.value.o[at], b.o_replayed[at], b.o_bound[at], b.o_bound_p[at], b.o_bound_r[at]};
}

Widths lse_widths(const BoundedAttention& b, int64_t slot) {
  return {b.value.lse[slot], b.value.lse[slot], b.lse_bound[slot], b.lse_bound_p[slot], kNoTier};
}

namespace {

// What an LSE may be, as the kernel's contract has it written: log2(e) times the natural one, in a kernel
// that keeps natural ones rounded once more, and the constant rounded too.
struct LseRange {
  Interval interval;
  Widths widths;
};
LseRange lse_range(const BoundedAttention& b, int64_t slot, uint32_t contracts) {
  LseRange r{{b.lse_low[slot], b.lse_high[slot]}, lse_widths(b, slot)};
  if (const double unit = lse_unit(contracts); unit != 1) {
    Interval& i = r.interval;
    Widths& w = r.widths;
    const auto slack = [](double x) { return std::isfinite(x) ? 0x1p-23 * std::fabs(x) : 0; };
    i.low /= unit, i.high /= unit, w.exact /= unit, w.replayed /= unit, w.d /= unit, w.p /= unit;
    const double more = std::max(slack(i.low), slack(i.high));
    i.low -= more, i.high += more, w.d += more, w.p += more;
  }
  return r;
}

}  // namespace

AttentionExpectation::AttentionExpectation(const Inputs& inputs, std::vector<RowId> rows, double budget)
    : Expectation(inputs), rows_(std::move(rows)), budget_(budget) {}

HostOperands AttentionExpectation::host() const {
  HostOperands host = host_operands(inputs_);
  if (!dense_.empty()) host.dense_new_keys = &dense_;
  return host;
}

void AttentionExpectation::read_new_keys(std::vector<uint8_t> dense) {
  dense_ = std::move(dense);
  references_.clear();
  reference_ = nullptr;
}

std::string AttentionExpectation::impossible(const assay_arithmetic& a) const {
  return impossible_arithmetic(a);
}

void AttentionExpectation::prepare(const assay_arithmetic& a) {
  std::memcpy(&arithmetic_, &a, sizeof a);  // with its padding: it is compared as bytes
  reference_ = nullptr;
}

const BoundedAttention& AttentionExpectation::bounded() {
  if (reference_ != nullptr) return reference_->bounded;
  for (const auto& known : references_)
    if (std::memcmp(&known->arithmetic, &arithmetic_, sizeof arithmetic_) == 0) reference_ = known.get();
  if (reference_ != nullptr) return reference_->bounded;
  auto fresh = std::make_unique<Reference>();
  std::memcpy(&fresh->arithmetic, &arithmetic_, sizeof arithmetic_);
  const auto start = Clock::now();
  fresh->bounded = bounded_attention(inputs_.problem, host(), rows_, arithmetic_);
  fresh->seconds = std::chrono::duration<double>(Clock::now() - start).count();
  references_.push_back(std::move(fresh));
  reference_ = references_.back().get();
  return reference_->bounded;
}

// `b` null: no row has bounds.
void AttentionExpectation::walk(RunOutputs& out, const BoundedAttention* b) const {
  const Problem& p = inputs_.problem;
  const assay_tensor &o = inputs_.tensors.o, &lse = inputs_.tensors.lse;
  const std::vector<PackedRow> rows = packed_rows(p);
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<int64_t> bounded_row(rows.size(), -1);
  if (b != nullptr) {
    const std::vector<int32_t> first = p.cu_q();
    for (size_t n = 0; n < b->value.rows.size(); ++n)
      bounded_row[first[b->value.rows[n].request] + b->value.rows[n].row] = static_cast<int64_t>(n);
  }
  const int64_t slices = std::min(count, RunOutputs::kSlices), dims = p.head_dim_v;
  const bool open = b != nullptr && may_overflow(*b, p);
  out.in_slices(slices, [&](RunOutputs& slice, int64_t part) {
    for (int64_t row = count * part / slices; row < count * (part + 1) / slices; ++row)
      for (int32_t head = 0; head < p.heads_q; ++head) {
        const int64_t o_at = row * o.stride[0] + head * o.stride[1];
        const int64_t lse_at = row * lse.stride[0] + head * lse.stride[1];
        ElementPlace place{{rows[row].request, rows[row].row}, head, -1};
        if (bounded_row[row] < 0) {
          slice.numbers(Kind::kValue, Operand::kO, o_at, dims, o.stride[2], place);
          if (lse.data != nullptr) slice.numbers(Kind::kMark, Operand::kLse, lse_at, 1, 1, place);
          continue;
        }
        const int64_t slot = bounded_row[row] * p.heads_q + head;
        const int64_t first_at = slot * dims;
        if (!open) {
          slice.expect(
              Kind::kValue, Operand::kO, o_at, dims, o.stride[2],
              {&b->o_low[first_at], &b->o_high[first_at], &b->value.o[first_at], &b->o_replayed[first_at],
               &b->o_bound[first_at], &b->o_bound_p[first_at], &b->o_bound_r[first_at]},
              place);
        } else {
          for (place.dim = 0; place.dim < dims; ++place.dim)
            slice.expect(Kind::kValue, Operand::kO, o_at + place.dim * o.stride[2], kAnyNumber,
                         o_widths(*b, first_at + place.dim), place);
        }
        place.dim = -1;
        if (lse.data == nullptr) continue;
        const LseRange range = lse_range(*b, slot, inputs_.contracts);
        slice.expect(Kind::kMark, Operand::kLse, lse_at, open ? kAnyNumber : range.interval, range.widths,
                     place);
      }
  });
  out.finish();
}

void AttentionExpectation::ask(RunOutputs& out) { walk(out, &bounded()); }

void AttentionExpectation::survey(RunOutputs& out) { walk(out, nullptr); }

void AttentionExpectation::describe(Verdict& verdict) const {
  if (reference_ == nullptr) return;
  verdict.reference_seconds = reference_->seconds;
  verdict.rows_checked = static_cast<int64_t>(rows_.size());
  verdict.p_declined = reference_->bounded.p_declined;
  verdict.r_applied = reference_->bounded.r_applied;
  const BoundedAttention& b = reference_->bounded;
  verdict.o_mostly = mostly(b, b.o_mostly), verdict.lse_mostly = mostly(b, b.lse_mostly);
}

bool AttentionExpectation::leaves_open() {
  const BoundedAttention& b = bounded();
  const auto open = [](const std::vector<double>& low, const std::vector<double>& high) {
    for (size_t i = 0; i < low.size(); ++i)
      if (low[i] < high[i] && std::isinf(high[i]) && std::isinf(low[i])) return true;
    return false;
  };
  // What is past the largest of the output's format is stored as infinite.
  double largest = 0;
  for (const auto* ends : {&b.o_low, &b.o_high})
    for (const double x : *ends)
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  if (std::isinf(round_to(inputs_.problem.o_format, largest))) return true;
  return may_overflow(b, inputs_.problem) || open(b.o_low, b.o_high) || open(b.lse_low, b.lse_high);
}

Objection AttentionExpectation::distrust(const RunOutputs& out) const {
  ASSAY_CHECK(reference_ != nullptr, "trust needs bounds");
  if (answer_binds(inputs_.problem, arithmetic_))
    return {};  // matched in every bit, which no bound is needed for
  if (std::string reason = contradicting_bounds(out.values, out.marks); !reason.empty())
    return {"bounds", std::move(reason)};
  if (std::string reason = unbounded_elements(out.values, out.marks); !reason.empty())
    return {"trust", std::move(reason)};
  if (!reference_->distrust)
    reference_->distrust = assay::distrust(reference_->bounded, inputs_.problem, host());
  return {"trust", *reference_->distrust};
}

std::unique_ptr<Expectation> expectations::prefill(const Inputs& inputs, double row_key_budget) {
  return std::make_unique<AttentionExpectation>(inputs, select_rows(inputs.problem, row_key_budget).rows,
                                                row_key_budget);
}

std::unique_ptr<Expectation> expectations::paged(const Inputs& inputs, double row_key_budget) {
  return prefill(inputs, row_key_budget);
}

}  // namespace assay
