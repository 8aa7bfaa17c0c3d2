// SPDX-License-Identifier: Apache-2.0
// MLA decode: the choice between kernels, and mla_merge, which puts together what several workers have of an
// item (mla_schedule.h) and writes the rows that see no key. A launch of its own, since the last worker of
// one long request would have to collect megabytes alone.
#include <algorithm>

#include "kernels/dialect/gpu.h"
#include "kernels/sm90/mla_schedule.h"

namespace assay_sm90 {
namespace {

constexpr int kWarps = 8;                      // of a block
constexpr int kTaken = 256;                    // columns of a row that a warp takes: two times four a lane
constexpr int kUnits = kMlaValueDim / kTaken;  // of a row
constexpr int kAtATime = 4;                    // parts that are on their way at a time

// What workers `from` to `end` - 1 have of a row: four columns from `column` on and four that lie 128
// further, and the sum of their weights; `m` is the maximum over all parts of the row (-inf: none asked for).
// All loads are under way before the first is waited for.
struct MergedColumns {
  float4 x[2];
  float m, sum;
};
__device__ inline MergedColumns merge_columns(const MlaCall& p, const MlaMergePlan& plan, int item_rows,
                                              int row, int column, int from, int end) {
  const int lane = threadIdx.x % 32;
  const auto part = [&](int w) { return (2 * w + (w == plan.first ? plan.second : 0)) * item_rows + row; };
  MergedColumns c{{}, -INFINITY, 0};
  float weight = 0;  // of this lane's worker among 32
  SM90_LOOP for (int i = 0; from + i < end; i += kAtATime) {
    float4 y[kAtATime][2];
    SM90_UNROLL for (int k = 0; k < kAtATime; ++k) {
      const float* const at = p.parts + int64_t{part(min(from + i + k, end - 1))} * kMlaValueDim + column;
      y[k][0] = *reinterpret_cast<const float4*>(at), y[k][1] = *reinterpret_cast<const float4*>(at + 128);
    }
    if (i % 32 == 0) {
      const int w = from + i + lane;
      float2 own = p.parts_ml[part(min(w, end - 1))];
      if (w >= end) own = make_float2(-INFINITY, 0);
      if (i == 0) {
        SM90_LOOP for (int first = plan.first; first <= plan.last; first += 32 * kMlaMergeBatch) {
          SM90_UNROLL for (int k = 0; k < kMlaMergeBatch; ++k) {
            c.m = fmaxf(c.m, p.parts_ml[part(min(first + 32 * k + lane, plan.last))].x);
          }
        }
        SM90_LOOP for (int k = 1; k < 32; k *= 2) c.m = fmaxf(c.m, __shfl_xor_sync(~0u, c.m, k));
      }
      weight = exp2_fast(own.x - (c.m == -INFINITY ? 0.f : c.m));
      c.sum = fmaf(own.y, weight, c.sum);
    }
    SM90_UNROLL for (int k = 0; k < kAtATime; ++k) {
      const float f = __shfl_sync(~0u, weight, (i + k) % 32);
      SM90_UNROLL for (int j = 0; j < 2; ++j) {
        c.x[j].x = fmaf(y[k][j].x, f, c.x[j].x), c.x[j].y = fmaf(y[k][j].y, f, c.x[j].y);
        c.x[j].z = fmaf(y[k][j].z, f, c.x[j].z), c.x[j].w = fmaf(y[k][j].w, f, c.x[j].w);
      }
    }
  }
  SM90_LOOP for (int k = 1; k < 32; k *= 2) c.sum += __shfl_xor_sync(~0u, c.sum, k);
  return c;
}

// Block x: an item; blocks y share its rows. A warp takes half of a row, or (kSpread: few rows, many parts) a
// share of the parts of one that the whole block takes. What runs once waits for its instructions, so there
// are few of them.
template <bool kHalf, bool kSpread>
__global__ void __launch_bounds__(32 * kWarps) mla_merge(const __grid_constant__ MlaCall p, int item_rows) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int request = blockIdx.x / p.items, number = blockIdx.x - request * p.items;
  const int first_row = __ldg(p.cu_q + request * p.cu_q_stride),
            all_rows = __ldg(p.cu_q + (request + 1) * p.cu_q_stride) - first_row;
  wait_previous();
  const MlaMergePlan plan = p.plans[blockIdx.x];
  if (plan.first == plan.last) return;  // written already
  const int units = kUnits * min(item_rows, all_rows * p.heads - number * item_rows);
  constexpr int kEach = kSpread ? 1 : kWarps;  // units of a block at a time
  SM90_LOOP for (int unit = kEach * blockIdx.y + (kSpread ? 0 : warp); unit < units;
                 unit += kEach * gridDim.y) {
    const int row = unit / kUnits, column = unit % kUnits * kTaken + 4 * lane;
    int from = plan.first, end = plan.last + 1;
    if constexpr (kSpread) {
      const int each = (end - from + kWarps - 1) / kWarps;
      from += warp * each, end = min(end, from + each);
    }
    MergedColumns c = merge_columns(p, plan, item_rows, row, column, from, end);
    if constexpr (kSpread) {
      GPU_SHARED(float4, sums, [kWarps][2][32]);
      GPU_SHARED(float, weights, [kWarps]);
      sums[warp][0][lane] = c.x[0], sums[warp][1][lane] = c.x[1];
      if (lane == 0) weights[warp] = c.sum;
      __syncthreads();
      if (warp == 0) {
        SM90_LOOP for (int i = 1; i < kWarps; ++i) {
          SM90_UNROLL for (int j = 0; j < 2; ++j) {
            const float4 y = sums[i][j][lane];
            c.x[j].x += y.x, c.x[j].y += y.y, c.x[j].z += y.z, c.x[j].w += y.w;
          }
          c.sum += weights[i];
        }
      }
      __syncthreads();
      if (warp > 0) continue;
    }
    const int at = number * item_rows + row, token = at / p.heads, head = at - token * p.heads;
    const MlaRowEnd ended = mla_row_end(p, head, c.m, c.sum);
    uint16_t* const to = p.o + (first_row + token) * p.o_row + head * p.o_head + column;
    SM90_UNROLL for (int j = 0; j < 2; ++j) * reinterpret_cast<uint2*>(to + 128 * j) =
        make_uint2(pack<kHalf>(c.x[j].x * ended.factor, c.x[j].y * ended.factor),
                   pack<kHalf>(c.x[j].z * ended.factor, c.x[j].w * ended.factor));
    if (lane == 0 && column == 0) p.lse[(first_row + token) * p.lse_row + head * p.lse_head] = ended.lse;
  }
}

template <bool kHalf>
cudaError_t launch_merge(const MlaCall& p, const MlaShape& shape, cudaStream_t stream) {
  const auto items = static_cast<unsigned>(p.requests * p.items), rows = static_cast<unsigned>(shape.rows);
  constexpr unsigned kFew = 512, kWave = 1024;  // rows; blocks that run at a time
  const bool spread = items * rows <= kFew && static_cast<unsigned>(shape.workers) > 2 * kAtATime * items;
  const unsigned blocks = kUnits * rows / (spread ? 1 : kWarps);  // that have a unit
  cudaLaunchConfig_t config{};
  config.stream = stream;
  config.blockDim = dim3(32 * kWarps);
  config.gridDim = dim3(items, std::min(std::max(kWave / items, 1u), blocks));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early, config.numAttrs = 1;
  return spread ? cudaLaunchKernelEx(&config, mla_merge<kHalf, true>, p, shape.rows)
                : cudaLaunchKernelEx(&config, mla_merge<kHalf, false>, p, shape.rows);
}

}  // namespace

// mla_turned.cu, mla_held.cu, mla_widened.cu
cudaError_t launch_mla_few(const MlaCall&, const CUtensorMap&, const MlaShape&, cudaStream_t);
cudaError_t launch_mla_many(const MlaCall&, const CUtensorMap&, const MlaShape&, cudaStream_t);
cudaError_t launch_mla_widened(const MlaCall&, const CUtensorMap&, const MlaShape&, cudaStream_t);

int64_t mla_state_bytes(const MlaShape& shape, int64_t items) {
  return int64_t{2} * shape.workers * shape.rows *
             static_cast<int64_t>(kMlaValueDim * sizeof(float) + sizeof(float2)) +
         items * static_cast<int64_t>(sizeof(MlaMergePlan));
}

cudaError_t launch_mla(MlaCall p, const CUtensorMap& map, const MlaShape& shape, cudaStream_t stream) {
  p.plans = reinterpret_cast<MlaMergePlan*>(p.parts + int64_t{2} * shape.workers * shape.rows * kMlaValueDim);
  p.parts_ml = reinterpret_cast<float2*>(p.plans + int64_t{p.requests} * p.items);
  p.worker_magic = static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint32_t>(shape.workers)) + 1;
  const auto launch = shape.rows == kMlaFewRows ? launch_mla_few
                      : shape.bytes             ? launch_mla_widened
                                                : launch_mla_many;
  const cudaError_t status = launch(p, map, shape, stream);
  if (status != cudaSuccess) return status;
  return shape.half ? launch_merge<true>(p, shape, stream) : launch_merge<false>(p, shape, stream);
}

}  // namespace assay_sm90
