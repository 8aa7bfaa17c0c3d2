// SPDX-License-Identifier: Apache-2.0
// Joins states (O, LSE) of the same rows: parts of a split, states of the caller. A group of 32 threads sums
// 128 dimensions of a (row, head) with the weights exp(LSE - largest); with many states four groups take a
// quarter of them each, so that a single request does not wait for one state after the other. Either way a
// row is the same four interleaved sums added in the same order: its bits depend on its own states alone.
// States without a visible key have LSE -inf and are never read.
#include "kernels/portable/faults.hpp"
#include "kernels/portable/launch.hpp"
#include "kernels/portable/rows.hpp"

namespace assay_gpu {
namespace {

constexpr int kGroup = 32;    // threads, whatever a warp has
constexpr int kQuarters = 4;  // interleaved sums of a row
constexpr int kMergeThreads = kGroup * kQuarters;
constexpr int kMergeDims = 4;  // of a thread
constexpr int kPanel = kGroup * kMergeDims;

// kWays: groups that share a (row, head), 1 or kQuarters. kWhole: fp32 states whose dimensions lie in whole
// 16 bytes.
template <int kWays, bool kWhole>
__global__ GPU_BOUNDS(kMergeThreads, (kWhole ? 6 : 4)) void merge_states(GPU_PARAMETER Merge a) {
  GPU_SHARED(float, quarter, [kWays == 1 ? 1 : kQuarters][kPanel]);
  const int group = threadIdx.x / kGroup, member = threadIdx.x % kGroup;
  const int64_t items = (fault(Fault::merge_padding) ? a.rows : *a.live_rows) * a.heads;
  if (items == 0) return;  // the same for every thread
  const int64_t wanted = static_cast<int64_t>(blockIdx.x) * (kQuarters / kWays) + group / kWays;
  // Groups past the last item (rows of padding among them) repeat it and store nothing: shuffles and barriers
  // want every thread.
  const int64_t item = wanted < items ? wanted : items - 1;
  const int64_t row = item / a.heads;
  const int32_t head = static_cast<int32_t>(item % a.heads);
  const auto state_lse = [&](int32_t s) {
    if (fault(Fault::merge_last_state) && s + 1 == a.states) return -kInfinity;
    const int64_t step = fault(Fault::merge_lse_state) ? a.o_stride[0] : a.lse_stride[0];
    return s < a.states ? a.lse[s * step + row * a.lse_stride[1] + head * a.lse_stride[2]] : -kInfinity;
  };

  float top = -kInfinity;
  for (int32_t s = member; s < a.states; s += kGroup) top = fmaxf(top, state_lse(s));
  top = gpu::warp_reduce(
      top, [](float s, float t) { return fmaxf(s, t); }, 1, kGroup);
  const auto weight_of = [&](int32_t s) {
    const float lse = state_lse(s);
    if (lse != -kInfinity && fault(Fault::merge_even_weights)) return 1.0f;
    return lse == -kInfinity ? 0.0f : exp2f((lse - top) * kLog2E);
  };
  float sum = 0.0f;
  for (int32_t s = member; s < a.states; s += kGroup) sum += weight_of(s);
  sum = gpu::warp_reduce(
      sum, [](float s, float t) { return s + t; }, 1, kGroup);
  const Finish end =
      finish_row(top, sum, a.sinks != nullptr, a.sinks != nullptr ? a.sinks[head * a.sinks_stride] : 0.0f);

  const int32_t first = static_cast<int32_t>(blockIdx.y) * kPanel;
  const auto dim = [&](int n) { return first + (kWhole ? member * kMergeDims + n : n * kGroup + member); };
  constexpr int kSums = kQuarters / kWays;       // of this group
  constexpr int kInFlight = kWays == 1 ? 4 : 8;  // states whose loads a group issues before it uses the first
  float o[kSums][kMergeDims] = {};
  for (int32_t base = 0; base < a.states; base += kGroup) {
    const float own = weight_of(base + member);
    const int count = min(kGroup, a.states - base);
    for (int i = 0; i < count; i += kInFlight * kWays) {
      float weight[kInFlight], value[kInFlight][kMergeDims];
#pragma unroll
      for (int f = 0; f < kInFlight; ++f) {
        const int s = i + f * kWays + (kWays == 1 ? 0 : group);
        // Past the last state the weight is that of another lane or of none: it must not count.
        const float shared = gpu::shfl(own, static_cast<int>(threadIdx.x) % gpu::kWarp / kGroup * kGroup + s);
        weight[f] = s < count ? shared : 0.0f;
        const bool reads = weight[f] != 0.0f || (s < count && fault(Fault::merge_reads_empty));
        const int64_t at = (base + s) * a.o_stride[0] + row * a.o_stride[1] + head * a.o_stride[2];
        if constexpr (kWhole) {
          uint4 bits{};
          if (reads && dim(0) < a.dims) bits = gpu::load_16(a.o + (at + dim(0)) * 4);
          value[f][0] = __uint_as_float(bits.x), value[f][1] = __uint_as_float(bits.y);
          value[f][2] = __uint_as_float(bits.z), value[f][3] = __uint_as_float(bits.w);
        } else {
#pragma unroll
          for (int n = 0; n < kMergeDims; ++n)
            value[f][n] = reads && dim(n) < a.dims
                              ? assay_kernels::load_element(a.o, at + dim(n) * a.o_stride[3], a.o_format)
                              : 0.0f;
        }
      }
#pragma unroll
      for (int f = 0; f < kInFlight; ++f)
#pragma unroll
        for (int n = 0; n < kMergeDims; ++n) o[f % kSums][n] = fmaf(weight[f], value[f][n], o[f % kSums][n]);
    }
  }

  float out[kMergeDims];
  if constexpr (kWays == 1) {
#pragma unroll
    for (int n = 0; n < kMergeDims; ++n) out[n] = ((o[0][n] + o[1][n]) + o[2][n]) + o[3][n];
  } else {
#pragma unroll
    for (int n = 0; n < kMergeDims; ++n) quarter[group][dim(n) - first] = o[0][n];
    gpu::block_barrier();
    if (group == 0) {
#pragma unroll
      for (int n = 0; n < kMergeDims; ++n) {
        const int d = dim(n) - first;
        out[n] = ((quarter[0][d] + quarter[1][d]) + quarter[2][d]) + quarter[3][d];
      }
    }
  }
  if (group % kWays != 0 || wanted >= items) return;
#pragma unroll
  for (int n = 0; n < kMergeDims; ++n)
    if (dim(n) < a.dims)
      assay_kernels::store_element(a.out,
                                   row * a.out_stride[0] + head * a.out_stride[1] + dim(n) * a.out_stride[2],
                                   a.out_format, end.factor == 0.0f ? 0.0f : out[n] * end.factor);
  if (blockIdx.y == 0 && member == 0)
    a.out_lse[row * a.out_lse_stride[0] + head * a.out_lse_stride[1]] =
        fault(Fault::merge_base2) ? end.lse * kLog2E : end.lse;
}

template <int kWays, bool kWhole>
gpu::Status launch_ways(const Merge& a, gpu::Stream stream) {
  constexpr int kPerBlock = kQuarters / kWays;
  const int64_t items = a.rows * a.heads;
  const dim3 grid(static_cast<unsigned>((items + kPerBlock - 1) / kPerBlock),
                  static_cast<unsigned>((a.dims + kPanel - 1) / kPanel));
  return gpu::launch(merge_states<kWays, kWhole>, grid, kMergeThreads, 0, stream, a);
}

template <int kWays>
gpu::Status launch_for(const Merge& a, gpu::Stream stream) {
  const bool whole = a.o_format == ASSAY_FP32 && a.o_stride[3] == 1 && a.dims % kMergeDims == 0 &&
                     reinterpret_cast<uintptr_t>(a.o) % 16 == 0 && a.o_stride[0] % kMergeDims == 0 &&
                     a.o_stride[1] % kMergeDims == 0 && a.o_stride[2] % kMergeDims == 0;
  return whole ? launch_ways<kWays, true>(a, stream) : launch_ways<kWays, false>(a, stream);
}

}  // namespace

gpu::Status launch_merge(const Merge& a, gpu::Stream stream) {
  return a.states >= 2 * kQuarters ? launch_for<kQuarters>(a, stream) : launch_for<1>(a, stream);
}

gpu::Status merge_parts(const Call& call, gpu::Stream stream) {
  const assay_problem& p = call.op.p;
  const int64_t heads = p.heads_q, dims = p.head_dim_v, rows = p.total_q;
  Merge a{};
  a.states = call.splits, a.heads = p.heads_q, a.dims = p.head_dim_v, a.rows = rows;
  a.live_rows = call.op.cu_q + p.requests * call.op.cu_q_stride;
  a.o = reinterpret_cast<const unsigned char*>(call.partial_o), a.o_format = ASSAY_FP32;
  a.o_stride[0] = rows * heads * dims, a.o_stride[1] = heads * dims, a.o_stride[2] = dims, a.o_stride[3] = 1;
  a.lse = call.partial_lse;
  a.lse_stride[0] = rows * heads, a.lse_stride[1] = heads, a.lse_stride[2] = 1;
  a.out = call.op.o, a.out_format = p.o_format;
  for (int i = 0; i < 3; ++i) a.out_stride[i] = call.op.o_stride[i];
  a.out_lse = call.op.lse;
  for (int i = 0; i < 2; ++i) a.out_lse_stride[i] = call.op.lse_stride[i];
  if (p.has_sinks) a.sinks = call.op.sinks, a.sinks_stride = call.op.sinks_stride;
  return launch_merge(a, stream);
}

}  // namespace assay_gpu
