// SPDX-License-Identifier: Apache-2.0
// From a Problem to buffers: allocate every operand, write rows of values through the scales into their
// place, then tables, then poison around it all. Rows are independent and drawn by counter, so threads
// only divide the work. Order of writing does not matter: no byte belongs to two writers.
#include "harness/input/inputs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/input/data_op_inputs.hpp"
#include "harness/input/poison.hpp"
#include "harness/input/scale_set.hpp"
#include "harness/input/schedules.hpp"
#include "harness/input/spans.hpp"
#include "harness/input/tables.hpp"
#include "harness/input/value_source.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

GuardedBuffer& buffer_of(Inputs& inputs, Operand operand) {
  return inputs.buffers[static_cast<int>(operand)];
}

// A cache of which little is used lies in sparse memory, or blocks far apart would cost what lies between.
GuardedBuffer buffer_for(const Problem& p, Operand operand, const TensorLayout& layout) {
  const int64_t bytes = layout.allocation * format_bytes(layout.format);
  if ((operand != Operand::kK && operand != Operand::kV) || !is_far_apart(p)) return GuardedBuffer(bytes);
  return GuardedBuffer(bytes, bytes_of_blocks(p, operand, kept_blocks(p)));
}

void allocate(Inputs& inputs, const Placement& where) {
  const Problem& p = inputs.problem;
  const bool shared = op_of(p).has_cache && PagedCache(p).shared_allocation();
  inputs.tensors.struct_size = sizeof(assay_tensors);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    const TensorLayout layout = operand_layout(p, operand);
    if (layout.rank == 0) continue;
    const int64_t bytes = format_bytes(layout.format);
    const bool elsewhere =
        std::any_of(where.shared.begin(), where.shared.end(), [&](auto& s) { return s.first == operand; });
    if (operand == Operand::kV && shared)
      inputs.buffers.bind(operand, inputs.buffers[Operand::kK]);
    else if (elsewhere)
      inputs.buffers.bind(operand, GuardedBuffer(layout.allocation * bytes));  // until share()
    else
      inputs.buffers.add(operand, buffer_for(p, operand, layout));
    GuardedBuffer& buffer = inputs.buffers[operand];
    assay_tensor& tensor = tensor_of(inputs.tensors, operand);
    tensor.data = buffer.payload() + layout.offset * bytes;
    tensor.format = layout.format;
    tensor.rank = layout.rank;
    tensor.role = static_cast<int32_t>(role_of(p, operand));
    std::copy_n(layout.shape, ASSAY_MAX_RANK, tensor.shape);
    std::copy_n(layout.stride, ASSAY_MAX_RANK, tensor.stride);
  }
}

// Every operand that lies in the buffer of `operand` moves to `to`.
void share(Inputs& inputs, Operand operand, const GuardedBuffer& to) {
  const GuardedBuffer from = inputs.buffers[operand];
  ASSAY_CHECK(from.bytes() == to.bytes() && !to.empty(), "{} has {} bytes, the buffer it is to share {}",
              operand_name(operand), from.bytes(), to.bytes());
  for (int i = 0; i < kOperandCount; ++i) {
    if (inputs.buffers[i].raw() != from.raw()) continue;
    assay_tensor& tensor = tensor_of(inputs.tensors, static_cast<Operand>(i));
    inputs.buffers[i] = to;
    tensor.data = inputs.buffers[i].payload() + (static_cast<std::byte*>(tensor.data) - from.payload());
  }
}

void write_static_scales(Inputs& inputs, const ScaleSet& scales, int32_t kind, Operand operand,
                         const std::vector<RequestOrigin>& origins) {
  const TensorLayout layout = operand_layout(inputs.problem, operand);
  if (layout.rank > 0 && kind != ASSAY_SCALE_TOKEN_HEAD && !inputs.problem.computed_scales)
    scales.write(layout, buffer_of(inputs, operand).payload(), origins);
}

// One operand in rows: where the codes go and, for TOKEN_HEAD, where the row's scale goes.
struct RowTarget {
  const ScaleSet& scales;
  std::byte* payload;
  int32_t format, dims;
  float* row_scales = nullptr;  // TOKEN_HEAD only
  // Of rows in two tensors: where dimensions go that the first has no room for.
  std::byte* rest = nullptr;
  TensorLayout rest_layout{};
};

RowTarget row_target(Inputs& inputs, const ScaleSet& scales, Operand operand, int32_t scale_kind,
                     int32_t dims) {
  const Operand scale = operand == Operand::kQ   ? Operand::kQScale
                        : operand == Operand::kK ? Operand::kKScale
                                                 : Operand::kVScale;
  return {scales, buffer_of(inputs, operand).payload(), tensor_of(inputs.tensors, operand).format, dims,
          scale_kind == ASSAY_SCALE_TOKEN_HEAD ? reinterpret_cast<float*>(buffer_of(inputs, scale).payload())
                                               : nullptr};
}

// A token where its values are defined.
struct Token {
  int request;
  int32_t index;  // row of Q, position of K and V
};
Token row_token(const RequestOrigin& o, int32_t row) { return {o.request, o.first_row + row}; }
Token key_token(const RequestOrigin& o, int32_t key) { return {o.request, o.first_key + key}; }

// q, and k and v of the prefill op: [rows, heads, dim].
template <class Place, class Row>
void write_ragged(const RowTarget& to, const TensorLayout& t, const TensorLayout& scale_layout,
                  const std::vector<int32_t>& first_row, const Place& token_of, const Row& row) {
  const int64_t bytes = format_bytes(to.format);
  const auto own = static_cast<int32_t>(t.shape[2]);
#pragma omp parallel if (t.elements() > kParallelElements)
  {
    std::vector<double> values(to.dims);
    std::vector<std::byte> codes(to.dims * bytes);
#pragma omp for schedule(static)
    for (int64_t at = 0; at < first_row.back(); ++at) {
      const int request = request_of_row(first_row, at);
      const Token token = token_of(request, static_cast<int32_t>(at - first_row[request]));
      for (int32_t head = 0; head < t.shape[1]; ++head) {
        row(token, head, values.data());
        std::byte* const whole = to.payload + t.at({at, head, 0}) * bytes;
        const bool dense = t.stride[2] == 1 && own == to.dims;
        const float scale = to.scales.encode_row(token.request, token.index, head, values.data(),
                                                 dense ? whole : codes.data());
        if (!dense) spread(codes.data(), static_cast<int>(bytes), own, t.stride[2], whole);
        if (to.rest != nullptr)
          spread(codes.data() + own * bytes, static_cast<int>(bytes), to.dims - own, to.rest_layout.stride[2],
                 to.rest + to.rest_layout.at({at, head, 0}) * bytes);
        if (to.row_scales != nullptr) to.row_scales[scale_layout.at({at, head})] = scale;
      }
    }
  }
}

// The pages to write: each physical block once, through the first request that keeps it.
struct PageJob {
  int request;
  int32_t page, block;
};

std::vector<PageJob> page_jobs(const Problem& p) {
  std::vector<PageJob> jobs;
  std::vector<char> seen(p.num_blocks, 0);
  for (int r = 0; r < static_cast<int>(p.pages.size()); ++r) {
    const PageRange keep = resident_pages(p, r);
    for (int32_t page = keep.first; page < keep.last; ++page)
      if (!seen[p.pages[r][page]]++) jobs.push_back({r, page, p.pages[r][page]});
  }
  return jobs;
}

template <class Offset, class Row>
void write_pages(const Problem& p, const RowTarget& to, const TensorLayout& scale_layout,
                 const std::vector<PageJob>& jobs, const std::vector<RequestOrigin>& origins,
                 const Offset& offset, const Row& row) {
  const int64_t bytes = format_bytes(to.format);
  const int32_t run = contiguous_run([&](int32_t d) { return offset(0, 0, 0, d); }, to.dims);
  const bool parallel =
      static_cast<int64_t>(jobs.size()) * p.page_size * p.heads_kv * to.dims > kParallelElements;
#pragma omp parallel if (parallel)
  {
    std::vector<double> values(to.dims);
    std::vector<std::byte> codes(to.dims * bytes);
#pragma omp for schedule(dynamic, 8)
    for (size_t j = 0; j < jobs.size(); ++j) {
      const PageJob& job = jobs[j];
      const int32_t first = job.page * p.page_size;
      const int32_t count = std::min(p.page_size, p.requests[job.request].kv_len - first);
      for (int32_t head = 0; head < p.heads_kv; ++head)
        for (int32_t slot = 0; slot < count; ++slot) {
          const Token token = key_token(origins[job.request], first + slot);
          row(token, head, values.data());
          const int32_t at = slot_of(p, job.block, slot);
          std::byte* const whole = to.payload + offset(job.block, at, head, 0) * bytes;
          const bool dense = run == to.dims;
          const float scale = to.scales.encode_row(token.request, token.index, head, values.data(),
                                                   dense ? whole : codes.data());
          if (!dense)
            for (int32_t dim = 0; dim < to.dims; dim += run)
              std::memcpy(to.payload + offset(job.block, at, head, dim) * bytes, codes.data() + dim * bytes,
                          std::min(run, to.dims - dim) * bytes);
          if (to.row_scales != nullptr) to.row_scales[scale_layout.at({job.block, head, at})] = scale;
        }
    }
  }
}

void write_q(Inputs& inputs, const std::vector<RequestOrigin>& origins, const ValueSource& source,
             const ScaleSet& scales) {
  const Problem& p = inputs.problem;
  RowTarget to = row_target(inputs, scales, Operand::kQ, p.q_scale, p.head_dim_qk);
  if (p.split_latent && p.layout == ASSAY_LAYOUT_MLA)
    to.rest = buffer_of(inputs, Operand::kRope).payload(), to.rest_layout = operand_layout(p, Operand::kRope);
  const auto forbid_padding = [&](Operand operand) {  // NaN where there is one
    const TensorLayout t = operand_layout(p, operand);
    const int64_t live = p.total_q() * t.stride[0] * format_bytes(t.format);
    GuardedBuffer& buffer = inputs.buffers[operand];
    std::memset(buffer.payload() + live, 0xff, static_cast<size_t>(buffer.bytes() - live));
  };
  if (p.padded_rows > 0) forbid_padding(Operand::kQ);
  if (p.padded_rows > 0 && to.rest != nullptr) forbid_padding(Operand::kRope);
  write_ragged(
      to, operand_layout(p, Operand::kQ), operand_layout(p, Operand::kQScale), p.cu_q(),
      [&](int r, int32_t row) { return row_token(origins[r], row); },
      [&](Token t, int32_t head, double* out) { source.q(t.request, t.index, head, out); });
}

void write_kv(Inputs& inputs, const std::vector<RequestOrigin>& origins, const ValueSource& source,
              const ScaleSet& k_scales, const ScaleSet& v_scales) {
  const Problem& p = inputs.problem;
  const RowTarget k = row_target(inputs, k_scales, Operand::kK, p.k_scale, p.head_dim_qk);
  const RowTarget v = row_target(inputs, v_scales, Operand::kV, p.v_scale, p.head_dim_v);
  const TensorLayout k_scale = operand_layout(p, Operand::kKScale),
                     v_scale = operand_layout(p, Operand::kVScale);
  const auto k_row = [&](Token t, int32_t h, double* out) { source.k(t.request, t.index, h, out); };
  const auto v_row = [&](Token t, int32_t h, double* out) { source.v(t.request, t.index, h, out); };
  if (!op_of(p).has_cache) {
    const auto place = [&](int r, int32_t key) { return key_token(origins[r], key); };
    write_ragged(k, operand_layout(p, Operand::kK), k_scale, p.cu_kv(), place, k_row);
    write_ragged(v, operand_layout(p, Operand::kV), v_scale, p.cu_kv(), place, v_row);
    return;
  }
  const PagedCache cache(p);
  const std::vector<PageJob> jobs = page_jobs(p);
  const auto k_offset = [&](int64_t b, int32_t s, int32_t h, int32_t d) {
    return cache.k_offset(b, s, h, d);
  };
  const auto v_offset = [&](int64_t b, int32_t s, int32_t h, int32_t d) {
    return cache.v_offset(b, s, h, d);
  };
  write_pages(p, k, k_scale, jobs, origins, k_offset, k_row);
  if (p.layout != ASSAY_LAYOUT_MLA) {
    write_pages(p, v, v_scale, jobs, origins, v_offset, v_row);
  } else if (v.row_scales != nullptr) {
    // V of a latent cache has K's codes and therefore K's scales, in a tensor of its own.
    for (const PageJob& job : jobs)
      for (int32_t i = 0; i < std::min(p.page_size, p.requests[job.request].kv_len - job.page * p.page_size);
           ++i) {
        const int32_t slot = slot_of(p, job.block, i);
        v.row_scales[v_scale.at({job.block, 0, slot})] = k.row_scales[k_scale.at({job.block, 0, slot})];
      }
  }
}

void write_exact_answer(Inputs& inputs, const ExactRecipe& recipe) {
  const Problem& p = inputs.problem;
  const std::vector<int32_t> first_row = p.cu_q();
  inputs.exact_o.assign(p.total_q() * p.heads_q * p.head_dim_v, 0.0);
  inputs.exact_lse.assign(p.total_q() * p.heads_q, 0.0);
  const bool parallel = static_cast<int64_t>(inputs.exact_o.size()) > kParallelElements;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
#pragma omp parallel for schedule(dynamic, 4) if (parallel)
    for (int32_t row = 0; row < p.requests[r].q_len; ++row)
      for (int32_t head = 0; head < p.heads_q; ++head) {
        const int64_t at = (int64_t{first_row[r]} + row) * p.heads_q + head;
        inputs.exact_lse[at] = recipe.answer(r, row, head, inputs.exact_o.data() + at * p.head_dim_v);
      }
}

// The derived problem holds values of the whole, so it must have room for exactly those.
void check_derivation(const Problem& whole, const Problem& p, const Derivation& d) {
  ASSAY_CHECK(p.op == whole.op && p.heads_q == whole.heads_q && p.heads_kv == whole.heads_kv &&
                  p.head_dim_qk == whole.head_dim_qk && p.head_dim_v == whole.head_dim_v &&
                  (p.layout == ASSAY_LAYOUT_MLA) == (whole.layout == ASSAY_LAYOUT_MLA) &&
                  p.softmax_scale == whole.softmax_scale,
              "a derived problem must keep op, heads, dimensions and scale of the whole");
  ASSAY_CHECK(p.q_format == whole.q_format && p.k_format == whole.k_format && p.v_format == whole.v_format &&
                  p.q_scale == whole.q_scale && p.k_scale == whole.k_scale && p.v_scale == whole.v_scale,
              "a derived problem must keep the operand formats of the whole");
  ASSAY_CHECK(d.requests.size() == p.requests.size(), "origins of {} requests for {}", d.requests.size(),
              p.requests.size());
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const RequestOrigin& o = d.requests[r];
    ASSAY_CHECK(o.request >= 0 && o.request < static_cast<int>(whole.requests.size()) && o.first_row >= 0 &&
                    o.first_key >= 0,
                "request {} comes from request {} of {}, row {}, key {}", r, o.request, whole.requests.size(),
                o.first_row, o.first_key);
    const Request& from = whole.requests[o.request];
    ASSAY_CHECK(
        o.first_row + p.requests[r].q_len <= from.q_len && o.first_key + p.requests[r].kv_len <= from.kv_len,
        "request {} wants rows to {} of {} and keys to {} of {}", r, o.first_row + p.requests[r].q_len,
        from.q_len, o.first_key + p.requests[r].kv_len, from.kv_len);
  }
}

}  // namespace

struct InputValues::Impl {
  Problem problem;
  ValueSource source;
  ScaleSet q, k, v;
  std::vector<float> sinks;

  explicit Impl(const Problem& p)
      : problem(p),
        source(problem),
        q(problem, source, Side::kQ),
        k(problem, source, Side::kK),
        v(problem, source, Side::kV),
        sinks(sink_logits(problem)) {}
};

InputValues::InputValues(const Problem& problem) {
  check_problem(problem);
  impl_ = std::make_unique<Impl>(problem);
}
InputValues::~InputValues() = default;
const Problem& InputValues::problem() const { return impl_->problem; }

Inputs InputValues::build(const Problem& derived, const Derivation& derivation, Poison poison,
                          const Placement& where) const {
  check_problem(derived);
  check_derivation(impl_->problem, derived, derivation);
  const std::vector<RequestOrigin>& origins = derivation.requests;
  Inputs inputs;
  inputs.problem = derived;
  const Problem& p = inputs.problem;
  inputs.buffers = Bindings(where.set, where.prefix);
  allocate(inputs, where);

  write_static_scales(inputs, impl_->q, p.q_scale, Operand::kQScale, origins);
  write_static_scales(inputs, impl_->k, p.k_scale, Operand::kKScale, origins);
  write_static_scales(inputs, impl_->v, p.v_scale, Operand::kVScale, origins);
  inputs.q_scale_host = impl_->q.host_value();
  inputs.k_scale_host = impl_->k.host_value();
  inputs.v_scale_host = impl_->v.host_value();

  std::vector<float> sinks = impl_->sinks;
  if (derivation.sink_logit) sinks.assign(p.heads_q, *derivation.sink_logit);
  for (const OperandUse& use : op_of(p).operands) {
    if (!holds_values(p, use.operand) || tensor_of(inputs.tensors, use.operand).rank == 0) continue;
    switch (use.operand) {
      case Operand::kQ:
        write_q(inputs, origins, impl_->source, impl_->q);
        break;
      case Operand::kK:
        write_kv(inputs, origins, impl_->source, impl_->k, impl_->v);
        break;
      case Operand::kPartialO:
        write_states(inputs);
        break;
      case Operand::kDenseK:
        write_new_tokens(inputs, impl_->source);
        break;
      case Operand::kSource:
        write_values_to_quantise(inputs, impl_->source);
        break;
      case Operand::kSlotMapping:
        write_slots(inputs);
        break;
      case Operand::kSeqStarts:
        write_starts(inputs);
        break;
      case Operand::kTokenToBatch:
        write_row_requests(inputs);
        break;
      case Operand::kWorkIndptr:
      case Operand::kReduceIndptr:
        write_schedule(inputs);
        break;
      case Operand::kWorkInfo:  // with the starts of the schedule
      case Operand::kReduceFinalMap:
      case Operand::kReducePartialMap:
        break;
      case Operand::kRope:    // with Q, or with dense K
      case Operand::kV:       // with K
      case Operand::kDenseV:  // with dense K
      case Operand::kDenseKScale:
      case Operand::kDenseVScale:
      case Operand::kPartialLse:  // with its O
      case Operand::kQScale:      // above: before what is divided by them
      case Operand::kKScale:
      case Operand::kVScale:
        break;
      default:  // a table, or nothing draws it
        write_table(inputs, use.operand, sinks);
        break;
    }
  }
  repoison(inputs, poison);
  for (const auto& [operand, buffer] : where.shared)  // V of a shared allocation has moved with K
    if (inputs.buffers[operand].raw() != buffer.raw()) share(inputs, operand, buffer);
  inputs.view =
      std::make_unique<ProblemView>(p, inputs.q_scale_host, inputs.k_scale_host, inputs.v_scale_host);
  return inputs;
}

Inputs InputValues::build(Poison poison, const Placement& where) const {
  Derivation itself;
  for (int r = 0; r < static_cast<int>(problem().requests.size()); ++r) itself.requests.push_back({r, 0, 0});
  Inputs inputs = build(problem(), itself, poison, where);
  if (const ExactRecipe* recipe = impl_->source.exact()) write_exact_answer(inputs, *recipe);
  return inputs;
}

Inputs build_inputs(const Problem& problem, Poison poison) { return InputValues(problem).build(poison, {}); }
Inputs build_inputs(const Problem& problem, const Placement& where) {
  return InputValues(problem).build(Poison::kNaN, where);
}

double unquantized_k(const Problem& p, int request, int32_t position, int32_t head, int32_t dim) {
  std::vector<double> row(p.head_dim_qk);
  ValueSource(p).k(request, position, head, row.data());
  return row[dim];
}

double unquantized_v(const Problem& p, int request, int32_t position, int32_t head, int32_t dim) {
  std::vector<double> row(p.head_dim_v);
  ValueSource(p).v(request, position, head, row.data());
  return row[dim];
}

}  // namespace assay
