// SPDX-License-Identifier: Apache-2.0
// See block_outputs.hpp.
#include "harness/check/block_outputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// Saturating formats: what lies beyond the last code is stored as the last code.
Interval saturated(int32_t format, Interval i) {
  if (!format_is_quantized(format)) return i;
  const double most = format == ASSAY_INT8 ? kInt8Largest : format_info(format).max_finite;
  return {std::clamp(i.low, -most, most), std::clamp(i.high, -most, most)};
}

uint64_t mixed(uint64_t sum, uint32_t bits) { return (sum ^ bits) * 0x100000001b3u + (sum >> 47); }

uint32_t read_bits(const std::byte* from, int bytes) {
  uint32_t code = 0;
  std::memcpy(&code, from, bytes);
  return code;
}

}  // namespace

BlockOutputs::BlockOutputs(const BlockOutputs& whole, Slice)
    : inputs_(whole.inputs_), copies_(whole.copies_), value_check_(values, 0), mark_check_(marks, 0) {}

void BlockOutputs::add(const BlockOutputs& slice) {
  value_check_.add(slice.value_check_);
  mark_check_.add(slice.mark_check_);
  unwritten_values += slice.unwritten_values;
  unwritten_marks += slice.unwritten_marks;
  not_finite += slice.not_finite;
  zeros_pass = zeros_pass && slice.zeros_pass;
  all_zero = all_zero && slice.all_zero;
  for (const uint64_t part : {slice.fingerprint & 0xffffffffu, slice.fingerprint >> 32})
    fingerprint = mixed(fingerprint, static_cast<uint32_t>(part));
}

BlockOutputs::BlockOutputs(const Inputs& inputs, const DeviceCase& device_case)
    : inputs_(inputs), copies_(std::make_shared<Copies>()), value_check_(values, 0), mark_check_(marks, 0) {
  std::vector<Copy>& list = copies_->list;
  list.reserve(kOperandCount);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    const GuardedBuffer& buffer = inputs.buffers[i];
    if (operand == Operand::kWorkspace || buffer.empty() || !is_output(inputs.problem, operand)) continue;
    for (Copy& known : list)
      if (known.before->raw() == buffer.raw()) copies_->of[i] = &known;
    if (copies_->of[i] != nullptr) continue;  // V in K's allocation
    list.push_back({operand, &buffer, device_case.download(operand)});
    copies_->of[i] = &list.back();
  }
}

std::byte* BlockOutputs::element(Operand operand, int64_t at, const std::byte** before) const {
  const Copy* copy = copies_->of[static_cast<int>(operand)];
  ASSAY_CHECK(copy != nullptr, "{} is no output", operand_name(operand));
  const assay_tensor& t = tensor_of(inputs_.tensors, operand);
  const auto* host = static_cast<const std::byte*>(t.data) + at * format_bytes(t.format);
  const int64_t offset = host - copy->before->raw();
  ASSAY_CHECK(offset >= 0 && offset < static_cast<int64_t>(copy->raw.size()), "{} has no element {}",
              operand_name(operand), at);
  *before = host;
  return const_cast<std::byte*>(copy->raw.data()) + offset;
}

double BlockOutputs::value(Operand operand, int64_t at) const {
  const std::byte* before = nullptr;
  const int32_t format = tensor_of(inputs_.tensors, operand).format;
  return decode(format, read_bits(element(operand, at, &before), format_bytes(format)));
}

void BlockOutputs::expect(Kind kind, Operand operand, int64_t at, Interval interval, double exact,
                          const ElementPlace& place) {
  const int32_t format = tensor_of(inputs_.tensors, operand).format;
  const Interval i = saturated(format, interval);
  Widths widths;
  widths.exact = widths.replayed = saturated(format, Interval::point(exact)).low;
  widths.d = std::max(i.high - widths.exact, widths.exact - i.low);
  expect(kind, operand, at, i, widths, place);
}

void BlockOutputs::allow(Operand operand, int64_t at) {
  const std::byte* before = nullptr;
  std::byte* now = element(operand, at, &before);
  std::memcpy(now, before, format_bytes(tensor_of(inputs_.tensors, operand).format));
}

void BlockOutputs::expect(Kind kind, Operand operand, int64_t at, Interval i, const Widths& widths,
                          const ElementPlace& place) {
  const int32_t format = tensor_of(inputs_.tensors, operand).format;
  const int bytes = format_bytes(format);
  const std::byte* before = nullptr;
  std::byte* now = element(operand, at, &before);
  const uint32_t code = read_bits(now, bytes);
  const double got = decode(format, code);
  ErrorStats& stats = kind == Kind::kValue ? values : marks;
  const int64_t bad = stats.bad;
  (kind == Kind::kValue ? value_check_ : mark_check_).add(got, i.low, i.high, widths, format, place);
  if (stats.bad != bad) {
    (kind == Kind::kValue ? unwritten_values : unwritten_marks) += std::memcmp(now, before, bytes) == 0;
    // An LSE of -inf is a number like any other.
    const bool minus_infinity = kind == Kind::kMark && got < 0;
    not_finite += std::isfinite(got) || minus_infinity ? 0 : 1;
  }
  if (kind == Kind::kValue) {
    zeros_pass = zeros_pass && within(0.0, i.low, i.high, format);
    all_zero = all_zero && i.low == 0 && i.high == 0;
  }
  fingerprint = mixed(fingerprint, code);
  std::memcpy(now, before, bytes);
}

void BlockOutputs::expect_bits(Operand operand, int64_t at, uint32_t code, const ElementPlace& place) {
  const int32_t format = tensor_of(inputs_.tensors, operand).format;
  const std::byte* before = nullptr;
  const uint32_t got = read_bits(element(operand, at, &before), format_bytes(format));
  const double exact = decode(format, code);
  const int64_t bad = values.bad;
  expect(Kind::kValue, operand, at, Interval::point(exact), exact, place);
  if (got == code || values.bad != bad) return;
  ++values.bad;  // the sign of a zero
  ++values.bad_by_tier[static_cast<size_t>(Tier::kD)];
  if (values.max_ratio <= 1) {
    values.max_ratio = std::nextafter(1.0, 2.0);
    values.request = place.row.request, values.row = place.row.row;
    values.head = place.head, values.dim = place.dim;
    values.got = decode(format, got), values.expected = values.low = values.high = exact;
  }
}

void BlockOutputs::finish() {
  value_check_.finish();
  mark_check_.finish();
}

std::string BlockOutputs::touched() const {
  for (const Copy& copy : copies_->list) {
    // Guards were looked at before, so only the payload is.
    const int64_t front = copy.before->payload() - copy.before->raw();
    const std::byte* now = copy.raw.data() + front;
    const std::byte* before = copy.before->payload();
    if (std::memcmp(now, before, copy.before->bytes()) == 0) continue;
    const int64_t first = std::mismatch(before, before + copy.before->bytes(), now).first - before;
    int64_t changed = 0;
    for (int64_t i = first; i < copy.before->bytes(); ++i) changed += now[i] != before[i] ? 1 : 0;
    return fmt::format("{} bytes of {} changed that the op must leave alone, first at byte {} of {}", changed,
                       operand_name(copy.owner), first, copy.before->bytes());
  }
  return {};
}

}  // namespace assay
