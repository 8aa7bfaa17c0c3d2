// SPDX-License-Identifier: Apache-2.0
// reduce_cpu: the partial results of cut tiles into their rows, one thread per tile, row by row.
#include <cmath>
#include <limits>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/formats.hpp"
#include "kernels/common/persistent.hpp"
#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {

using namespace assay_kernels;
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void merge_tile(const ReduceOperands& b, int64_t tile) {
  const ScheduleView& s = b.schedule;
  const int32_t begin = s.reduce_indptr[tile * s.reduce_indptr_stride],
                end = s.reduce_indptr[(tile + 1) * s.reduce_indptr_stride];
  if (begin >= end) return;
  const int32_t* to = s.reduce_final_map + tile * s.reduce_final_map_stride[0];
  const int32_t first_row = to[0], end_row = to[s.reduce_final_map_stride[1]],
                kv_head = to[2 * s.reduce_final_map_stride[1]], group = b.p.heads_q / b.p.heads_kv;
  const auto part = [&](int32_t i) { return s.reduce_partial_map[i * s.reduce_partial_map_stride]; };
  float sum[kMaxHeadDim];
  for (int32_t row = first_row; row < end_row; ++row)
    for (int32_t j = 0; j < group; ++j) {
      const int64_t *by_o = b.tiles.o_stride, *by_lse = b.tiles.lse_stride;
      const float* lse = b.tiles.lse + (row - first_row) * by_lse[1] + j * by_lse[2];
      float top = -kInfinity, weights = 0.0f;
      for (int32_t i = begin; i < end; ++i) top = std::fmax(top, lse[part(i) * by_lse[0]]);
      for (int32_t d = 0; d < b.p.head_dim_v; ++d) sum[d] = 0.0f;
      for (int32_t i = begin; i < end; ++i) {
        const float own = lse[part(i) * by_lse[0]];
        if (own == -kInfinity) continue;  // its O may be anything
        const float weight = std::exp(own - top);
        weights += weight;
        const float* o = b.tiles.o + part(i) * by_o[0] + (row - first_row) * by_o[1] + j * by_o[2];
        for (int32_t d = 0; d < b.p.head_dim_v; ++d) sum[d] += weight * o[d * by_o[3]];
      }
      const bool nothing = weights == 0.0f;
      const int64_t head = int64_t{kv_head} * group + j, first = row * b.o_stride[0] + head * b.o_stride[1];
      for (int32_t d = 0; d < b.p.head_dim_v; ++d)
        store_element(b.o, first + d * b.o_stride[2], b.p.o_format, nothing ? 0.0f : sum[d] / weights);
      b.lse[row * b.lse_stride[0] + head * b.lse_stride[1]] = nothing ? -kInfinity : top + std::log(weights);
    }
}

int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  assay_arithmetic m{};
  m.exp_relative_error = 0x1p-23;  // as naive.cpp: naive_test.cpp measures it
  fill_struct(out, m);
  return ASSAY_OK;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  if (reduce_supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  ReduceOperands b;
  if (!make_reduce_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
#pragma omp parallel for schedule(dynamic)
  for (int64_t tile = 0; tile < p->workers; ++tile) merge_tile(b, tile);
  return ASSAY_OK;
}

}  // namespace

const assay_kernel kReduce = [] {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = "reduce_cpu", k.op = ASSAY_OP_REDUCE, k.arch = "x86-64";
  k.description = "merge of the tiles that a schedule cut, one thread per tile";
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH;
  k.supports = reduce_supports, k.arithmetic = arithmetic, k.run = run;
  return k;
}();

}  // namespace assay_cpu
