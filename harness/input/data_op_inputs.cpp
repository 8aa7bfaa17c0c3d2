// SPDX-License-Identifier: Apache-2.0
// See data_op_inputs.hpp. Values are drawn by counter: element (row, head, dim) of the packed rows, or the
// token behind it where a recipe of ValueSource shapes it.
#include "harness/input/data_op_inputs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "harness/base/random.hpp"
#include "harness/input/poison.hpp"
#include "harness/input/spans.hpp"
#include "harness/ops/packed_rows.hpp"
#include "harness/ops/parts.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"
#include "reference/formats/quantize.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr uint64_t kBeyondEvery = 61;   // one value in so many lies beyond the last code of a given scale
constexpr double kBeyondFactor = 4;     // far enough from any value
constexpr uint64_t kZeroRowEvery = 29;  // one row and head in so many is zero
// States: kinds of rows, out of kRowKinds.
constexpr uint64_t kRowKinds = 16;
enum RowKind : uint64_t { kNothing = 0, kDominated = 1, kHigh = 2, kLow = 3 };  // the others: plain
constexpr double kDominance = 40, kFarLse = 300;
constexpr uint64_t kEmptyEvery = 6;

// What one operand is quantised to, and from where its given scales are read.
struct Target {
  int32_t format, kind;
  const assay_tensor* scale;  // null without a tensor
  float host;
  double at(int32_t head, int32_t dim) const {
    switch (static_cast<assay_scale>(kind)) {
      case ASSAY_SCALE_HOST:
        return host;
      case ASSAY_SCALE_TENSOR:
        return load(ASSAY_FP32, scale->data, 0);
      case ASSAY_SCALE_HEAD:
        return load(ASSAY_FP32, scale->data, head * scale->stride[0]);
      case ASSAY_SCALE_CHANNEL:
        return load(ASSAY_FP32, scale->data, head * scale->stride[0] + dim * scale->stride[1]);
      case ASSAY_SCALE_NONE:
      case ASSAY_SCALE_REQUEST_HEAD:  // no data op takes them
      case ASSAY_SCALE_TOKEN_HEAD:    // not given, but found
        break;
    }
    return 1;
  }
  bool given() const { return kind != ASSAY_SCALE_NONE && kind != ASSAY_SCALE_TOKEN_HEAD; }
  bool dynamic() const { return kind == ASSAY_SCALE_TOKEN_HEAD; }
};

// Where rows of one operand lie in those that are drawn: `whole` dimensions, of which it has those from
// `first` on.
struct DrawnPart {
  int32_t first, whole;
  Operand drawn_as;  // parts of one row are drawn alike
};

double power_of_two(double x) { return x > 0 ? std::exp2(std::ceil(std::log2(x))) : 1; }

void snap_to_powers(Inputs& inputs, Operand operand, int32_t kind, float& host) {
  host = static_cast<float>(power_of_two(host));
  GuardedBuffer& buffer = inputs.buffers[static_cast<int>(operand)];
  if (buffer.empty() || kind == ASSAY_SCALE_TOKEN_HEAD) return;
  for (int64_t i = 0; i < buffer.bytes() / 4; ++i)
    store(ASSAY_FP32, buffer.payload(), i, power_of_two(load(ASSAY_FP32, buffer.payload(), i)));
}

// A code, or the middle between it and the next one away from zero.
double code_or_middle(int32_t format, double x, bool middle) {
  if (format == ASSAY_INT8) {
    const double code = std::clamp(std::trunc(x), -127.0, 127.0);
    return middle ? code + std::copysign(0.5, x) : code;
  }
  const FormatInfo& info = format_info(format);
  const double code = round_to(format, x, Overflow::kSaturate);
  const int exponent = code == 0 ? info.min_exponent : std::max(std::ilogb(code), info.min_exponent);
  return middle ? code + std::copysign(std::ldexp(0.5, exponent - info.mantissa_bits), x) : code;
}

// One row of values for the target, from standard draws of unit size: on codes and between them. A scale that
// is found takes the largest value to the largest code, so that value must fit into `limit`.
void exact_row(const Target& to, const CounterRng& rng, uint64_t first, int32_t head, int32_t dims,
               double limit, double* row) {
  // A normal draw reaches the outer codes, and small ones often enough.
  const double spread = to.format == ASSAY_INT8 ? 45 : 8;
  double dynamic = std::exp2(static_cast<double>(rng.below(first, 7)) - 3);
  while (largest_code(to.format) * dynamic > limit) dynamic /= 2;
  for (int32_t d = 0; d < dims; ++d) {
    const bool middle = rng.bits(first + static_cast<uint64_t>(d)) >> 63 != 0;
    row[d] = code_or_middle(to.format, spread * row[d], middle) * (to.dynamic() ? dynamic : to.at(head, d));
  }
  if (!to.dynamic()) return;
  const auto largest = static_cast<int32_t>(rng.below(first + 1, static_cast<uint64_t>(dims)));
  const double most = largest_code(to.format) * dynamic;
  for (int32_t d = 0; d < dims; ++d) row[d] = std::clamp(row[d], -most, most);
  row[largest] = std::copysign(most, row[largest]);
}

// Makes values codes in their place (still as numbers); the scale of a row of its own is returned.
float make_codes(const Target& to, int32_t head, int32_t dims, double* row) {
  float scale = 1;
  if (to.dynamic()) {
    double largest = 0;
    for (int32_t d = 0; d < dims; ++d) largest = std::max(largest, std::fabs(row[d]));
    scale = static_cast<float>(largest > 0 ? largest / largest_code(to.format) : 1);
  }
  for (int32_t d = 0; d < dims && to.kind != ASSAY_SCALE_NONE; ++d)
    row[d] /= to.dynamic() ? scale : to.at(head, d);
  return scale;
}

// Every row of an operand [rows, heads, dims] in its format; `draw` gives the values of a token. Codes come
// with scales in `ready` where each row has one.
template <class Draw>
void write_source(Inputs& inputs, Operand operand, Operand ready, const DrawnPart& part, const Target& to,
                  const Draw& draw) {
  const Problem& p = inputs.problem;
  const TensorLayout t = operand_layout(p, operand);
  if (t.rank == 0) return;
  std::byte* payload = inputs.buffers[static_cast<int>(operand)].payload();
  const std::vector<PackedRow> rows = new_key_rows(p);
  const CounterRng rng(p.seed + 1000003 * static_cast<uint64_t>(part.drawn_as), kStreamSource);
  const auto heads = static_cast<int32_t>(t.shape[1]);
  const int32_t dims = part.whole, own = static_cast<int32_t>(t.shape[2]);
  const bool codes = p.source_format == ASSAY_FORMAT_NONE;
  const bool answered = answers_are_known(op_of(p)) && answer_is_known(p.recipe);
  const bool ties = p.recipe == InputRecipe::kExact && !answered;
  const TensorLayout scales = operand_layout(p, ready);
  float* const written =
      scales.rank > 0 ? reinterpret_cast<float*>(inputs.buffers[static_cast<int>(ready)].payload()) : nullptr;
  const int64_t bytes = format_bytes(t.format);
  const double limit = codes ? kInf : format_info(t.format).max_finite;
#pragma omp parallel if (t.elements() > kParallelElements)
  {
    std::vector<double> values(dims);
    std::vector<std::byte> packed(own * bytes);
#pragma omp for schedule(static)
    for (int64_t at = 0; at < t.shape[0]; ++at)
      for (int32_t head = 0; head < heads; ++head) {
        const uint64_t first = (static_cast<uint64_t>(at) * heads + head) * dims;
        if (rows[at].request < 0 || ties) {
          rng.normals(first, dims, values.data());
        } else {
          draw(rows[at], head, values.data());
        }
        if (answered) {
          // The source's own values, which every code and product holds exactly.
        } else if (ties) {
          exact_row(to, rng, first, head, dims, limit, values.data());
        } else if (to.given()) {
          for (int32_t d = 0; d < dims; ++d)
            if (rng.below(first + d, kBeyondEvery) == 0) values[d] *= kBeyondFactor;
        } else if (to.dynamic() && rng.below(first, kZeroRowEvery) == 0) {
          std::fill(values.begin(), values.end(), 0.0);
        }
        if (codes) {
          const float scale = make_codes(to, head, dims, values.data());
          if (written != nullptr) written[scales.at({at, head})] = scale;
        }
        keep_finite(t.format, to.format, values);
        encode_span(t.format, values.data() + part.first, own, packed.data());
        spread(packed.data(), static_cast<int>(bytes), own, t.stride[2],
               payload + t.at({at, head, 0}) * bytes);
      }
  }
}

}  // namespace

void write_new_tokens(Inputs& inputs, const ValueSource& source) {
  const Problem& p = inputs.problem;
  if (p.recipe == InputRecipe::kExact && !op_of(p).attends_rows) {
    snap_to_powers(inputs, Operand::kKScale, p.k_scale, inputs.k_scale_host);
    snap_to_powers(inputs, Operand::kVScale, p.v_scale, inputs.v_scale_host);
  }
  const std::vector<int32_t> starts = first_positions(p);
  const Target k = {p.k_format, p.k_scale, &inputs.tensors.k_scale, inputs.k_scale_host};
  const auto draw_k = [&](PackedRow row, int32_t head, double* out) {
    source.k(row.request, position_of(starts, row), head, out);
  };
  write_source(inputs, Operand::kDenseK, Operand::kDenseKScale, {0, p.head_dim_qk, Operand::kDenseK}, k,
               draw_k);
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  if (p.split_latent && !latent)  // of all heads: that of the first
    write_source(inputs, Operand::kRope, Operand::kDenseKScale,
                 {p.head_dim_v, p.head_dim_qk, Operand::kDenseK}, k, draw_k);
  if (p.split_latent && latent)
    return write_source(inputs, Operand::kDenseV, Operand::kDenseVScale,
                        {p.head_dim_v, p.head_dim_qk, Operand::kDenseK}, k, draw_k);
  write_source(inputs, Operand::kDenseV, Operand::kDenseVScale, {0, p.head_dim_v, Operand::kDenseV},
               {p.v_format, p.v_scale, &inputs.tensors.v_scale, inputs.v_scale_host},
               [&](PackedRow row, int32_t head, double* out) {
                 source.v(row.request, position_of(starts, row), head, out);
               });
}

void write_slots(Inputs& inputs) {
  const std::vector<int64_t> slots = slot_mapping(inputs.problem);
  for (size_t i = 0; i < slots.size(); ++i)
    store(ASSAY_INT64, inputs.tensors.slot_mapping.data, static_cast<int64_t>(i),
          static_cast<double>(slots[i]));
}

void write_starts(Inputs& inputs) {
  const std::vector<int32_t> starts = first_positions(inputs.problem);
  std::copy(starts.begin(), starts.end(), static_cast<int32_t*>(inputs.tensors.seq_starts.data));
}

void write_row_requests(Inputs& inputs) {
  int64_t i = 0;
  for (const PackedRow& row : packed_rows(inputs.problem))
    static_cast<int32_t*>(inputs.tensors.token_to_batch.data)[i++] = row.request;
}

void write_values_to_quantise(Inputs& inputs, const ValueSource& source) {
  const Problem& p = inputs.problem;
  if (p.recipe == InputRecipe::kExact)
    snap_to_powers(inputs, Operand::kQScale, p.q_scale, inputs.q_scale_host);
  write_source(inputs, Operand::kSource, Operand::kDenseKScale, {0, p.head_dim_qk, Operand::kSource},
               {p.q_format, p.q_scale, &inputs.tensors.q_scale, inputs.q_scale_host},
               [&](PackedRow row, int32_t head, double* out) { source.q(row.request, row.row, head, out); });
}

void write_states(Inputs& inputs) {
  const Problem& p = inputs.problem;
  const TensorLayout o = operand_layout(p, Operand::kPartialO), l = operand_layout(p, Operand::kPartialLse);
  std::byte* values = inputs.buffers[static_cast<int>(Operand::kPartialO)].payload();
  std::byte* lses = inputs.buffers[static_cast<int>(Operand::kPartialLse)].payload();
  const CounterRng rng(p.seed, kStreamStates), draws(p.seed, kStreamSource);
  const auto states = static_cast<uint64_t>(o.shape[0]);
  const int64_t heads = o.shape[2];
#pragma omp parallel if (o.elements() > kParallelElements)
  {
    const int bytes = format_bytes(o.format);
    std::vector<double> row(p.head_dim_v);
    std::vector<std::byte> packed(p.head_dim_v * bytes);
#pragma omp for schedule(static)
    for (int64_t at = 0; at < o.shape[1]; ++at)
      for (int64_t head = 0; head < heads; ++head) {
        const auto unit = static_cast<uint64_t>(at * heads + head), first = unit * 3 * (states + 1);
        const uint64_t kind = rng.below(first, kRowKinds), chosen = rng.below(first + 1, states);
        const double base = 2 * rng.normal(first + 2) + (kind == kHigh  ? kFarLse
                                                         : kind == kLow ? -kFarLse
                                                                        : 0);
        for (uint64_t s = 0; s < states; ++s) {
          const uint64_t draw = first + 3 * (s + 1);
          double lse = base + 2 * rng.normal(draw) + (kind == kDominated && s == chosen ? kDominance : 0);
          if (kind == kNothing || (s != chosen && rng.below(draw + 1, kEmptyEvery) == 0)) lse = -kInf;
          const auto state = static_cast<int64_t>(s);
          store(ASSAY_FP32, lses, l.at({state, at, head}), lse);
          // Sizes differ, so that a wrong state shows even where weights are equal.
          const double size = 0.5 + 1.5 * rng.uniform(draw + 2);
          draws.normals((unit * states + s) * p.head_dim_v, p.head_dim_v, row.data());
          for (double& x : row) x *= size;
          encode_span(o.format, row.data(), p.head_dim_v, packed.data());
          spread(packed.data(), bytes, p.head_dim_v, o.stride[3],
                 values + o.at({state, at, head, 0}) * bytes);
        }
      }
  }
}

void poison_empty_states(Inputs& inputs, Poison poison) {
  const Problem& p = inputs.problem;
  const TensorLayout o = operand_layout(p, Operand::kPartialO), l = operand_layout(p, Operand::kPartialLse);
  std::byte* values = inputs.buffers[static_cast<int>(Operand::kPartialO)].payload();
  const std::byte* lses = inputs.buffers[static_cast<int>(Operand::kPartialLse)].payload();
  const double bad = decode(o.format, poison_code(o.format, poison));
  for (int64_t s = 0; s < o.shape[0]; ++s)
    for (int64_t at = 0; at < o.shape[1]; ++at)
      for (int64_t head = 0; head < o.shape[2]; ++head)
        if (std::isinf(load(ASSAY_FP32, lses, l.at({s, at, head}))))
          for (int64_t d = 0; d < p.head_dim_v; ++d) store(o.format, values, o.at({s, at, head, d}), bad);
}

void hold_bytes(Inputs& inputs, Operand operand, Poison poison) {
  GuardedBuffer& buffer = inputs.buffers[static_cast<int>(operand)];
  const uint64_t which = static_cast<uint64_t>(operand) * 3 + static_cast<uint64_t>(poison);
  const uint64_t key = CounterRng(inputs.problem.seed, kStreamHeld).bits(which);
  std::byte* payload = buffer.payload();
  const int64_t words = buffer.bytes() / 8;
  const auto mixed = [key](int64_t i) {
    uint64_t x = (static_cast<uint64_t>(i) + key) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;  // the finalizer of SplitMix64 (Steele et al., OOPSLA 2014)
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  };
#pragma omp parallel for schedule(static) if (words > kParallelElements)
  for (int64_t i = 0; i < words; ++i) {
    const uint64_t word = mixed(i);
    std::memcpy(payload + 8 * i, &word, 8);
  }
  const uint64_t last = mixed(words);
  std::memcpy(payload + 8 * words, &last, static_cast<size_t>(buffer.bytes() - 8 * words));
}

}  // namespace assay
