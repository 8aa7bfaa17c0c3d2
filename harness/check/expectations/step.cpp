// SPDX-License-Identifier: Apache-2.0
// A step is judged in two parts: what it wrote to the cache (the codes of every new key, all other bytes
// untouched), and O, which is attention over the cache as it must be afterwards. New keys of a request are
// read from there, quantised, or as they came, as the kernel declares (assay_arithmetic::dense_new_keys).
// Where a declared error leaves two codes right, O follows the one that the kernel wrote. Of a step without a
// write the cache is an input, which nobody may change.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/check/expectations/attention.hpp"
#include "harness/check/expectations/data_ops.hpp"
#include "harness/check/expectations/joined_rows.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/expectations/step_keys.hpp"
#include "harness/ops/parts.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Kind = RunOutputs::Kind;

// The attention that a step ends with, over a cache of its own.
Inputs complete(const Inputs& step) {
  Inputs whole;
  whole.problem = attention_of(step.problem);
  whole.tensors = step.tensors;
  whole.q_scale_host = step.q_scale_host, whole.k_scale_host = step.k_scale_host;
  whole.v_scale_host = step.v_scale_host;
  for (const Operand operand : {Operand::kK, Operand::kV, Operand::kKScale, Operand::kVScale}) {
    if (!is_output(step.problem, operand)) continue;
    const GuardedBuffer& from = step.buffers[operand];
    assay_tensor& view = tensor_of(whole.tensors, operand);
    if (from.empty() || view.data == nullptr) continue;
    if (operand == Operand::kV && from.raw() == step.buffers[Operand::kK].raw()) {
      whole.buffers.bind(operand, whole.buffers[Operand::kK]);
    } else {
      whole.buffers.add(operand, from.bytes());
      std::memcpy(whole.buffers[operand].payload(), from.payload(), static_cast<size_t>(from.bytes()));
    }
    view.data =
        whole.buffers[operand].payload() + (static_cast<const std::byte*>(view.data) - from.payload());
  }
  return whole;
}

// Rows of two sources as one, in the buffer of `operand`.
void join(Inputs& whole, Operand operand, const assay_tensor& first, const assay_tensor& rest) {
  assay_tensor& t = tensor_of(whole.tensors, operand);
  t = joined_rows(first, rest);
  if (t.shape[0] == 0) return;
  if (whole.buffers[operand].empty()) whole.buffers.add(operand, joined_bytes(t));
  t.data = whole.buffers[operand].payload();
  join_rows(first, static_cast<const std::byte*>(first.data), rest, static_cast<const std::byte*>(rest.data),
            whole.buffers[operand].payload());
}

class StepExpectation final : public Expectation {
 public:
  StepExpectation(const Inputs& inputs, double budget)
      : Expectation(inputs),
        whole_(complete(inputs)),
        attention_(whole_, select_rows(whole_.problem, budget).rows, budget) {
    join_sources();
  }

  const char* value_name() const override { return "O"; }
  const char* mark_name() const override { return "cache"; }
  bool marks_explain_values() const override { return true; }
  int64_t rows_total() const override { return attention_.rows_total(); }
  std::string impossible(const assay_arithmetic& a) const override {
    if ((a.dense_new_keys & ~ASSAY_REQUEST_ANY) != 0)
      return fmt::format("dense_new_keys is {}, bits of enum assay_request_class are 1 to 7",
                         a.dense_new_keys);
    if ((a.dequant_replayed & ~ASSAY_REQUEST_ANY) != 0)
      return fmt::format("dequant_replayed is {}, bits of enum assay_request_class are 1 to 7",
                         a.dequant_replayed);
    if (std::string broken = attention_.impossible(arithmetic_over_keys(a)); !broken.empty()) return broken;
    return impossible_block_arithmetic(a);
  }

  void prepare(const assay_arithmetic& a) override {
    Expectation::prepare(a);
    join_sources();
    whole_.contracts = inputs_.contracts;
    keys_ = keys_of_step(inputs_.problem, a);
    attention_.prepare(arithmetic_over_keys(a));
    attention_.read_new_keys(keys_);
    write_cache();
  }

  void ask(RunOutputs& out) override {
    follow(out);
    check_cache(out);
    attention_.ask(out);
  }
  bool has_dear_bounds() const override { return true; }
  void survey(RunOutputs& out) override {
    follow(out);
    check_cache(out);
    attention_.survey(out);
  }
  bool leaves_open() override { return attention_.leaves_open(); }
  void describe(Verdict& verdict) const override { attention_.describe(verdict); }
  Objection examine(const Trial& trial, Verdict& verdict) override {
    if (attention_.leaves_open()) return {};
    if (!answer_is_known(inputs_.problem.recipe)) return attention_.describe_use(verdict), Objection{};
    if (!answer_binds(whole_.problem, arithmetic_)) return {};
    std::string reason = inexact(whole_.problem, trial.left.view(inputs_, Operand::kO), inputs_.exact_o);
    return reason.empty() ? Objection{} : Objection{"exact", std::move(reason)};
  }
  Objection distrust(const RunOutputs& out) const override { return attention_.distrust(out); }

 private:
  // What comes in two tensors, in one, as the inputs are now.
  void join_sources() {
    const assay_tensors& t = inputs_.tensors;
    if (!inputs_.problem.split_latent) return;
    if (inputs_.problem.layout != ASSAY_LAYOUT_MLA) return join(whole_, Operand::kDenseK, t.dense_k, t.rope);
    join(whole_, Operand::kQ, t.q, t.rope);
    join(whole_, Operand::kDenseK, t.dense_k, t.dense_v);
  }

  // One element of a new key: where it comes from, where it goes, what it may be before it is rounded.
  struct Element {
    Operand operand;
    int64_t at;
    Interval wanted;
    double exact;
  };
  struct Undecided {
    Operand operand;
    int64_t at;
    uint32_t low, high;  // codes, both right
    uint32_t taken;
  };

  // Calls visit(Element, place) for the new rows of a span, in order.
  template <class Visit>
  void each_new(int64_t begin, int64_t end, const Visit& visit) const {
    const Problem& p = inputs_.problem;
    const assay_tensors& t = inputs_.tensors;
    if (p.no_write) return;
    const std::vector<PackedRow> rows = new_key_rows(p);
    const auto side = [&](bool is_v, int64_t row, int64_t slot) {
      const assay_tensor &source = is_v ? whole_.tensors.dense_v : whole_.tensors.dense_k,
                         &cache = is_v ? t.v : t.k;
      const assay_tensor& scales = is_v ? t.v_scale : t.k_scale;
      const int32_t kind = is_v ? p.v_scale : p.k_scale;
      const float host = is_v ? inputs_.v_scale_host : inputs_.k_scale_host;
      for (int32_t head = 0; head < p.heads_kv; ++head) {
        const auto value = [&](int64_t d) {
          return load(source.format, source.data,
                      row * source.stride[0] + head * source.stride[1] + d * source.stride[2]);
        };
        double own_scale = 1, largest = 0;
        if (kind == ASSAY_SCALE_TOKEN_HEAD) {
          for (int64_t d = 0; d < source.shape[2]; ++d) largest = std::max(largest, std::fabs(value(d)));
          const bool zeros = largest == 0;  // a row of those may have any scale
          const Interval wanted =
              zeros ? Interval{0, std::numeric_limits<float>::max()}
                    : dynamic_scale(largest, cache.format, arithmetic_.scaling_relative_error);
          const double exact = zeros ? 0 : (wanted.low + wanted.high) / 2;
          const Operand operand = is_v ? Operand::kVScale : Operand::kKScale;
          const int64_t at = slot / p.page_size * scales.stride[0] + head * scales.stride[1] +
                             slot % p.page_size * scales.stride[2];
          visit(Element{operand, at, wanted, exact}, place_of_row(rows[static_cast<size_t>(row)], head, -1));
          own_scale = load(ASSAY_FP32, tensor_of(whole_.tensors, operand).data, at);
        }
        for (int64_t d = 0; d < source.shape[2]; ++d) {
          const double x = value(d);
          double scale = own_scale;
          if (kind == ASSAY_SCALE_HOST) scale = host;
          if (kind == ASSAY_SCALE_TENSOR) scale = load(ASSAY_FP32, scales.data, 0);
          if (kind == ASSAY_SCALE_HEAD) scale = load(ASSAY_FP32, scales.data, head * scales.stride[0]);
          if (kind == ASSAY_SCALE_CHANNEL)
            scale = load(ASSAY_FP32, scales.data, head * scales.stride[0] + d * scales.stride[1]);
          const bool zeros = kind == ASSAY_SCALE_TOKEN_HEAD && largest == 0;
          const Interval wanted = kind == ASSAY_SCALE_NONE || zeros
                                      ? Interval::point(x)
                                      : quotient(x, scale, arithmetic_.scaling_relative_error);
          visit(Element{is_v ? Operand::kV : Operand::kK,
                        cache_element(cache, p.layout, is_v, slot / p.page_size, slot % p.page_size, head, d),
                        wanted, (wanted.low + wanted.high) / 2},
                place_of_row(rows[static_cast<size_t>(row)], head, static_cast<int32_t>(d)));
        }
      }
    };
    for (int64_t row = begin; row < end; ++row) {
      const auto slot = static_cast<const int64_t*>(t.slot_mapping.data)[row * t.slot_mapping.stride[0]];
      if (slot < 0) continue;
      side(false, row, slot);
      if (p.layout != ASSAY_LAYOUT_MLA) side(true, row, slot);
    }
  }

  void check_cache(RunOutputs& out) const {
    const int64_t rows = inputs_.problem.key_rows(), slices = std::min(rows, RunOutputs::kSlices);
    out.in_slices(slices, [&](RunOutputs& slice, int64_t n) {
      each_new(rows * n / slices, rows * (n + 1) / slices, [&](const Element& e, const ElementPlace& place) {
        slice.expect(Kind::kMark, e.operand, e.at, e.wanted, e.exact, place);
      });
    });
  }

  uint32_t code_of(Operand operand, double x) const {
    const int32_t format = tensor_of(inputs_.tensors, operand).format;
    return encode(format, x, format_is_quantized(format) ? Overflow::kSaturate : Overflow::kInfinity);
  }
  void store_code(Operand operand, int64_t at, uint32_t code) {
    const assay_tensor& t = tensor_of(whole_.tensors, operand);
    const int bytes = format_bytes(t.format);
    std::memcpy(static_cast<std::byte*>(t.data) + at * bytes, &code, static_cast<size_t>(bytes));
  }

  // Every new key into the cache that O is judged by, after `written` where scales were computed otherwise.
  void write_cache(const RunOutputs* written = nullptr) {
    undecided_.clear();
    each_new(0, inputs_.problem.key_rows(), [&](const Element& e, const ElementPlace&) {
      if (is_scale(e.operand)) {
        const double own = written != nullptr ? written->value(e.operand, e.at) : e.exact;
        return store_code(e.operand, e.at, code_of(e.operand, within(e.wanted, own) ? own : e.exact));
      }
      const uint32_t low = code_of(e.operand, e.wanted.low), high = code_of(e.operand, e.wanted.high);
      const uint32_t code = low == high ? low : code_of(e.operand, e.exact);
      store_code(e.operand, e.at, code);
      if (low != high) undecided_.push_back({e.operand, e.at, low, high, code});
    });
  }

  static bool within(Interval i, double x) { return i.low <= x && x <= i.high; }
  static bool is_scale(Operand operand) { return operand == Operand::kKScale || operand == Operand::kVScale; }

  // Whether this run computed other scales than those that codes are judged by, and such as it may.
  bool other_scales(const RunOutputs& out) const {
    if (arithmetic_.scaling_relative_error == 0) return false;
    bool other = false;
    each_new(0, inputs_.problem.key_rows(), [&](const Element& e, const ElementPlace&) {
      if (!is_scale(e.operand)) return;
      const double own = out.value(e.operand, e.at);
      other = other || (within(e.wanted, own) &&
                        own != load(ASSAY_FP32, tensor_of(whole_.tensors, e.operand).data, e.at));
    });
    return other;
  }

  // Codes that may be one or the other are what this run made them.
  void follow(const RunOutputs& out) {
    bool changed = other_scales(out);
    if (changed) write_cache(&out);
    for (Undecided& u : undecided_) {
      const uint32_t written = code_of(u.operand, out.value(u.operand, u.at));
      if (written == u.taken || (written != u.low && written != u.high)) continue;
      u.taken = written;
      store_code(u.operand, u.at, written);
      changed = true;
    }
    if (changed) attention_.read_new_keys(keys_);
  }

  Inputs whole_;
  AttentionExpectation attention_;
  std::vector<uint8_t> keys_;
  std::vector<Undecided> undecided_;
};

}  // namespace

std::unique_ptr<Expectation> expectations::step(const Inputs& inputs, double row_key_budget) {
  return std::make_unique<StepExpectation>(inputs, row_key_budget);
}

}  // namespace assay
