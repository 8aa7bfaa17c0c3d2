// SPDX-License-Identifier: Apache-2.0
// See opposite.hpp.
#include "harness/check/session/opposite.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/ops/op.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kAgreement = 1.0 / 16;

constexpr int64_t kManyRows = 1 << 14;  // shared out to threads
int64_t count_rows(const assay_tensor& t) {
  int64_t rows = t.rank > 0 ? 1 : 0;
  for (int i = 0; i + 1 < t.rank; ++i) rows *= t.shape[i];
  return rows;
}

// Where row `row` begins, counted in the order of the axes.
int64_t row_offset(const assay_tensor& t, int64_t row) {
  int64_t offset = 0;
  for (int i = t.rank - 2; i >= 0; --i) {
    offset += row % t.shape[i] * t.stride[i];
    row /= t.shape[i];
  }
  return offset;
}

// The last byte of a little-endian number holds its sign.
void turn(uint8_t* value, int32_t format, int bytes) {
  uint8_t& last = value[bytes - 1];
  if (format == ASSAY_INT8) {
    last = static_cast<uint8_t>(-last);  // -128 is poison, and stays
  } else if (format == ASSAY_FP8_E4M3FNUZ || format == ASSAY_FP8_E5M2FNUZ) {
    if ((last & 0x7f) != 0) last ^= 0x80;  // zero has no sign; that code is the NaN
  } else {
    last ^= 0x80;
  }
}

// Whether the highest bit of every code of the format is a sign and nothing else.
bool has_sign_bit(int32_t format) {
  return format == ASSAY_BF16 || format == ASSAY_FP16 || format == ASSAY_FP8_E4M3 ||
         format == ASSAY_FP8_E5M2 || format == ASSAY_FP32;
}

// The values side by side whose bit is set, 64 at most.
template <class Code>
void turn_chosen(uint8_t* values, uint64_t chosen, int64_t count) {
  auto* const codes = reinterpret_cast<Code*>(values);
  constexpr int kSign = 8 * sizeof(Code) - 1;
  for (int64_t d = 0; d < count; ++d) codes[d] ^= static_cast<Code>((chosen >> d & 1) << kSign);
}

void turn_row(const assay_tensor& t, int64_t offset) {
  const int bytes = format_bytes(t.format);
  for (int64_t d = 0; d < t.shape[t.rank - 1]; ++d)
    turn(static_cast<uint8_t*>(t.data) + (offset + d * t.stride[t.rank - 1]) * bytes, t.format, bytes);
}

// Operands that hold values and are read, the first one small. V of a latent cache turns with K.
std::vector<Operand> value_operands(const Inputs& inputs) {
  const Problem& p = inputs.problem;
  std::vector<Operand> found;
  for (const Operand operand : {Operand::kQ, Operand::kRope, Operand::kSource, Operand::kPartialO,
                                Operand::kDenseK, Operand::kDenseV, Operand::kK, Operand::kV}) {
    const assay_tensor& t = tensor_of(inputs.tensors, operand);
    if (operand == Operand::kV && p.layout == ASSAY_LAYOUT_MLA) continue;
    if (holds_values(p, operand) && t.data != nullptr && t.rank >= 1 && format_bytes(t.format) >= 1)
      found.push_back(operand);
  }
  return found;
}

// Outputs whose signs are not those of the values.
bool stays(Operand operand) {
  return operand == Operand::kLse || operand == Operand::kPartialLse || operand == Operand::kQScale ||
         operand == Operand::kKScale || operand == Operand::kVScale;
}

// What the rounding of a short format may make of a tie turned.
double step(int32_t format, double x) {
  if (format == ASSAY_INT8) return 1;
  if (format_bytes(format) > 1) return 0;
  return std::fabs(x) / 4 + 0x1p-9;
}

}  // namespace

std::vector<Operand> caches_read(const Inputs& inputs) {
  std::vector<Operand> found;
  for (const Operand operand : value_operands(inputs))
    if (is_output(inputs.problem, operand)) found.push_back(operand);
  return found;
}

namespace {

// Rows of which no byte is held hold no value.
class HeldRows {
 public:
  HeldRows(const GuardedBuffer& buffer, const assay_tensor& t)
      : sparse_(buffer.sparse()), held_(buffer.held()), bytes_(format_bytes(t.format)) {
    first_ = static_cast<const std::byte*>(t.data) - buffer.raw();
  }
  bool has(int64_t offset) const {
    if (!sparse_) return true;
    const int64_t at = first_ + offset * bytes_;
    const auto behind = std::upper_bound(held_.begin(), held_.end(), at,
                                         [](int64_t x, const ByteRange& range) { return x < range.begin; });
    return behind != held_.begin() && at < std::prev(behind)->end;
  }

 private:
  bool sparse_;
  std::vector<ByteRange> held_;
  int64_t bytes_, first_ = 0;
};

}  // namespace

bool turn_values(Inputs& inputs) {
  const std::vector<Operand> operands = value_operands(inputs);
  for (const Operand operand : operands) {
    const assay_tensor& t = tensor_of(inputs.tensors, operand);
    const HeldRows held(inputs.buffers[operand], t);
    const int64_t rows = count_rows(t);
#pragma omp parallel for schedule(static) if (rows > kManyRows)
    for (int64_t row = 0; row < rows; ++row)
      if (const int64_t offset = row_offset(t, row); held.has(offset)) turn_row(t, offset);
  }
  return !operands.empty();
}

std::vector<TurnedRows> turn_random_rows(Inputs& inputs, std::mt19937_64& random, int64_t most_bytes) {
  std::vector<TurnedRows> all;
  std::vector<Operand> operands = value_operands(inputs);
  if (most_bytes == 0 && operands.size() > 1) operands.erase(operands.begin());
  if (most_bytes > 0 && !operands.empty()) {
    const auto is_cache = [](Operand o) { return o == Operand::kK || o == Operand::kV; };
    operands.erase(std::remove_if(operands.begin() + 1, operands.end(), is_cache), operands.end());
    most_bytes /= static_cast<int64_t>(operands.size());
  }
  for (const Operand operand : operands) {
    const assay_tensor& t = tensor_of(inputs.tensors, operand);
    if (inputs.buffers[operand].sparse()) continue;
    const int64_t count = count_rows(t);
    if (count < 1 || t.shape[t.rank - 1] < 1) continue;
    const int bytes = format_bytes(t.format);
    const int64_t row_bytes = ((t.shape[t.rank - 1] - 1) * t.stride[t.rank - 1] + 1) * bytes;
    TurnedRows turned{operand};
    turned.from = most_bytes > 0 ? static_cast<int64_t>(random() % static_cast<uint64_t>(count)) : 0;
    turned.seed = random();
    int64_t low = row_offset(t, turned.from), high = low;
    for (turned.to = turned.from; turned.to < count; ++turned.to) {
      const int64_t offset = row_offset(t, turned.to);
      const int64_t lowest = std::min(low, offset), highest = std::max(high, offset);
      if (most_bytes > 0 && turned.to > turned.from && (highest - lowest) * bytes + row_bytes > most_bytes)
        break;
      low = lowest, high = highest;
    }
    const int64_t start = static_cast<const std::byte*>(t.data) - inputs.buffers[operand].payload();
    turned.first = start + low * bytes;
    turned.last = start + high * bytes + row_bytes;
    all.push_back(turned);
  }
  turn_rows(inputs, all);
  return all;
}

std::vector<TurnedRows> turn_random_keys(Inputs& inputs, std::mt19937_64& random) {
  constexpr int64_t kKeysOfOne = 4096, kMostRows = 1024;
  const Problem& p = inputs.problem;
  const bool paged = op_of(p).has_cache;
  const std::vector<int32_t> first = p.cu_kv();
  std::vector<TurnedRows> all;
  std::vector<int> requests;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
    if (p.requests[r].q_len > 0 && p.requests[r].kv_len > 0) requests.push_back(r);
  std::shuffle(requests.begin(), requests.end(), random);
  for (const Operand operand : value_operands(inputs)) {
    const assay_tensor& t = tensor_of(inputs.tensors, operand);
    if ((operand != Operand::kK && operand != Operand::kV) || inputs.buffers[operand].sparse()) continue;
    const int bytes = format_bytes(t.format), last = t.rank - 1;
    const int64_t of_first = count_rows(t) / t.shape[0];  // of a block, or of a key
    int64_t left = kMostRows;
    for (const int r : requests) {
      const int64_t keys = p.requests[r].kv_len;
      const PageRange kept = paged ? resident_pages(p, r) : PageRange{};
      if (paged && kept.first >= kept.last) continue;
      for (int64_t n = p.heads_kv * (1 + keys / kKeysOfOne); n > 0 && left > 0; --n, --left) {
        const uint64_t drawn = random();
        const int64_t at = paged ? p.pages[r][static_cast<size_t>(kept.first) +
                                              drawn % static_cast<uint64_t>(kept.last - kept.first)]
                                 : first[r] + static_cast<int64_t>(drawn % static_cast<uint64_t>(keys));
        TurnedRows turned{operand};
        turned.from = at * of_first + static_cast<int64_t>(random() % static_cast<uint64_t>(of_first));
        turned.to = turned.from + 1;
        turned.seed = random();
        const int64_t start = static_cast<const std::byte*>(t.data) - inputs.buffers[operand].payload();
        turned.first = start + row_offset(t, turned.from) * bytes;
        turned.last = turned.first + ((t.shape[last] - 1) * t.stride[last] + 1) * bytes;
        all.push_back(turned);
      }
    }
  }
  turn_rows(inputs, all);
  return all;
}

void turn_rows(Inputs& inputs, const std::vector<TurnedRows>& all) {
  for (const TurnedRows& turned : all) {
    const assay_tensor& t = tensor_of(inputs.tensors, turned.operand);
    const int bytes = format_bytes(t.format), last = t.rank - 1;
    const CounterRng random(turned.seed, kStreamRecipe);
    const int64_t words = (t.shape[last] + 63) / 64;  // of a row
#pragma omp parallel for schedule(static) if (turned.to - turned.from > kManyRows)
    for (int64_t row = turned.from; row < turned.to; ++row) {
      auto* value = static_cast<uint8_t*>(t.data) + row_offset(t, row) * bytes;
      for (int64_t d = 0; d < t.shape[last]; d += 64) {
        const uint64_t chosen = random.bits(static_cast<uint64_t>(row * words + d / 64));
        const int64_t values = std::min<int64_t>(64, t.shape[last] - d);
        if (t.stride[last] == 1 && has_sign_bit(t.format)) {  // before every timed call
          bytes == 1   ? turn_chosen<uint8_t>(value, chosen, values)
          : bytes == 2 ? turn_chosen<uint16_t>(value, chosen, values)
                       : turn_chosen<uint32_t>(value, chosen, values);
        } else {
          for (int64_t n = 0; n < values; ++n)
            if ((chosen >> n & 1) != 0) turn(value + n * t.stride[last] * bytes, t.format, bytes);
        }
        value += values * t.stride[last] * bytes;
      }
    }
  }
}

namespace {

// One output before and after its values were turned, beside what the host holds now.
struct TurnedOutput {
  const assay_tensor &before, &after, &held;
  const assay_tensor& marks;  // of parts, whose O is anything where they have no key; may be null
  Operand operand;
  bool turned;

  const std::byte* at(const assay_tensor& t, int64_t element) const {
    return static_cast<const std::byte*>(t.data) + element * format_bytes(t.format);
  }
  bool written(int64_t element) const {
    const int bytes = format_bytes(before.format);
    return !std::equal(at(before, element), at(before, element) + bytes, at(held, element));
  }
  // Nobody wrote to the row, before or after: most rows of a cache.
  bool untouched(int64_t offset) const {
    const int bytes = format_bytes(before.format), last = before.rank - 1;
    uint8_t value[8] = {};
    for (int64_t d = 0; d < before.shape[last]; ++d) {
      const int64_t element = offset + d * before.stride[last];
      const std::byte* const now = at(held, element);
      if (std::memcmp(at(after, element), now, static_cast<size_t>(bytes)) != 0) return false;
      std::memcpy(value, at(before, element), static_cast<size_t>(bytes));
      if (std::memcmp(value, now, static_cast<size_t>(bytes)) == 0) continue;
      if (!turned) return false;
      turn(value, before.format, bytes);
      if (std::memcmp(value, now, static_cast<size_t>(bytes)) != 0) return false;
    }
    return true;
  }
  // What is wrong in a row, or "".
  std::string fault(int64_t row) const {
    const int64_t offset = row_offset(before, row);
    if (untouched(offset)) return "";
    const int last = before.rank - 1;
    int64_t index[std::size(before.shape)] = {};
    for (int axis = last - 1; axis >= 0; --axis)
      index[axis] = row % before.shape[axis], row /= before.shape[axis];
    if (operand == Operand::kPartialO && marks.data != nullptr) {
      int64_t mark = 0;
      for (int axis = 0; axis < last; ++axis) mark += index[axis] * marks.stride[axis];
      if (!std::isfinite(load(marks.format, marks.data, mark))) return "";
    }
    double squares = 0;
    int64_t count = 0;
    for (int64_t d = 0; d < before.shape[last]; ++d) {
      const int64_t element = offset + d * before.stride[last];
      if (const double x = load(before.format, before.data, element); std::isfinite(x) && written(element))
        squares += x * x, ++count;
    }
    if (count == 0) return "";
    const double size = stays(operand) ? 1 : std::sqrt(squares / static_cast<double>(count));
    for (int64_t d = 0; d < before.shape[last]; ++d) {
      const int64_t element = offset + d * before.stride[last];
      const double was = load(before.format, before.data, element),
                   is = load(after.format, after.data, element);
      if (!std::isfinite(was) || !written(element)) continue;
      const double expected = turned ? -was : was;
      if (std::fabs(is - expected) <= kAgreement * (std::fabs(was) + size) + step(before.format, was))
        continue;
      std::string place;
      for (int axis = 0; axis < last; ++axis) place += fmt::format("{}, ", index[axis]);
      return fmt::format("{}[{}{}] is {:g} where {:g} is right", operand_name(operand), place, d, is,
                         expected);
    }
    return "";
  }
};

}  // namespace

std::string not_as_turned(const Inputs& inputs, const Snapshot& before, const Snapshot& after,
                          bool opposite) {
  const Problem& p = inputs.problem;
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (operand == Operand::kWorkspace || !is_output(p, operand)) continue;
    if (operand == Operand::kV && p.layout == ASSAY_LAYOUT_MLA) continue;  // a part of K
    const assay_tensor a = before.view(inputs, operand), b = after.view(inputs, operand);
    const assay_tensor& held = tensor_of(inputs.tensors, operand);  // what was there before any run
    if (a.data == nullptr || b.data == nullptr || a.rank < 1 || format_bytes(a.format) < 1) continue;
    const assay_tensor marks = before.view(inputs, Operand::kPartialLse);
    const TurnedOutput output = {a, b, held, marks, operand, opposite && !stays(operand)};
    const int64_t rows = count_rows(a);
    int64_t first = rows;  // with a fault
    std::string why;
#pragma omp parallel for schedule(static) if (rows > kManyRows)
    for (int64_t row = 0; row < rows; ++row)
      if (std::string one = output.fault(row); !one.empty()) {
#pragma omp critical
        if (row < first) first = row, why = std::move(one);
      }
    if (!why.empty()) return why;
  }
  return "";
}

}  // namespace assay
