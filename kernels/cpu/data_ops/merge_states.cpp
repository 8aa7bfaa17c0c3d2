// SPDX-License-Identifier: Apache-2.0
// merge_states_cpu: N partial results of every row and head into one, relative to their common maximum. One
// pass over the LSE, one over the values; empty states are never looked at, since their O may be anything.
#include <cmath>
#include <limits>

#include "kernels/common/formats.hpp"
#include "kernels/cpu/data_ops/data_op_kernel.hpp"

namespace assay_cpu {

using namespace assay_kernels;
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// sum[d] += weight * row[d]; one loop per format, so that each becomes vector code where the row is dense.
template <class Load>
void add_row(float* sum, float weight, int32_t dims, const Load& load) {
  for (int32_t d = 0; d < dims; ++d) sum[d] += weight * load(d);
}

void add_state(const RowsView& view, int64_t offset, float weight, int32_t dims, float* sum) {
  const unsigned char* row = view.data + offset * view.element_bytes;
  if (view.dim != 1) {
    add_row(sum, weight, dims,
            [&](int32_t d) { return load_element(view.data, offset + d * view.dim, view.format); });
  } else if (view.format == ASSAY_FP32) {
    add_row(sum, weight, dims, [&](int32_t d) {
      float x;
      memcpy(&x, row + 4 * d, 4);
      return x;
    });
  } else if (view.format == ASSAY_BF16) {
    add_row(sum, weight, dims, [&](int32_t d) {
      uint16_t code;
      memcpy(&code, row + 2 * d, 2);
      return float_from_bf16(code);
    });
  } else {
    add_row(sum, weight, dims, [&](int32_t d) {
      uint16_t code;
      memcpy(&code, row + 2 * d, 2);
      return float_from_fp16(code);
    });
  }
}

void merge(const DataOpOperands& b, int64_t row, int32_t head) {
  const assay_problem& p = b.a.p;
  const float sink = p.has_sinks ? b.a.sinks[head * b.a.sinks_stride] : -kInfinity;
  const float* lse = b.partial_lse + row * b.partial_lse_stride[1] + head * b.partial_lse_stride[2];
  float top = sink;
  for (int32_t s = 0; s < p.states; ++s) top = std::fmax(top, lse[s * b.partial_lse_stride[0]]);

  float sum[kMaxHeadDim];
  for (int32_t d = 0; d < p.head_dim_v; ++d) sum[d] = 0.0f;
  float weights = sink > -kInfinity ? std::exp(sink - top) : 0.0f;
  for (int32_t s = 0; s < p.states; ++s) {
    const float own = lse[s * b.partial_lse_stride[0]];
    if (own == -kInfinity) continue;
    const float weight = std::exp(own - top);
    weights += weight;
    add_state(b.partial_o, s * b.partial_o.state + row * b.partial_o.row + head * b.partial_o.head, weight,
              p.head_dim_v, sum);
  }
  const bool nothing = weights == 0.0f;
  const int64_t first = row * b.o.row + head * b.o.head;
  for (int32_t d = 0; d < p.head_dim_v; ++d)
    store_element(b.o.data, first + d * b.o.dim, b.o.format, nothing ? 0.0f : sum[d] / weights);
  b.lse[row * b.lse_stride[0] + head * b.lse_stride[1]] = nothing ? -kInfinity : top + std::log(weights);
}

int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  assay_arithmetic m{};
  m.exp_relative_error = 0x1p-23;  // as naive.cpp: naive_test.cpp measures it
  fill_struct(out, m);
  return ASSAY_OK;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  return run_data_op(self, p, t, error, size, [p](const DataOpOperands& b) {
    const int64_t units = p->rows * p->heads_q;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < units; ++n)
      if (row_is_live(b.live_rows, n / p->heads_q))
        merge(b, n / p->heads_q, static_cast<int32_t>(n % p->heads_q));
  });
}

}  // namespace

const assay_kernel kMergeStates =
    data_op_kernel(ASSAY_OP_MERGE_STATES, "merge_states_cpu",
                   "merge of N partial results, one thread per row and head", arithmetic, run);

}  // namespace assay_cpu
