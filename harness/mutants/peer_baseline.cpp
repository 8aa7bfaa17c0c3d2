// SPDX-License-Identifier: Apache-2.0
// See peer_baseline.hpp. Poisoned places are found without knowing any layout: they are the elements whose
// bytes differ between two poisons. Each gets the value of an element of the same buffer that is not poison,
// which is what torch.randn over the whole cache leaves there. Table tails keep a valid, unused block.
#include "harness/mutants/peer_baseline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "harness/base/random.hpp"
#include "harness/check/session/session.hpp"
#include "harness/device/call_once.hpp"
#include "harness/problem/names.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr uint64_t kStreamOrdinary = 1003;
// Elements that are filled by several threads, and that a thread reads at a time.
constexpr int64_t kManyPlaces = int64_t{1} << 16, kReadAhead = 64;
constexpr double kInf = std::numeric_limits<double>::infinity();

void make_ordinary(Inputs& inputs) {
  const Problem& p = inputs.problem;
  constexpr Operand kValues[] = {Operand::kQ,      Operand::kK,      Operand::kV,
                                 Operand::kQScale, Operand::kKScale, Operand::kVScale};
  std::vector<std::byte> nan_image[kOperandCount];
  for (Operand op : kValues) {
    const GuardedBuffer& b = inputs.buffers[static_cast<int>(op)];
    if (!b.empty()) nan_image[static_cast<int>(op)].assign(b.payload(), b.payload() + b.bytes());
  }
  repoison(inputs, Poison::kLow);
  for (Operand op : kValues) {
    GuardedBuffer& b = inputs.buffers[static_cast<int>(op)];
    const auto& before = nan_image[static_cast<int>(op)];
    if (b.empty()) continue;
    const int64_t bytes = format_bytes(tensor_of(inputs.tensors, op).format), elements = b.bytes() / bytes;
    std::vector<int64_t> poison;  // elements, ascending
    for (int64_t i = 0; i < elements; ++i)
      if (std::memcmp(before.data() + i * bytes, b.payload() + i * bytes, static_cast<size_t>(bytes)) != 0)
        poison.push_back(i);
    const auto values = static_cast<uint64_t>(elements) - poison.size();
    // The n-th element that is no poison: a list of them would be several times the size of the cache.
    const auto value = [&](uint64_t n) {
      size_t before_it = 0, end = poison.size();  // how many poisoned ones lie in front of it
      while (before_it < end) {
        const size_t middle = (before_it + end) / 2;
        if (static_cast<uint64_t>(poison[middle]) - middle <= n)
          before_it = middle + 1;
        else
          end = middle;
      }
      return static_cast<int64_t>(n + before_it);
    };
    const CounterRng rng(p.seed, kStreamOrdinary + static_cast<uint64_t>(op));
    // Places all over the cache: they are known before they are read, so that the reads overlap.
    const auto count = values > 0 ? static_cast<int64_t>(poison.size()) : 0;
#pragma omp parallel for schedule(static) if (count > kManyPlaces)
    for (int64_t first = 0; first < count; first += kReadAhead) {
      const int64_t some = std::min(kReadAhead, count - first);
      std::array<const std::byte*, kReadAhead> from;
      for (int64_t i = 0; i < some; ++i) {
        from[i] = b.payload() + value(rng.below(static_cast<uint64_t>(first + i), values)) * bytes;
        __builtin_prefetch(from[i]);
      }
      for (int64_t i = 0; i < some; ++i)
        std::memcpy(b.payload() + poison[first + i] * bytes, from[i], static_cast<size_t>(bytes));
    }
  }
  for (Operand op : {Operand::kO, Operand::kLse}) {
    GuardedBuffer& b = inputs.buffers[static_cast<int>(op)];
    if (!b.empty()) std::memset(b.payload(), 0, static_cast<size_t>(b.bytes()));
  }
}

std::vector<RowId> all_rows(const Problem& p) {
  std::vector<RowId> rows;
  for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; ++i) rows.push_back({r, i});
  return rows;
}

// The precision in which a peer would have written its reference.
int32_t torch_format(const Problem& p) {
  return p.q_format == ASSAY_FP32 || p.q_format == ASSAY_FP16 || p.q_format == ASSAY_BF16
             ? p.q_format
             : int32_t{ASSAY_BF16};
}

double fp32_at(const assay_tensor& t, int64_t i) {
  return static_cast<const float*>(t.data)[i * t.stride[0]];
}

}  // namespace

struct PeerCase::Impl {
  Problem problem;
  Inputs inputs;
  std::vector<RowId> rows;
  mutable std::optional<PeerOutputs> exact, low;

  explicit Impl(const Problem& p) : problem(p), inputs(build_inputs(p)), rows(all_rows(p)) {
    make_ordinary(inputs);
  }
  HostOperands host() const {
    return {&inputs.tensors, inputs.q_scale_host, inputs.k_scale_host, inputs.v_scale_host};
  }
  void low_rows(int request, int32_t kv_head, int64_t first_row, PeerOutputs& out) const;
  double bias(int32_t head, int64_t distance) const {
    if (problem.alibi == ASSAY_ALIBI_NONE || distance < 0) return 0;
    const double slope = fp32_at(inputs.tensors.alibi_slopes, head);
    const auto d = static_cast<double>(distance);
    return -slope * (problem.alibi == ASSAY_ALIBI_SQRT ? std::sqrt(d) : d);
  }
};

// All rows and heads that read one KV head of one request.
void PeerCase::Impl::low_rows(int request, int32_t kv_head, int64_t first_row, PeerOutputs& out) const {
  const Problem& p = problem;
  const Request& r = p.requests[request];
  const int32_t format = torch_format(p), dq = p.head_dim_qk, dv = p.head_dim_v;
  DenseKv kv = gather_kv(p, host(), request, kv_head);
  for (double& x : kv.v) x = round_to(format, x);
  // Keys as columns, so that the products of a row with all keys are vector operations.
  std::vector<double> columns(kv.k.size());
  for (int64_t j = 0; j < r.kv_len; ++j)
    for (int64_t d = 0; d < dq; ++d)
      columns[d * r.kv_len + j] = round_to(format, kv.k[j * dq + d] * p.softmax_scale);
  std::vector<double> weight(static_cast<size_t>(r.kv_len)), o(static_cast<size_t>(dv));
  for (int32_t i = 0; i < r.q_len; ++i) {
    std::vector<double> q = gather_q(p, host(), {request, i});
    for (double& x : q) x = round_to(format, x);
    for (int32_t head = kv_head * p.group(); head < (kv_head + 1) * p.group(); ++head) {
      const double* qh = q.data() + int64_t{head} * dq;
      double top = p.sinks ? fp32_at(inputs.tensors.sinks, head) : -kInf;
      std::fill(weight.begin(), weight.end(), 0.0);
      for (int32_t d = 0; d < dq; ++d) {
        const double* column = columns.data() + int64_t{d} * r.kv_len;
        for (int32_t j = 0; j < r.kv_len; ++j) weight[j] += qh[d] * column[j];
      }
      for (int32_t j = 0; j < r.kv_len; ++j) {
        if (!visible(p, request, i, j)) {
          weight[j] = -kInf;
          continue;
        }
        double s = round_to(format, weight[j]);
        if (p.softcap > 0) s = round_to(format, p.softcap * std::tanh(s / p.softcap));
        if (p.alibi != ASSAY_ALIBI_NONE)
          s = round_to(format, s + bias(head, int64_t{r.context_len()} + i - j));
        weight[j] = s;
        top = std::max(top, s);
      }
      const int64_t row = (first_row + i) * p.heads_q + head;
      if (top == -kInf) {
        out.lse[row] = -kInf;
        continue;
      }
      double sum = p.sinks ? std::exp(fp32_at(inputs.tensors.sinks, head) - top) : 0;
      for (double& w : weight) sum += w = w == -kInf ? 0.0 : std::exp(w - top);
      std::fill(o.begin(), o.end(), 0.0);
      for (int32_t j = 0; j < r.kv_len; ++j) {
        const double w = round_to(format, weight[j] / sum);
        if (w == 0) continue;
        const double* v = kv.v.data() + int64_t{j} * dv;
        for (int32_t d = 0; d < dv; ++d) o[d] += w * v[d];
      }
      for (int32_t d = 0; d < dv; ++d) out.o[row * dv + d] = round_to(p.o_format, round_to(format, o[d]));
      out.lse[row] = top + std::log(sum);
    }
  }
}

PeerOutputs outputs_of(const assay_tensor& o, const assay_tensor& lse) {
  const auto read = [](const assay_tensor& t) {
    std::vector<double> to;
    if (t.data == nullptr) return to;
    const int64_t dims = t.rank > 2 ? t.shape[2] : 1;
    to.reserve(static_cast<size_t>(t.shape[0] * t.shape[1] * dims));
    for (int64_t row = 0; row < t.shape[0]; ++row)
      for (int64_t h = 0; h < t.shape[1]; ++h)
        for (int64_t d = 0; d < dims; ++d)
          to.push_back(load(t.format, t.data, row * t.stride[0] + h * t.stride[1] + d * t.stride[2]));
    return to;
  };
  return {read(o), read(lse)};
}

PeerCase::PeerCase(const Problem& p) : impl_(std::make_unique<Impl>(p)) {}
PeerCase::~PeerCase() = default;
const Problem& PeerCase::problem() const { return impl_->problem; }
const assay_problem* PeerCase::view() const { return impl_->inputs.view->get(); }
const Inputs& PeerCase::inputs() const { return impl_->inputs; }

const PeerOutputs& PeerCase::exact() const {
  if (!impl_->exact) {
    AttentionResult a = attention_fast(impl_->problem, impl_->host(), impl_->rows);
    for (double& x : a.o) x = round_to(impl_->problem.o_format, x);
    impl_->exact = PeerOutputs{std::move(a.o), std::move(a.lse)};
  }
  return *impl_->exact;
}

const PeerOutputs& PeerCase::low_precision() const {
  if (!impl_->low) {
    const Problem& p = impl_->problem;
    PeerOutputs out;
    out.o.assign(impl_->rows.size() * p.heads_q * p.head_dim_v, 0.0);
    out.lse.assign(impl_->rows.size() * p.heads_q, 0.0);
    int64_t first = 0;
    for (int r = 0; r < static_cast<int>(p.requests.size()); first += p.requests[r++].q_len)
      for (int32_t h = 0; h < p.heads_kv && p.requests[r].q_len > 0; ++h) impl_->low_rows(r, h, first, out);
    impl_->low = std::move(out);
  }
  return *impl_->low;
}

PeerCase::Run PeerCase::run(const Catalogue& c, const assay_kernel& kernel) const {
  const Impl& m = *impl_;
  DeviceCase device(c.backend, m.inputs, call_workspace(kernel, view()));
  const CallResult r = call_once(c.backend, kernel, view(), device.tensors());
  if (!r.ok()) return {std::nullopt, r.error.empty() ? "the kernel failed" : r.error};

  const Snapshot left(m.inputs, device);
  return {outputs_of(left.view(m.inputs, Operand::kO), left.view(m.inputs, Operand::kLse)), ""};
}

}  // namespace assay
