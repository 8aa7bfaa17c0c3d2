// SPDX-License-Identifier: Apache-2.0
// Joins states (O, LSE) of the same rows: parts of a split, states of the caller, by weights exp(LSE -
// largest). Up to eight states whose dimensions lie in whole 16 bytes: a thread has 16 bytes of every state
// of its (row, head) and asks for all of them before it needs one. Else a group of 32 threads sums 128
// dimensions; with many states four groups take a quarter of them each, so that a single request does not
// wait for one state after the other. Whatever the way, a row is the same four interleaved sums added in the
// same order, and its weights are added in one order: its bits depend on its own states alone. States without
// a visible key have LSE -inf: what they hold does not matter, and of the workspace, where it may never have
// been written, it is not read. One barrier, where four groups share a row.
#include <climits>
#include <initializer_list>

#include "kernels/dialect/codes.h"
#include "kernels/dialect/early.h"
#include "kernels/portable/merge.hpp"
#include "kernels/portable/rows.hpp"

namespace assay_gpu {
namespace {

constexpr int kGroup = 32;    // threads, whatever a warp has
constexpr int kQuarters = 4;  // interleaved sums of a row
constexpr int kMergeThreads = kGroup * kQuarters;
constexpr int kMergeDims = 4;  // of a thread
constexpr int kPanel = kGroup * kMergeDims;

// How an instance deals work. kWays: groups that share a (row, head), 1 or kQuarters. kWhole: fp32 states
// whose dimensions lie in whole 16 bytes.
template <int kWays_, bool kWhole_>
struct MergeShape {
  static constexpr int kWays = kWays_;
  static constexpr bool kWhole = kWhole_;
  static constexpr int kSums = kQuarters / kWays;  // of a group
  static constexpr int kInFlight =
      kWays == 1 ? 4 : 8;  // states whose loads a group issues before it uses one
};

// The row and head of a group, and the place of this thread.
struct MergeItem {
  int group, member;
  int64_t row;
  int32_t head;
  int32_t first;  // dimension of the block's panel
  bool stores;    // false: an item past the last, or a group that only helps
};

// False where no row is to be merged, which is the same for every thread. Groups past the last item (rows of
// padding among them) repeat it and store nothing: shuffles and barriers want every thread.
template <class Shape>
GPU_INLINE bool find_item(const Merge& a, int64_t rows, MergeItem& m) {
  m.group = threadIdx.x / kGroup, m.member = threadIdx.x % kGroup;
  const int64_t items = rows * a.heads;
  if (items == 0) return false;
  const int64_t wanted =
      static_cast<int64_t>(blockIdx.x) * (kQuarters / Shape::kWays) + m.group / Shape::kWays;
  const int64_t item = wanted < items ? wanted : items - 1;
  m.row = item / a.heads, m.head = static_cast<int32_t>(item % a.heads);
  m.first = static_cast<int32_t>(blockIdx.y) * kPanel;
  m.stores = m.group % Shape::kWays == 0 && wanted < items;
  return true;
}

// The n-th dimension of this thread.
template <class Shape>
GPU_INLINE int32_t dim_of(const MergeItem& m, int n) {
  return m.first + (Shape::kWhole ? m.member * kMergeDims + n : n * kGroup + m.member);
}

GPU_INLINE float state_lse(const Merge& a, const MergeItem& m, int32_t s) {
  return s < a.states ? a.lse[s * a.lse_stride[0] + m.row * a.lse_stride[1] + m.head * a.lse_stride[2]]
                      : -kInfinity;
}
GPU_INLINE float state_weight(const Merge& a, const MergeItem& m, int32_t s, float top) {
  const float lse = state_lse(a, m, s);
  return lse == -kInfinity ? 0.0f : exp2f((lse - top) * kLog2E);
}

// The largest LSE of a row and the sum of its weights.
struct MergeSum {
  float top, sum;
};
GPU_INLINE MergeSum add_weights(const Merge& a, const MergeItem& m) {
  float top = -kInfinity;
  for (int32_t s = m.member; s < a.states; s += kGroup) top = fmaxf(top, state_lse(a, m, s));
  top = gpu::warp_reduce(
      top, [](float s, float t) { return fmaxf(s, t); }, 1, kGroup);
  float sum = 0.0f;
  for (int32_t s = m.member; s < a.states; s += kGroup) sum += state_weight(a, m, s, top);
  sum = gpu::warp_reduce(
      sum, [](float s, float t) { return s + t; }, 1, kGroup);
  return {top, sum};
}

// This thread's dimensions of the state that begins at element `at`; zeros where it is not read.
template <class Shape>
GPU_INLINE void load_state(const Merge& a, const MergeItem& m, int64_t at, bool reads,
                           float (&value)[kMergeDims]) {
  if constexpr (Shape::kWhole) {
    uint4 bits{};
    if (reads && dim_of<Shape>(m, 0) < a.dims)
      bits = gpu::load_16_written(a.o + (at + dim_of<Shape>(m, 0)) * 4);
    value[0] = __uint_as_float(bits.x), value[1] = __uint_as_float(bits.y);
    value[2] = __uint_as_float(bits.z), value[3] = __uint_as_float(bits.w);
  } else {
#pragma unroll
    for (int n = 0; n < kMergeDims; ++n)
      value[n] = reads && dim_of<Shape>(m, n) < a.dims
                     ? assay_kernels::load_element(a.o, at + dim_of<Shape>(m, n) * a.o_stride[3], a.o_format)
                     : 0.0f;
  }
}

// The interleaved sums of this group.
template <class Shape>
GPU_INLINE void add_states(const Merge& a, const MergeItem& m, float top,
                           float (&o)[Shape::kSums][kMergeDims]) {
  constexpr int kInFlight = Shape::kInFlight, kWays = Shape::kWays;
  for (int32_t base = 0; base < a.states; base += kGroup) {
    const float own = state_weight(a, m, base + m.member, top);
    const int count = min(kGroup, a.states - base);
    for (int i = 0; i < count; i += kInFlight * kWays) {
      float weight[kInFlight], value[kInFlight][kMergeDims];
#pragma unroll
      for (int f = 0; f < kInFlight; ++f) {
        const int s = i + f * kWays + (kWays == 1 ? 0 : m.group);
        // Past the last state the weight is that of another lane or of none: it must not count.
        const float shared = gpu::shfl(own, static_cast<int>(threadIdx.x) % gpu::kWarp / kGroup * kGroup + s);
        weight[f] = s < count ? shared : 0.0f;
        const int64_t at = (base + s) * a.o_stride[0] + m.row * a.o_stride[1] + m.head * a.o_stride[2];
        load_state<Shape>(a, m, at, weight[f] != 0.0f, value[f]);
      }
#pragma unroll
      for (int f = 0; f < kInFlight; ++f)
#pragma unroll
        for (int n = 0; n < kMergeDims; ++n)
          o[f % Shape::kSums][n] = fmaf(weight[f], value[f][n], o[f % Shape::kSums][n]);
    }
  }
}

// The same where all states fit into one round and may be read before it is known which count.
template <class Shape>
GPU_INLINE void load_early(const Merge& a, const MergeItem& m, float (&value)[Shape::kInFlight][kMergeDims]) {
#pragma unroll
  for (int f = 0; f < Shape::kInFlight; ++f) {
    const int s = f * Shape::kWays + m.group;
    const int64_t at = s * a.o_stride[0] + m.row * a.o_stride[1] + m.head * a.o_stride[2];
    load_state<Shape>(a, m, at, s < a.states, value[f]);
  }
}
template <class Shape>
GPU_INLINE void add_early(const Merge& a, const MergeItem& m, float top,
                          const float (&value)[Shape::kInFlight][kMergeDims],
                          float (&o)[Shape::kSums][kMergeDims]) {
  const float own = state_weight(a, m, m.member, top);
#pragma unroll
  for (int f = 0; f < Shape::kInFlight; ++f) {
    const int s = f * Shape::kWays + m.group;
    const float weight = gpu::shfl(own, static_cast<int>(threadIdx.x) % gpu::kWarp / kGroup * kGroup + s);
#pragma unroll
    for (int n = 0; n < kMergeDims; ++n) o[0][n] = fmaf(weight, weight != 0.0f ? value[f][n] : 0.0f, o[0][n]);
  }
}

// The four sums of a row in one order, whoever formed them; the result belongs to the first group.
template <class Shape>
GPU_INLINE void join_sums(const MergeItem& m, const float (&o)[Shape::kSums][kMergeDims],
                          float (*quarter)[kPanel], float (&out)[kMergeDims]) {
  if constexpr (Shape::kWays == 1) {
#pragma unroll
    for (int n = 0; n < kMergeDims; ++n) out[n] = ((o[0][n] + o[1][n]) + o[2][n]) + o[3][n];
  } else {
#pragma unroll
    for (int n = 0; n < kMergeDims; ++n) quarter[m.group][dim_of<Shape>(m, n) - m.first] = o[0][n];
    gpu::block_barrier();
    if (m.group != 0) return;
#pragma unroll
    for (int n = 0; n < kMergeDims; ++n) {
      const int d = dim_of<Shape>(m, n) - m.first;
      out[n] = ((quarter[0][d] + quarter[1][d]) + quarter[2][d]) + quarter[3][d];
    }
  }
}

template <int kWays, bool kWhole>
__global__ GPU_BOUNDS(kMergeThreads, (kWhole ? 6 : 4)) void merge_states(GPU_PARAMETER MergeCall a) {
  using Shape = MergeShape<kWays, kWhole>;
  gpu::after_previous(), gpu::let_next_begin();
  GPU_SHARED(float, quarter, [kWays == 1 ? 1 : kQuarters][kPanel]);
  constexpr bool kEarly = kWays == kQuarters && kWhole;
  static_assert(!kEarly || Shape::kInFlight * kWays == kGroup);
  const bool early = kEarly && a.defined && a.states <= kGroup;
  // States that may all be read are asked for before it is known which rows count.
  MergeItem item;
  if (!find_item<Shape>(a, early ? a.rows : *a.live_rows, item)) return;
  float value[kEarly ? Shape::kInFlight : 1][kMergeDims];
  if constexpr (kEarly)
    if (early) load_early<Shape>(a, item, value);
  const MergeSum sum = add_weights(a, item);
  const Finish end = finish_row(sum.top, sum.sum, a.sinks != nullptr,
                                a.sinks != nullptr ? a.sinks[item.head * a.sinks_stride] : 0.0f);
  float o[Shape::kSums][kMergeDims] = {}, out[kMergeDims];
  if constexpr (kEarly)
    if (early) add_early<Shape>(a, item, sum.top, value, o);
  if (!early) add_states<Shape>(a, item, sum.top, o);
  join_sums<Shape>(item, o, quarter, out);
  if (!item.stores || (early && item.row >= *a.live_rows)) return;
#pragma unroll
  for (int n = 0; n < kMergeDims; ++n) {
    const int32_t d = dim_of<Shape>(item, n);
    if (d < a.dims)
      assay_kernels::store_element(
          a.out, item.row * a.out_stride[0] + item.head * a.out_stride[1] + d * a.out_stride[2], a.out_format,
          end.factor == 0.0f ? 0.0f : out[n] * end.factor);
  }
  if (blockIdx.y == 0 && item.member == 0)
    a.out_lse[item.row * a.out_lse_stride[0] + item.head * a.out_lse_stride[1]] = end.lse;
}

// ---- up to eight states in whole chunks of 16 bytes
constexpr int kFew = 2 * kQuarters;

// Dimensions of 16 bytes, as fp32.
template <int kBytes>
GPU_INLINE void decode_chunk_of(const uint4& bits, int32_t format, float (&value)[16 / kBytes]) {
  const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    if constexpr (kBytes == 4) {
      value[n] = __uint_as_float(word[n]);
    } else if (format == ASSAY_BF16) {
      value[2 * n] = __uint_as_float(word[n] << 16);
      value[2 * n + 1] = __uint_as_float(word[n] & 0xffff0000u);
    } else {
      gpu::fp16_pair(word[n], value[2 * n], value[2 * n + 1]);
    }
  }
}

template <int kDims>
GPU_INLINE void store_chunk(const MergeCall& a, int64_t at, const float (&value)[kDims]) {
  if (!a.out_whole) {
#pragma unroll
    for (int n = 0; n < kDims; ++n)
      assay_kernels::store_element(a.out, at + n * a.out_stride[2], a.out_format, value[n]);
    return;
  }
  uint32_t word[kDims];
  if (a.out_format == ASSAY_FP32) {
#pragma unroll
    for (int n = 0; n < kDims; ++n) word[n] = __float_as_uint(value[n]);
    uint4* to = reinterpret_cast<uint4*>(a.out + at * 4);
#pragma unroll
    for (int n = 0; n < kDims; n += 4) to[n / 4] = uint4{word[n], word[n + 1], word[n + 2], word[n + 3]};
    return;
  }
#pragma unroll
  for (int n = 0; n < kDims; n += 2)
    word[n / 2] = a.out_format == ASSAY_BF16 ? gpu::bf16_codes(value[n], value[n + 1])
                                             : gpu::fp16_codes(value[n], value[n + 1]);
  if constexpr (kDims == 8)
    *reinterpret_cast<uint4*>(a.out + at * 2) = uint4{word[0], word[1], word[2], word[3]};
  else
    *reinterpret_cast<uint2*>(a.out + at * 2) = uint2{word[0], word[1]};
}

// A thread per kChunks chunks of a (row, head), which lie dims / kChunks apart. kBytes: of an element of the
// states; kMost: states.
template <int kBytes, int kMost, int kChunks>
__global__ GPU_BOUNDS(kMergeThreads, (kMost == 2 ? 8 : 6)) void merge_few(GPU_PARAMETER MergeCall a) {
  constexpr int kDims = 16 / kBytes;
  gpu::after_previous(), gpu::let_next_begin();
  const uint32_t thread = blockIdx.x * kMergeThreads + threadIdx.x, item = quotient(thread, a.by_chunks);
  const int32_t part = a.dims / kChunks, dim = static_cast<int32_t>(thread - item * a.by_chunks.by) * kDims;
  const uint32_t item_row = quotient(item, a.by_heads);
  const int64_t row = item_row;
  const int32_t head = static_cast<int32_t>(item - item_row * a.by_heads.by);
  // Nobody wrote partial results of rows behind the last request.
  if (row >= a.rows || (!a.defined && row >= *a.live_rows)) return;

  const unsigned char* first = a.o + (row * a.o_stride[1] + head * a.o_stride[2] + dim) * kBytes;
  uint4 bits[kMost][kChunks] = {};
  const auto load = [&](int s) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      bits[s][c] =
          gpu::load_16_written(first + (s * a.o_stride[0] + c * static_cast<int64_t>(part)) * kBytes);
  };
  if (a.defined) {
#pragma unroll
    for (int s = 0; s < kMost; ++s)
      if (s < a.states) load(s);
  }
  float weight[kFew] = {}, top = -kInfinity;
#pragma unroll
  for (int s = 0; s < kMost; ++s) {
    weight[s] = s < a.states ? a.lse[s * a.lse_stride[0] + row * a.lse_stride[1] + head * a.lse_stride[2]]
                             : -kInfinity;
    top = fmaxf(top, weight[s]);
  }
#pragma unroll
  for (int s = 0; s < kMost; ++s)
    weight[s] = weight[s] == -kInfinity ? 0.0f : exp2f((weight[s] - top) * kLog2E);
  // The order of the shuffles in add_weights().
  const float sum = ((weight[0] + weight[4]) + (weight[2] + weight[6])) +
                    ((weight[1] + weight[5]) + (weight[3] + weight[7]));
  if (!a.defined) {
#pragma unroll
    for (int s = 0; s < kMost; ++s)
      if (weight[s] != 0.0f) load(s);
  } else if (row >= *a.live_rows) {
    return;
  }

  const Finish end =
      finish_row(top, sum, a.sinks != nullptr, a.sinks != nullptr ? a.sinks[head * a.sinks_stride] : 0.0f);
  const int64_t at = row * a.out_stride[0] + head * a.out_stride[1];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    float o[kQuarters][kDims] = {}, out[kDims];
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      float value[kDims];
      decode_chunk_of<kBytes>(bits[s][c], a.o_format, value);
#pragma unroll
      for (int n = 0; n < kDims; ++n)
        o[s % kQuarters][n] = fmaf(weight[s], weight[s] != 0.0f ? value[n] : 0.0f, o[s % kQuarters][n]);
    }
#pragma unroll
    for (int n = 0; n < kDims; ++n) {
      const float joined = ((o[0][n] + o[1][n]) + o[2][n]) + o[3][n];
      out[n] = end.factor == 0.0f ? 0.0f : joined * end.factor;
    }
    store_chunk(a, at + (dim + c * static_cast<int64_t>(part)) * a.out_stride[2], out);
  }
  if (dim == 0) a.out_lse[row * a.out_lse_stride[0] + head * a.out_lse_stride[1]] = end.lse;
}

// Vectors of `dims` elements begin at multiples of their size.
bool whole_rows(const void* data, int32_t bytes, int dims, std::initializer_list<int64_t> strides) {
  bool whole =
      reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(dims * bytes < 16 ? dims * bytes : 16) == 0;
  for (const int64_t stride : strides) whole = whole && stride % dims == 0;
  return whole;
}

template <int kBytes>
gpu::Status launch_few(MergeCall a, gpu::Stream stream) {
  constexpr int kDims = 16 / kBytes;
  a.out_whole = a.out_stride[2] == 1 && whole_rows(a.out, assay_kernels::element_bytes_of(a.out_format),
                                                   kDims, {a.out_stride[0], a.out_stride[1]});
  constexpr int kTwo = 4;  // chunks of a thread where there are two states
  const bool two = a.states <= 2 && a.dims % (kTwo * kDims) == 0;
  a.by_heads = make_quotient(static_cast<uint32_t>(a.heads));
  a.by_chunks = make_quotient(static_cast<uint32_t>(a.dims / kDims / (two ? kTwo : 1)));
  const int64_t threads = a.rows * a.heads * (a.dims / kDims / (two ? kTwo : 1));
  const dim3 blocks(static_cast<unsigned>((threads + kMergeThreads - 1) / kMergeThreads));
  return two ? gpu::launch_early(merge_few<kBytes, 2, kTwo>, blocks, kMergeThreads, 0, stream, a)
             : gpu::launch_early(merge_few<kBytes, kFew, 1>, blocks, kMergeThreads, 0, stream, a);
}

template <int kWays, bool kWhole>
gpu::Status launch_groups(const MergeCall& a, gpu::Stream stream) {
  constexpr int kPerBlock = kQuarters / kWays;
  const int64_t items = a.rows * a.heads;
  const dim3 grid(static_cast<unsigned>((items + kPerBlock - 1) / kPerBlock),
                  static_cast<unsigned>((a.dims + kPanel - 1) / kPanel));
  return gpu::launch_early(merge_states<kWays, kWhole>, grid, kMergeThreads, 0, stream, a);
}

gpu::Status launch_call(const MergeCall& a, gpu::Stream stream) {
  const int32_t bytes = assay_kernels::element_bytes_of(a.o_format);
  const int dims = 16 / bytes;
  const bool whole = a.o_stride[3] == 1 && a.dims % dims == 0 &&
                     whole_rows(a.o, bytes, dims, {a.o_stride[0], a.o_stride[1], a.o_stride[2]});
  const int64_t threads = a.rows * a.heads * (a.dims / dims);
  if (whole && a.states <= kFew && threads <= INT32_MAX)
    return bytes == 4 ? launch_few<4>(a, stream) : launch_few<2>(a, stream);
  if (a.states < kFew) return launch_groups<1, false>(a, stream);
  return whole && bytes == 4 ? launch_groups<kQuarters, true>(a, stream)
                             : launch_groups<kQuarters, false>(a, stream);
}

}  // namespace

gpu::Status launch_merge(const Merge& a, gpu::Stream stream) { return launch_call({a, false}, stream); }
gpu::Status launch_defined_merge(const Merge& a, gpu::Stream stream) {
  return launch_call({a, true}, stream);
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
