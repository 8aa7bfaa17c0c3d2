// SPDX-License-Identifier: Apache-2.0
// See run_outputs.hpp. Rows that nobody has bounds for are most of what a large case writes, so numbers()
// looks at them as whole spans; everything else goes element by element.
#include "harness/check/expectations/run_outputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "harness/base/error.hpp"
#include "harness/input/where.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// Saturating formats: what lies beyond the last code is stored as the last code.
Interval saturated(int32_t format, Interval i) {
  if (!format_is_quantized(format)) return i;
  const double most = largest_code(format);
  return {std::clamp(i.low, -most, most), std::clamp(i.high, -most, most)};
}

uint32_t read_bits(const std::byte* from, int bytes) {
  uint32_t code = 0;
  std::memcpy(&code, from, bytes);
  return code;
}

// An LSE of -inf is a number like any other.
bool is_number(RunOutputs::Kind kind, double x) {
  return std::isfinite(x) || (kind == RunOutputs::Kind::kMark && x < 0);
}

constexpr int64_t kFewest = 16;  // one unwritten element among so many wrong ones

template <class Code>
bool all_below(const std::byte* from, int64_t count, Code exponent) {
  bool fine = true;
  for (int64_t i = 0; i < count; ++i) {
    Code code;
    std::memcpy(&code, from + i * static_cast<int64_t>(sizeof code), sizeof code);
    fine &= (code & exponent) != exponent;
  }
  return fine;
}

// Whether no element of a dense span is NaN or infinite, for the formats of large outputs; false when
// unknown.
bool surely_finite(int32_t format, const std::byte* from, int64_t count) {
  switch (format) {
    case ASSAY_FP32:
      return all_below<uint32_t>(from, count, 0x7f800000u);
    case ASSAY_BF16:
      return all_below<uint16_t>(from, count, 0x7f80);
    case ASSAY_FP16:
      return all_below<uint16_t>(from, count, 0x7c00);
    default:
      return false;
  }
}

// As readers call an operand.
std::string label(Operand operand) {
  if (operand == Operand::kO) return "O";
  if (operand == Operand::kLse) return "LSE";
  return std::string(operand_name(operand));
}

}  // namespace

uint32_t RunOutputs::Element::code() const { return read_bits(now, bytes); }

RunOutputs::RunOutputs(const Inputs& inputs, Snapshot left, const RunRecord* first, const RunRecord* before)
    : inputs_(inputs),
      left_(std::make_shared<Snapshot>(std::move(left))),
      copy_of_(kOperandCount, -1),
      first_(first),
      before_(before),
      value_check_(values, 0),
      mark_check_(marks, 0) {
  if (before != nullptr) std::copy_n(before->wrong, 2, record_.wrong);
  for (int i = 0; i < kOperandCount; ++i)
    for (size_t c = 0; c < left_->copies_.size(); ++c)
      if (inputs.buffers[i].raw() == left_->copies_[c].before.raw()) copy_of_[i] = static_cast<int>(c);
  if ((inputs.contracts & ASSAY_CONTRACT_ROWS_BEHIND_LOST) != 0) forgive_rows_behind();
}

void RunOutputs::forgive_rows_behind() {
  const int64_t rows = inputs_.problem.total_q();
  for (const Operand operand : {Operand::kO, Operand::kLse}) {
    const assay_tensor& t = tensor_of(inputs_.tensors, operand);
    if (t.data == nullptr || copy_of_[static_cast<int>(operand)] < 0) continue;
    const GuardedBuffer& buffer = inputs_.buffers[operand];
    const int64_t offset = static_cast<const std::byte*>(t.data) - buffer.payload();
    const int64_t room = (buffer.bytes() - offset) / format_bytes(t.format);
    if (t.stride[0] >= t.stride[1]) {
      for (int64_t at = rows * t.stride[0]; at < room; ++at) allow(operand, at);
    } else {  // heads first: rows behind those of each head
      for (int64_t head = 0; head < t.shape[1]; ++head)
        for (int64_t row = rows; row < t.stride[1]; ++row) allow(operand, head * t.stride[1] + row);
    }
  }
}

RunOutputs::RunOutputs(const RunOutputs& whole, Slice)
    : inputs_(whole.inputs_),
      left_(whole.left_),
      copy_of_(whole.copy_of_),
      first_(whole.first_),
      before_(whole.before_),
      value_check_(values, 0),
      mark_check_(marks, 0) {}

void RunOutputs::in_slices(int64_t count, const std::function<void(RunOutputs&, int64_t)>& check) {
  const size_t from = record_.parts.size(), size = from + static_cast<size_t>(count);
  for (const RunRecord* other : {first_, before_})
    ASSAY_CHECK(other == nullptr || other->parts.size() >= size, "runs asked about in {} and {} slices", size,
                other->parts.size());
  record_.parts.resize(size);
  std::vector<std::unique_ptr<RunOutputs>> slices(count);
  std::exception_ptr thrown;
#pragma omp parallel for schedule(dynamic)
  for (int64_t n = 0; n < count; ++n) {
    try {
      slices[n].reset(new RunOutputs(*this, Slice{}));
      RunOutputs& slice = *slices[n];
      slice.part_ = &record_.parts[from + n];
      if (first_ != nullptr) slice.first_part_ = &first_->parts[from + n];
      if (before_ != nullptr) slice.before_part_ = &before_->parts[from + n];
      check(slice, n);
    } catch (...) {  // may not leave the parallel region
#pragma omp critical(assay_output_slices)
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
  size_t more[2] = {};
  for (const auto& slice : slices)
    more[0] += slice->value_check_.size(), more[1] += slice->mark_check_.size();
  value_check_.reserve(more[0]), mark_check_.reserve(more[1]);
  for (const auto& slice : slices) add(*slice);
}

void RunOutputs::add(const RunOutputs& slice) {
  value_check_.add(slice.value_check_);
  mark_check_.add(slice.mark_check_);
  zeros_pass = zeros_pass && slice.zeros_pass;
  all_zero = all_zero && slice.all_zero;
  const auto take = [](Sighting& all, const Sighting& more) {
    if (all.count == 0) all.operand = more.operand, all.place = more.place;
    all.count += more.count;
  };
  for (size_t i = 0; i < marks_of_.size(); ++i)
    marks_of_[i].checked += slice.marks_of_[i].checked, marks_of_[i].bad += slice.marks_of_[i].bad;
  for (const int kind : {0, 1}) {
    asked_[kind] += slice.asked_[kind];
    record_.wrong[kind] += slice.record_.wrong[kind];
    take(unwritten_[kind], slice.unwritten_[kind]);
    take(not_finite_[kind], slice.not_finite_[kind]);
    if (!bits_[kind].found) bits_[kind] = slice.bits_[kind];
    if (!changes_[kind].found) changes_[kind] = slice.changes_[kind];
  }
}

RunOutputs::Element RunOutputs::element(Operand operand, int64_t at) const {
  const int which = copy_of_[static_cast<int>(operand)];
  ASSAY_CHECK(which >= 0, "{} is no output", operand_name(operand));
  Snapshot::Copy& copy = left_->copies_[which];
  const assay_tensor& t = tensor_of(inputs_.tensors, operand);
  const int bytes = format_bytes(t.format);
  const auto* host = static_cast<const std::byte*>(t.data) + at * bytes;
  const int64_t offset = host - copy.before.raw();
  ASSAY_CHECK(offset >= 0 && offset + bytes <= static_cast<int64_t>(copy.raw.size()), "{} has no element {}",
              operand_name(operand), at);
  return {copy.raw.data() + offset, host, t.format, bytes};
}

void RunOutputs::settle(Kind kind, Operand operand, const ElementPlace& place, const Element& e, bool bad,
                        bool not_finite, bool copied) {
  const auto k = static_cast<size_t>(kind);
  ++asked_[k];
  if (before_part_ == nullptr && bad) ++record_.wrong[k];
  if (kind == Kind::kMark) {
    Count& of = marks_of_[static_cast<size_t>(operand)];
    ++of.checked, of.bad += bad ? 1 : 0;
  }
  const auto see = [&](Sighting& s) {
    if (s.count++ == 0) s.operand = operand, s.place = place;
  };
  if (not_finite) see(not_finite_[k]);

  const size_t n = element_++;
  const bool followed =
      before_part_ == nullptr ? bad : n < before_part_->held.size() && before_part_->held[n];
  if (followed && std::memcmp(e.now, e.before, e.bytes) == 0) {
    if (part_->held.size() <= n) part_->held.resize(n + 1);
    part_->held[n] = true;
    see(unwritten_[k]);
  }

  if (first_part_ == nullptr) {
    part_->codes.insert(part_->codes.end(), e.now, e.now + e.bytes);
  } else {
    const std::byte* first = first_part_->codes.data() + byte_;
    byte_ += e.bytes;
    if (std::memcmp(first, e.now, e.bytes) != 0) {
      const double a = decode(e.format, read_bits(first, e.bytes)), b = decode(e.format, e.code());
      const Difference d{true, operand, place, a, b};
      if (!bits_[k].found) bits_[k] = d;
      const bool zeros = a == 0 && b == 0;
      if (!changes_[k].found && (copied || !zeros)) changes_[k] = d;
    }
  }
  std::memcpy(e.now, e.before, e.bytes);
}

std::string RunOutputs::wrong_marks() const {
  std::string all;
  int operands = 0;
  for (size_t i = 0; i < marks_of_.size(); ++i) {
    if (marks_of_[i].checked == 0) continue;
    all += fmt::format("{}{} {} of {}", operands++ == 0 ? "" : ", ", operand_name(static_cast<Operand>(i)),
                       marks_of_[i].bad, marks_of_[i].checked);
  }
  if (operands < 2 || marks.operand < 0) return {};
  return fmt::format(" ({}; the worst one of {})", all, operand_name(static_cast<Operand>(marks.operand)));
}

double RunOutputs::value(Operand operand, int64_t at) const {
  const Element e = element(operand, at);
  return decode(e.format, e.code());
}

void RunOutputs::allow(Operand operand, int64_t at) {
  const Element e = element(operand, at);
  std::memcpy(e.now, e.before, e.bytes);
}

void RunOutputs::expect(Kind kind, Operand operand, int64_t at, Interval interval, double exact,
                        const ElementPlace& place) {
  const int32_t format = tensor_of(inputs_.tensors, operand).format;
  const Interval i = saturated(format, interval);
  Widths widths;
  widths.exact = widths.replayed = saturated(format, Interval::point(exact)).low;
  widths.d = std::max(i.high - widths.exact, widths.exact - i.low);
  expect(kind, operand, at, i, widths, place);
}

void RunOutputs::expect(Kind kind, Operand operand, int64_t at, Interval i, const Widths& widths,
                        const ElementPlace& place) {
  const Element e = element(operand, at);
  double got = decode(e.format, e.code());
  // A value past the largest of the format is infinite when it is stored, and was the interval's end before.
  const double end = got > 0 ? i.high : i.low;
  if (std::isinf(got) && std::isfinite(end) && round_to(e.format, end) == got) got = end;
  const int64_t before = stats(kind).bad;
  Comparison& comparison = kind == Kind::kValue ? value_check_ : mark_check_;
  if (comparison.add(got, i.low, i.high, widths, e.format, place) && kind == Kind::kMark)
    marks.operand = static_cast<int32_t>(operand);
  const bool bad = stats(kind).bad != before;
  if (kind == Kind::kValue) {
    zeros_pass = zeros_pass && within(0.0, i.low, i.high, e.format);
    all_zero = all_zero && i.low == 0 && i.high == 0;
  }
  settle(kind, operand, place, e, bad, bad && !is_number(kind, got), false);
}

void RunOutputs::expect(Kind kind, Operand operand, int64_t at, int64_t count, int64_t stride,
                        const Bounds& b, ElementPlace place) {
  if (count == 0) return;
  const Element e = element(operand, at);
  element(operand, at + (count - 1) * stride);  // the last one exists
  Comparison& comparison = kind == Kind::kValue ? value_check_ : mark_check_;
  const bool spans = stride == 1 && first_part_ == nullptr && before_part_ == nullptr;
  for (int64_t from = 0; from < count; from += Comparison::kBeside) {
    const int64_t n = std::min(Comparison::kBeside, count - from), bytes = n * e.bytes;
    place.dim = static_cast<int32_t>(from);
    double got[Comparison::kBeside];
    if (spans) decode_span(e.format, e.now + from * e.bytes, n, got);
    if (spans &&
        comparison.add_inside(got, b.low + from, b.high + from, b.exact + from, n, e.format, place)) {
      for (int64_t i = from; kind == Kind::kValue && i < from + n; ++i) {
        zeros_pass = zeros_pass && within(0.0, b.low[i], b.high[i], e.format);
        all_zero = all_zero && b.low[i] == 0 && b.high[i] == 0;
      }
      part_->codes.insert(part_->codes.end(), e.now + from * e.bytes, e.now + from * e.bytes + bytes);
      element_ += static_cast<size_t>(n);
      asked_[static_cast<size_t>(kind)] += n;
      std::memcpy(e.now + from * e.bytes, e.before + from * e.bytes, static_cast<size_t>(bytes));
      continue;
    }
    for (int64_t i = from; i < from + n; ++i) {
      place.dim = static_cast<int32_t>(i);
      expect(kind, operand, at + i * stride, Interval{b.low[i], b.high[i]},
             Widths{b.exact[i], b.replayed[i], b.d[i], b.p[i], b.r[i]}, place);
    }
  }
}

void RunOutputs::expect_bits(Operand operand, int64_t at, uint32_t code, const ElementPlace& place) {
  const Element e = element(operand, at);
  const uint32_t now = e.code();
  const double exact = decode(e.format, code), got = decode(e.format, now);
  Widths widths;
  widths.exact = widths.replayed = exact;
  widths.d = 0;
  const int64_t before = values.bad;
  value_check_.add(got, exact, exact, widths, e.format, place);
  if (now != code && values.bad == before) {  // the sign of a zero
    ++values.bad;
    ++values.bad_by_tier[static_cast<size_t>(Tier::kD)];
    if (values.max_ratio <= 1) {
      values.max_ratio = std::nextafter(1.0, 2.0);
      values.request = place.row.request, values.row = place.row.row;
      values.head = place.head, values.dim = place.dim;
      values.got = got, values.expected = values.low = values.high = exact;
    }
  }
  const bool bad = values.bad != before;
  zeros_pass = zeros_pass && within(0.0, exact, exact, e.format);
  all_zero = all_zero && exact == 0;
  settle(Kind::kValue, operand, place, e, bad, bad && !std::isfinite(got), true);
}

void RunOutputs::numbers(Kind kind, Operand operand, int64_t at, int64_t count, int64_t stride,
                         ElementPlace place) {
  if (count == 0) return;
  const Element e = element(operand, at);
  const int64_t bytes = count * e.bytes;
  element(operand, at + (count - 1) * stride);  // the last one exists
  const bool followed = before_part_ != nullptr && element_ < before_part_->held.size();
  const bool same = first_part_ == nullptr ||
                    (stride == 1 && std::memcmp(first_part_->codes.data() + byte_, e.now, bytes) == 0);
  if (stride == 1 && !followed && same && surely_finite(e.format, e.now, count)) {
    if (first_part_ == nullptr) part_->codes.insert(part_->codes.end(), e.now, e.now + bytes);
    if (first_part_ != nullptr) byte_ += bytes;
    element_ += count;
    asked_[static_cast<size_t>(kind)] += count;
    std::memcpy(e.now, e.before, bytes);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const Element one{e.now + i * stride * e.bytes, e.before + i * stride * e.bytes, e.format, e.bytes};
    const bool number = is_number(kind, decode(one.format, one.code()));
    if (kind == Kind::kValue) place.dim = static_cast<int32_t>(i);
    settle(kind, operand, place, one, !number, !number, false);
  }
}

void RunOutputs::finish() {
  value_check_.finish();
  mark_check_.finish();
}

std::string RunOutputs::text_of(const Sighting (&seen)[2], const char* value_is, const char* mark_is) const {
  for (const int kind : {0, 1}) {
    const Sighting& s = seen[kind];
    if (s.count == 0) continue;
    return fmt::format("{} {} in {} of {} elements, first {}", label(s.operand),
                       kind == 0 ? value_is : mark_is, s.count, asked_[kind], place_of(s.place));
  }
  return {};
}

std::string RunOutputs::unwritten() const {
  Sighting many[2];
  for (const int kind : {0, 1})
    if (unwritten_[kind].count * kFewest >= record_.wrong[kind]) many[kind] = unwritten_[kind];
  return text_of(many, "not written", "not written");
}
std::string RunOutputs::changed_beside() const {
  int64_t changed = 0;
  std::string first;
  for (const Snapshot::Copy& copy : left_->copies_) {
    if (role_of(inputs_.problem, copy.owner) != Role::kInOut) continue;
    const assay_tensor& t = tensor_of(inputs_.tensors, copy.owner);
    const int bytes = format_bytes(t.format);
    const std::byte* before = copy.before.payload();
    const std::byte* now = copy.raw.data() + (before - copy.before.raw());
    for (int64_t at = 0; at + bytes <= copy.before.bytes(); at += bytes) {
      if (std::memcmp(now + at, before + at, static_cast<size_t>(bytes)) == 0) continue;
      if (changed++ == 0) first = where_in(inputs_.problem, copy.owner, at);
    }
  }
  if (changed == 0) return {};
  return fmt::format("; {} elements beside these changed, first of {}", changed, first);
}
std::string RunOutputs::not_finite() const {
  return text_of(not_finite_, "is NaN or infinite", "is NaN or +inf");
}

std::string RunOutputs::text_of(const Difference (&differences)[2]) const {
  for (const Difference& d : differences)
    if (d.found)
      return fmt::format("{} at {} is {:.9g}, then {:.9g}", label(d.operand), place_of(d.place), d.first,
                         d.now);
  return {};
}

std::string RunOutputs::touched() const {
  for (const Snapshot::Copy& copy : left_->copies_) {
    // Guards were looked at before, so only the payload is.
    const int64_t front = copy.before.payload() - copy.before.raw();
    const std::byte* now = copy.raw.data() + front;
    const std::byte* before = copy.before.payload();
    if (std::memcmp(now, before, copy.before.bytes()) == 0) continue;
    const int64_t first = std::mismatch(before, before + copy.before.bytes(), now).first - before;
    int64_t changed = 0;
    for (int64_t i = first; i < copy.before.bytes(); ++i) changed += now[i] != before[i] ? 1 : 0;
    return fmt::format("{} bytes of {} changed that the op must leave alone, first at byte {} of {}: {}",
                       changed, operand_name(copy.owner), first, copy.before.bytes(),
                       where_in(inputs_.problem, copy.owner, first));
  }
  return {};
}

}  // namespace assay
