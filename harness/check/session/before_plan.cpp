// SPDX-License-Identifier: Apache-2.0
// See before_plan.hpp. Signs turn back by being turned again; the small operands are copied before they
// change.
#include "harness/check/session/before_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "harness/check/session/opposite.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

// Calls f with the offset of every element, in elements.
template <class F>
void for_each_element(const assay_tensor& t, const F& f, int axis = 0, int64_t offset = 0) {
  if (axis == t.rank || axis == ASSAY_MAX_RANK) return f(offset);
  for (int64_t i = 0; i < t.shape[axis]; ++i) for_each_element(t, f, axis + 1, offset + i * t.stride[axis]);
}

}  // namespace

OtherContents::OtherContents(Inputs& inputs) : inputs_(&inputs), turned_(turn_values(inputs)) {
  for (const Operand operand :
       {Operand::kQScale, Operand::kKScale, Operand::kVScale, Operand::kDenseKScale, Operand::kDenseVScale,
        Operand::kAlibiSlopes, Operand::kSinks, Operand::kPartialLse})
    twice(operand);
  exchange_pages();
}

void OtherContents::put_back() {
  if (inputs_ == nullptr) return;
  Inputs& inputs = *std::exchange(inputs_, nullptr);
  if (turned_) turn_values(inputs);
  for (const Kept& kept : kept_)
    std::copy(kept.bytes.begin(), kept.bytes.end(), inputs.buffers[kept.operand].payload());
}

void OtherContents::keep(Operand operand) {
  const GuardedBuffer& buffer = inputs_->buffers[operand];
  kept_.push_back({operand, {buffer.payload(), buffer.payload() + buffer.bytes()}});
}

void OtherContents::twice(Operand operand) {
  const assay_tensor& t = tensor_of(inputs_->tensors, operand);
  if (t.data == nullptr || t.format != ASSAY_FP32 || is_output(inputs_->problem, operand) ||
      inputs_->buffers[operand].sparse())
    return;
  keep(operand);
  for_each_element(t, [&](int64_t at) { static_cast<float*>(t.data)[at] *= 2; });
}

void OtherContents::exchange_pages() {
  const Problem& p = inputs_->problem;
  const auto exchange = [&](const assay_tensor& t, int64_t first, int64_t last) {
    auto* const entries = static_cast<int32_t*>(t.data);
    std::swap(entries[first * t.stride[t.rank - 1]], entries[last * t.stride[t.rank - 1]]);
  };
  const auto reads = [&](Operand operand) {
    return tensor_of(inputs_->tensors, operand).data != nullptr && !is_output(p, operand);
  };
  const int requests = static_cast<int>(p.requests.size());
  if (reads(Operand::kBlockTable)) {
    keep(Operand::kBlockTable);
    assay_tensor row = tensor_of(inputs_->tensors, Operand::kBlockTable);
    for (int r = 0; r < std::min<int64_t>(requests, row.shape[0]); ++r) {
      const PageRange kept = resident_pages(p, r);
      if (kept.first + 1 < kept.last && kept.last <= row.shape[1]) exchange(row, kept.first, kept.last - 1);
      row.data = static_cast<int32_t*>(row.data) + row.stride[0];
    }
  } else if (reads(Operand::kIndices) && reads(Operand::kIndptr)) {
    keep(Operand::kIndices);
    const assay_tensor& starts = tensor_of(inputs_->tensors, Operand::kIndptr);
    for (int64_t r = 0; r + 1 < starts.shape[0]; ++r) {
      const int32_t* const from = static_cast<const int32_t*>(starts.data) + r * starts.stride[0];
      if (from[0] + 1 < from[starts.stride[0]])
        exchange(tensor_of(inputs_->tensors, Operand::kIndices), from[0], from[starts.stride[0]] - 1);
    }
  }
}

}  // namespace assay
