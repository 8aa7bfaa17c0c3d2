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
#include "harness/input/operand_layout.hpp"
#include "harness/input/scale_set.hpp"
#include "harness/input/tables.hpp"
#include "harness/input/value_source.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

GuardedBuffer& buffer_of(Inputs& inputs, Operand operand) {
  return inputs.buffers[static_cast<int>(operand)];
}

void allocate(Inputs& inputs) {
  const Problem& p = inputs.problem;
  const bool shared = p.op == ASSAY_OP_PAGED && PagedCache(p).shared_allocation();
  inputs.tensors.struct_size = sizeof(assay_tensors);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    const TensorLayout layout = operand_layout(p, operand);
    if (layout.rank == 0) continue;
    GuardedBuffer& buffer = buffer_of(inputs, operand);
    const int64_t bytes = format_bytes(layout.format);
    if (operand == Operand::kV && shared) {
      buffer = buffer_of(inputs, Operand::kK);
    } else {
      buffer = GuardedBuffer(layout.allocation * bytes);
    }
    assay_tensor& tensor = tensor_of(inputs.tensors, operand);
    tensor.data = buffer.payload() + layout.offset * bytes;
    tensor.format = layout.format;
    tensor.rank = layout.rank;
    std::copy_n(layout.shape, ASSAY_MAX_RANK, tensor.shape);
    std::copy_n(layout.stride, ASSAY_MAX_RANK, tensor.stride);
  }
}

void write_static_scales(Inputs& inputs, const ScaleSet& scales, int32_t kind, Operand operand) {
  if (has_scale_tensor(kind) && kind != ASSAY_SCALE_TOKEN_HEAD)
    scales.write(operand_layout(inputs.problem, operand), buffer_of(inputs, operand).payload());
}

// One operand in rows: where the codes go and, for TOKEN_HEAD, where the row's scale goes.
struct RowTarget {
  const ScaleSet& scales;
  std::byte* payload;
  int32_t format, dims;
  float* row_scales = nullptr;  // TOKEN_HEAD only
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

// q, and k and v of the prefill op: [rows, heads, dim] with the last axis dense.
template <class Row>
void write_ragged(const RowTarget& to, const TensorLayout& t, const TensorLayout& scale_layout,
                  const std::vector<int32_t>& first_row, const Row& row) {
  const int64_t bytes = format_bytes(to.format);
#pragma omp parallel if (t.elements() > kParallelElements)
  {
    std::vector<double> values(to.dims);
#pragma omp for schedule(static)
    for (int64_t at = 0; at < first_row.back(); ++at) {
      const auto request =
          static_cast<int>(std::upper_bound(first_row.begin(), first_row.end(), at) - first_row.begin()) - 1;
      const auto i = static_cast<int32_t>(at - first_row[request]);
      for (int32_t head = 0; head < t.shape[1]; ++head) {
        row(request, i, head, values.data());
        const float scale =
            to.scales.encode_row(request, i, head, values.data(), to.payload + t.at({at, head, 0}) * bytes);
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
                 const std::vector<PageJob>& jobs, const Offset& offset, const Row& row) {
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
          row(job.request, first + slot, head, values.data());
          std::byte* const whole = to.payload + offset(job.block, slot, head, 0) * bytes;
          const bool dense = run == to.dims;
          const float scale = to.scales.encode_row(job.request, first + slot, head, values.data(),
                                                   dense ? whole : codes.data());
          if (!dense)
            for (int32_t dim = 0; dim < to.dims; dim += run)
              std::memcpy(to.payload + offset(job.block, slot, head, dim) * bytes, codes.data() + dim * bytes,
                          std::min(run, to.dims - dim) * bytes);
          if (to.row_scales != nullptr) to.row_scales[scale_layout.at({job.block, head, slot})] = scale;
        }
    }
  }
}

void write_q(Inputs& inputs, const ValueSource& source, const ScaleSet& scales) {
  const Problem& p = inputs.problem;
  write_ragged(row_target(inputs, scales, Operand::kQ, p.q_scale, p.head_dim_qk),
               operand_layout(p, Operand::kQ), operand_layout(p, Operand::kQScale), p.cu_q(),
               [&](int r, int32_t row, int32_t head, double* out) { source.q(r, row, head, out); });
}

void write_kv(Inputs& inputs, const ValueSource& source, const ScaleSet& k_scales, const ScaleSet& v_scales) {
  const Problem& p = inputs.problem;
  const RowTarget k = row_target(inputs, k_scales, Operand::kK, p.k_scale, p.head_dim_qk);
  const RowTarget v = row_target(inputs, v_scales, Operand::kV, p.v_scale, p.head_dim_v);
  const TensorLayout k_scale = operand_layout(p, Operand::kKScale),
                     v_scale = operand_layout(p, Operand::kVScale);
  const auto k_row = [&](int r, int32_t t, int32_t h, double* out) { source.k(r, t, h, out); };
  const auto v_row = [&](int r, int32_t t, int32_t h, double* out) { source.v(r, t, h, out); };
  if (p.op != ASSAY_OP_PAGED) {
    write_ragged(k, operand_layout(p, Operand::kK), k_scale, p.cu_kv(), k_row);
    write_ragged(v, operand_layout(p, Operand::kV), v_scale, p.cu_kv(), v_row);
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
  write_pages(p, k, k_scale, jobs, k_offset, k_row);
  if (p.layout != ASSAY_LAYOUT_MLA) {
    write_pages(p, v, v_scale, jobs, v_offset, v_row);
  } else if (v.row_scales != nullptr) {
    // V of a latent cache has K's codes and therefore K's scales, in a tensor of its own.
    for (const PageJob& job : jobs)
      for (int32_t slot = 0;
           slot < std::min(p.page_size, p.requests[job.request].kv_len - job.page * p.page_size); ++slot)
        v.row_scales[v_scale.at({job.block, 0, slot})] = k.row_scales[k_scale.at({job.block, 0, slot})];
  }
}

void write_exact_answer(Inputs& inputs, const ValueSource& source) {
  const Problem& p = inputs.problem;
  const std::vector<int32_t> first_row = p.cu_q();
  inputs.exact_o.assign(p.total_q() * p.heads_q * p.head_dim_v, 0.0);
  inputs.exact_lse.assign(p.total_q() * p.heads_q, -std::numeric_limits<double>::infinity());
  const bool parallel = static_cast<int64_t>(inputs.exact_o.size()) > kParallelElements;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
#pragma omp parallel for schedule(dynamic, 4) if (parallel)
    for (int32_t row = 0; row < p.requests[r].q_len; ++row) {
      std::vector<double> value(p.head_dim_v);
      for (int32_t head = 0; head < p.heads_q; ++head) {
        const std::vector<int32_t> keys = source.exact()->matching_keys(r, row, head);
        if (keys.empty()) continue;
        const int64_t at = (int64_t{first_row[r]} + row) * p.heads_q + head;
        double* o = inputs.exact_o.data() + at * p.head_dim_v;
        for (int32_t key : keys) {
          source.v(r, key, head / p.group(), value.data());
          for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] += value[d];
        }
        for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] /= static_cast<double>(keys.size());
        inputs.exact_lse[at] = std::log(static_cast<double>(keys.size()));
      }
    }
}

}  // namespace

Inputs build_inputs(const Problem& problem, Poison poison) {
  check_problem(problem);
  Inputs inputs;
  inputs.problem = problem;
  const Problem& p = inputs.problem;
  const ValueSource source(p);  // before any allocation: it may refuse the recipe
  allocate(inputs);

  const ScaleSet q_scales(p, source, Side::kQ), k_scales(p, source, Side::kK);
  const ScaleSet v_scales(p, source, Side::kV);
  write_static_scales(inputs, q_scales, p.q_scale, Operand::kQScale);
  write_static_scales(inputs, k_scales, p.k_scale, Operand::kKScale);
  write_static_scales(inputs, v_scales, p.v_scale, Operand::kVScale);
  inputs.q_scale_host = q_scales.host_value();
  inputs.k_scale_host = k_scales.host_value();
  inputs.v_scale_host = v_scales.host_value();

  write_q(inputs, source, q_scales);
  write_kv(inputs, source, k_scales, v_scales);
  write_tables(inputs);
  if (source.exact() != nullptr) write_exact_answer(inputs, source);
  repoison(inputs, poison);
  inputs.view =
      std::make_unique<ProblemView>(p, inputs.q_scale_host, inputs.k_scale_host, inputs.v_scale_host);
  return inputs;
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
