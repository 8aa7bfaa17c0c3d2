// SPDX-License-Identifier: Apache-2.0
// MLA decode: the choice between kernels, and mla_merge, which puts together what several workers have of an
// item (mla_schedule.h) and writes the rows that see no key. A launch of its own, since the last worker of
// one long request would have to collect megabytes alone.
#include <algorithm>

#include "kernels/dialect/gpu.h"
#include "kernels/sm90/mla_schedule.h"

namespace assay_sm90 {
namespace {

constexpr int kSpreadWarps = 8, kRowWarps = 16;

// One item: the workers that have a piece of it, and where.
struct MergeItem {
  const MlaCall& p;
  MlaShares shares;
  int first, last, item_rows;
  bool second;  // the part of `first` is its second
  __device__ MergeItem(const MlaCall& call, const MlaMergePlan& plan, int rows, int workers)
      : p(call),
        shares(plan.total, plan.whole < 0 ? -1 - plan.whole : plan.whole, workers, call.worker_magic),
        first(plan.first),
        last(plan.last),
        item_rows(rows),
        second(plan.whole < 0) {}
  __device__ bool has(int w) const { return w <= last && shares.begin(w) < shares.begin(w + 1); }
  __device__ int part(int w) const { return (2 * w + (second && w == first)) * item_rows; }

  // Maximum and sum of a row: a lane for a worker.
  __device__ float2 ends(int row) const {
    const int lane = threadIdx.x % 32;
    constexpr int kBatch = kMlaMergeBatch;  // loads on their way before the first is used: no branch between
    float m = -INFINITY, l = 0;
    SM90_LOOP for (int from = first; from <= last; from += 32 * kBatch) {
      float2 ml[kBatch];
      SM90_UNROLL for (int i = 0; i < kBatch; ++i) {
        const int w = from + 32 * i + lane;
        const bool there = has(w);
        ml[i] = p.parts_ml[part(there ? w : last) + row];
        if (!there) ml[i] = make_float2(-INFINITY, 0);
      }
      float now = m;
      SM90_UNROLL for (int i = 0; i < kBatch; ++i) now = fmaxf(now, ml[i].x);
      SM90_UNROLL for (int i = 1; i < 32; i *= 2) now = fmaxf(now, __shfl_xor_sync(~0u, now, i));
      const float base = now == -INFINITY ? 0.f : now;
      l *= exp2_fast(m - base), m = now;
      SM90_UNROLL for (int i = 0; i < kBatch; ++i) l += ml[i].y * exp2_fast(ml[i].x - base);
    }
    return make_float2(m, l);
  }
  // The parts of every kStep-th worker from `from` on: four columns of a row.
  template <int kBatch>
  __device__ float4 sum(int from, int step, int row, int column, float m) const {
    const float base = m == -INFINITY ? 0.f : m;
    float4 x = make_float4(0, 0, 0, 0);
    SM90_LOOP for (; from <= last; from += kBatch * step) {
      float4 y[kBatch];
      float weight[kBatch];
      SM90_UNROLL for (int i = 0; i < kBatch; ++i) {
        const int w = from + i * step;
        const bool there = has(w);
        const int at = part(there ? w : last) + row;
        y[i] = *reinterpret_cast<const float4*>(p.parts + int64_t{at} * kMlaValueDim + column);
        weight[i] = there ? p.parts_ml[at].x : -INFINITY;
      }
      SM90_UNROLL for (int i = 0; i < kBatch; ++i) {
        const float f = exp2_fast(weight[i] - base);
        x.x = fmaf(y[i].x, f, x.x), x.y = fmaf(y[i].y, f, x.y);
        x.z = fmaf(y[i].z, f, x.z), x.w = fmaf(y[i].w, f, x.w);
      }
    }
    return x;
  }
};

// Block x: an item; block y: 128 of its columns. Few items: block z is a row, and the warps share the parts.
// Else every warp of the blocks z takes rows in turn.
template <bool kHalf, bool kSpread, int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    mla_merge(const __grid_constant__ MlaCall p, int item_rows, int workers) {
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int request = blockIdx.x / p.items, number = blockIdx.x % p.items,
            column = 128 * blockIdx.y + 4 * lane;
  const int first_row = __ldg(p.cu_q + request * p.cu_q_stride),
            all_rows = __ldg(p.cu_q + (request + 1) * p.cu_q_stride) - first_row;
  wait_previous();
  const MlaMergePlan plan = p.plans[blockIdx.x];
  if (plan.first == plan.last) return;  // written already
  const int rows = min(item_rows, all_rows * p.heads - number * item_rows);
  const MergeItem parts(p, plan, item_rows, workers);
  const int step = kSpread ? item_rows : kWarps * gridDim.z;
  SM90_LOOP for (int row = kSpread ? blockIdx.z : kWarps * blockIdx.z + warp; row < rows; row += step) {
    const float2 partial = parts.ends(row);
    float l = partial.y;
    SM90_UNROLL for (int i = 1; i < 32; i *= 2) l += __shfl_xor_sync(~0u, l, i);
    float4 x;
    if constexpr (kSpread) {
      GPU_SHARED(float4, sums, [kWarps][32]);
      sums[warp][lane] = parts.sum<9>(plan.first + warp, kWarps, row, column, partial.x);
      __syncthreads();
      if (warp > 0) return;
      x = sums[0][lane];
      SM90_UNROLL for (int i = 1; i < kWarps; ++i) {
        const float4 y = sums[i][lane];
        x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
      }
    } else {
      x = parts.sum<3>(plan.first, 1, row, column, partial.x);
    }
    const int at = number * item_rows + row, token = at / p.heads, head = at - token * p.heads;
    const MlaRowEnd end = mla_row_end(p, head, partial.x, l);
    uint16_t* const to = p.o + (first_row + token) * p.o_row + head * p.o_head + column;
    *reinterpret_cast<uint2*>(to) = make_uint2(pack<kHalf>(x.x * end.factor, x.y * end.factor),
                                               pack<kHalf>(x.z * end.factor, x.w * end.factor));
    if (lane == 0 && blockIdx.y == 0) p.lse[(first_row + token) * p.lse_row + head * p.lse_head] = end.lse;
  }
}

template <bool kHalf>
cudaError_t launch_merge(const MlaCall& p, const MlaShape& shape, cudaStream_t stream) {
  const auto items = static_cast<unsigned>(p.requests * p.items), rows = static_cast<unsigned>(shape.rows);
  constexpr unsigned kFew = 1024;  // rows
  const bool spread = items * rows <= kFew;
  cudaLaunchConfig_t config{};
  config.stream = stream;
  config.blockDim = dim3(spread ? 32 * kSpreadWarps : 32 * kRowWarps);
  // A wave of blocks at least: a row takes a warp 3 us, most of it waiting.
  constexpr unsigned kColumns = kMlaValueDim / 128, kWave = 512;
  const unsigned shares =
      std::min(std::max(kWave / (items * kColumns), 1u), (rows + kRowWarps - 1) / kRowWarps);
  config.gridDim = dim3(items, kColumns, spread ? rows : shares);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early, config.numAttrs = 1;
  return spread
             ? cudaLaunchKernelEx(&config, mla_merge<kHalf, true, kSpreadWarps>, p, shape.rows, shape.workers)
             : cudaLaunchKernelEx(&config, mla_merge<kHalf, false, kRowWarps>, p, shape.rows, shape.workers);
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
