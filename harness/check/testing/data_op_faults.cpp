// SPDX-License-Identifier: Apache-2.0
// A backend of data-op kernels that are wrong in one way each, and one of every op that is right: what
// data_ops_test.cpp proves the judge with. Written as plainly as possible, apart from the CPU kernels. To
// plant a fault: an enumerator, a row of kFaults, its place in the code, a line in the test.
#include "harness/check/testing/data_op_faults.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "kernels/common/data_op_operands.hpp"
#include "kernels/common/fill_struct.hpp"
#include "kernels/common/formats.hpp"
#include "kernels/common/instances.hpp"

namespace {

using namespace assay_kernels;
using namespace data_op_faults;

struct Entry {
  const char* name;
  int32_t op;
  Fault fault;
};
constexpr int32_t kMerge = ASSAY_OP_MERGE_STATES, kWrite = ASSAY_OP_CACHE_WRITE,
                  kGather = ASSAY_OP_CACHE_GATHER, kQuantize = ASSAY_OP_QUANTIZE_INT8,
                  kParts = ASSAY_OP_DECODE_SPLITKV;
Entry kFaults[] = {
    // not const: a context is a pointer to what the kernel may change
    {"merge_right", kMerge, kNone},
    {"merge_base2", kMerge, kBase2},
    {"merge_nan_empty", kMerge, kNaNEmpty},
    {"merge_reads_empty", kMerge, kReadsEmpty},
    {"merge_no_maximum", kMerge, kNoMaximum},
    {"merge_sink_twice", kMerge, kSinkTwice},
    {"merge_no_sink", kMerge, kNoSink},
    {"merge_last_state", kMerge, kLastState},
    {"merge_mean", kMerge, kMeanOfStates},
    {"merge_largest_lse", kMerge, kLargestLse},
    {"merge_other_head", kMerge, kOtherHead},
    {"merge_empty_rows", kMerge, kEmptyRows},
    {"merge_vague", kMerge, kVague},
    {"merge_right_sign_of_zero", kMerge, kSignOfZero},
    {"merge_peeks_empty", kMerge, kPeeksEmpty},
    {"merge_even_dims", kMerge, kEvenDims},
    {"write_right", kWrite, kNone},
    {"write_padding", kWrite, kWritesPadding},
    {"write_scale_of_head", kWrite, kScaleOfHead},
    {"write_k_scale_for_v", kWrite, kKScaleForV},
    {"write_half_away", kWrite, kHalfAway},
    {"write_truncates", kWrite, kTruncates},
    {"write_minus_128", kWrite, kMinus128},
    {"write_wraps", kWrite, kWraps},
    {"write_dynamic_128", kWrite, kDynamic128},
    {"write_scale_unwritten", kWrite, kScaleUnwritten},
    {"write_slot_of_block", kWrite, kSlotOfBlock},
    {"write_wide_store", kWrite, kWideStore},
    {"write_skips_last", kWrite, kSkipsLast},
    {"write_forgets_v", kWrite, kForgetsV},
    {"write_quantises_codes", kWrite, kQuantisesCodes},
    {"write_own_scale", kWrite, kOwnScale},
    {"write_scale_of_rows", kWrite, kScaleOfRows},
    {"write_rope_first", kWrite, kRopeFirst},
    {"write_forgets_rope", kWrite, kForgetsRope},
    {"write_scale_of_latent", kWrite, kScaleOfLatent},
    {"write_scale_of_int8", kWrite, kScaleOfInt8},
    {"write_slots_16_bits", kWrite, kSlots16Bits},
    {"write_last_on_page_end", kWrite, kLastOnPageEnd},
    {"write_even_dims", kWrite, kEvenDims},
    {"gather_right", kGather, kNone},
    {"gather_slots_16_bits", kGather, kSlots16Bits},
    {"gather_last_on_page_end", kGather, kLastOnPageEnd},
    {"gather_even_dims", kGather, kEvenDims},
    {"gather_no_start", kGather, kNoStart},
    {"gather_first_table", kGather, kFirstTable},
    {"gather_scale_of_token", kGather, kScaleOfToken},
    {"gather_scale_of_head", kGather, kScaleOfHead},
    {"gather_as_rows", kGather, kAsRows},
    {"gather_truncates", kGather, kTruncatesOut},
    {"gather_rounds_twice", kGather, kRoundsTwice},
    {"gather_skips_last", kGather, kSkipsLast},
    {"quantize_right", kQuantize, kNone},
    {"quantize_half_away", kQuantize, kHalfAway},
    {"quantize_truncates", kQuantize, kTruncates},
    {"quantize_minus_128", kQuantize, kMinus128},
    {"quantize_dynamic_128", kQuantize, kDynamic128},
    {"quantize_dense_scales", kQuantize, kDenseScales},
    {"quantize_max_of_positive", kQuantize, kMaxOfPositive},
    {"quantize_scale_of_head", kQuantize, kScaleOfHead},
    {"quantize_scale_of_int8", kQuantize, kScaleOfInt8},
    {"quantize_casts", kQuantize, kCasts},
    {"quantize_all_but_last", kQuantize, kAllButLast},
    {"quantize_even_dims", kQuantize, kEvenDims},
    {"parts_right", kParts, kNone},
    {"parts_next_key", kParts, kNextKey},
    {"parts_drops_key", kParts, kDropsKey},
    {"parts_whole", kParts, kWholeContext},
    {"parts_of_tokens", kParts, kPartOfTokens},
    {"parts_empty_zero", kParts, kEmptyZero},
    {"parts_empty_held", kParts, kEmptyHeld},
    {"parts_unnormalised", kParts, kUnnormalised},
    {"parts_maximum_only", kParts, kMaximumOnly},
    {"parts_base2", kParts, kPartBase2},
    {"parts_position", kParts, kPartPosition},
    {"parts_next_state", kParts, kNextState},
    {"parts_sum_of_heads", kParts, kSumOfHeads},
};
constexpr size_t kCount = std::size(kFaults);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Dimensions that a kernel of the fault gets to.
int32_t reached(int32_t dims, Fault fault) { return fault == kEvenDims && dims > 1 ? dims / 2 * 2 : dims; }
// Whether it leaves out a row that goes to (comes from) this slot.
bool leaves_out(const assay_problem& p, int64_t row, KeyPlace at, Fault fault) {
  return fault == kLastOnPageEnd && row == p.rows - 1 && at.slot == p.page_size - 1;
}

float row_value(const RowsView& v, int64_t row, int64_t head, int64_t dim, int64_t state = 0) {
  return load_element(v.data, state * v.state + row * v.row + head * v.head + dim * v.dim, v.format);
}

void merge(const DataOpOperands& b, Fault fault) {
  const assay_problem& p = b.a.p;
  for (int64_t row = 0; row < p.rows; ++row)
    for (int32_t h = 0; h < p.heads_q; ++h) {
      const int32_t head_of_lse = fault == kOtherHead ? (h + 1) % p.heads_q : h;
      const auto lse = [&](int32_t s) {
        return b.partial_lse[s * b.partial_lse_stride[0] + row * b.partial_lse_stride[1] +
                             head_of_lse * b.partial_lse_stride[2]];
      };
      const int32_t states = p.states - (fault == kLastState ? 1 : 0);
      const bool sink = p.has_sinks && fault != kNoSink;
      float top = sink ? b.a.sinks[h * b.a.sinks_stride] : -kInfinity;
      for (int32_t s = 0; s < states; ++s) top = std::fmax(top, lse(s));
      if (fault == kNoMaximum) top = 0;
      if (top == -kInfinity && fault == kEmptyRows) continue;
      const auto weigh = [&](float x) {
        if (x == -kInfinity && fault != kNaNEmpty) return 0.0f;
        if (fault == kMeanOfStates) return 1.0f;
        return fault == kBase2 ? std::exp2(x - top) : std::exp(x - top);
      };
      float sum = 0;
      if (sink) sum += weigh(b.a.sinks[h * b.a.sinks_stride]) * (fault == kSinkTwice ? 2.0f : 1.0f);
      for (int32_t s = 0; s < states; ++s) sum += weigh(lse(s));
      for (int32_t d = 0; d < reached(p.head_dim_v, fault); ++d) {
        float o = 0;
        for (int32_t s = 0; s < states; ++s)
          if (lse(s) > -kInfinity || fault == kReadsEmpty)
            o += weigh(lse(s)) * row_value(b.partial_o, row, h, d, s);
        store_element(b.o.data, row * b.o.row + h * b.o.head + d * b.o.dim, b.o.format,
                      sum != 0               ? o / sum
                      : fault == kSignOfZero ? std::copysign(0.0f, row_value(b.partial_o, row, h, d))
                                             : 0.0f);
      }
      float result = sum == 0 ? -kInfinity : fault == kLargestLse ? top : top + std::log(sum);
      for (int32_t s = 0; s < states && fault == kPeeksEmpty; ++s)
        if (sum != 0 && lse(s) == -kInfinity && row_value(b.partial_o, row, h, 0, s) > 0)
          result = std::nextafter(result, kInfinity);
      b.lse[row * b.lse_stride[0] + h * b.lse_stride[1]] = result;
    }
}

// x / scale as a code of the format.
void store_quotient(unsigned char* data, int64_t at, int32_t format, float x, Fault fault) {
  if (format == ASSAY_INT8 && fault == kHalfAway) x = std::round(x);
  if (format == ASSAY_INT8 && fault == kTruncates) x = std::trunc(x);
  if (format == ASSAY_INT8 && fault == kMinus128 && x < -127.0f) {
    data[at] = 0x80;
    return;
  }
  if (format == ASSAY_INT8 && fault == kWraps) {
    data[at] = static_cast<unsigned char>(static_cast<int32_t>(std::nearbyint(x)));
    return;
  }
  store_code(data, at, format, x);
}

template <class Value>
float dynamic_scale(int32_t dims, int32_t format, Fault fault, const Value& value) {
  float largest = 0;
  for (int32_t d = 0; d < dims; ++d)
    largest = std::fmax(largest, fault == kMaxOfPositive ? value(d) : std::fabs(value(d)));
  const float code = fault == kScaleOfInt8 ? 127.0f : largest_code(format);
  return largest / (fault == kDynamic128 ? code + 1 : code);
}

float quotient(float x, float scale) { return scale == 0 ? 0 : x / scale; }

void write_plane(const DataOpOperands& b, bool is_v, int64_t row, KeyPlace at, Fault fault) {
  const RowsView& source = is_v ? b.dense_v : b.dense_k;
  const KvView& view = is_v ? b.a.v : b.a.k;
  const ScaleView& scale = is_v && fault != kKScaleForV ? b.a.v_scale : b.a.k_scale;
  unsigned char* cache = is_v ? b.v : b.k;
  float* dynamic = is_v ? b.v_scale : b.k_scale;
  const int32_t dims = is_v ? b.a.p.head_dim_v : b.a.p.head_dim_qk, heads = b.a.p.heads_kv;
  for (int32_t h = 0; h < heads; ++h) {
    const int32_t scale_head = fault == kScaleOfHead ? (h + 1) % heads : h;
    const int64_t base = token_offset(view, at) + h * view.head_stride;
    float common = kv_scale(scale, 0, at, scale_head);
    // A latent row may come in two parts.
    const bool parts = b.a.p.layout == ASSAY_LAYOUT_MLA && b.dense_v.data != nullptr;
    const int32_t split = !parts ? dims : fault == kRopeFirst ? dims - b.a.p.head_dim_v : b.a.p.head_dim_v;
    const auto value = [&](int32_t d) {
      if (!parts) return row_value(source, row, h, d);
      if (fault == kForgetsRope && d >= split) return 0.0f;
      const bool rope = fault == kRopeFirst ? d < split : d >= split;
      return row_value(rope ? b.dense_v : b.dense_k, row, h, d < split ? d : d - split);
    };
    const bool codes = b.ready_codes && fault != kQuantisesCodes;
    if (dynamic != nullptr) {
      const float* ready = is_v ? b.dense_v_scale : b.dense_k_scale;
      const int64_t* stride = is_v ? b.dense_v_scale_stride : b.dense_k_scale_stride;
      const int64_t place = fault == kScaleOfRows ? row * heads + h : row * stride[0] + h * stride[1];
      common = codes && fault != kOwnScale
                   ? ready[place]
                   : dynamic_scale(fault == kScaleOfLatent ? split : dims, view.format, fault, value);
      if (fault != kScaleUnwritten)
        dynamic[at.block * scale.stride[0] + h * scale.stride[1] + at.slot * scale.stride[2]] = common;
    }
    for (int32_t d = 0; d < reached(dims, fault) + (fault == kWideStore && h == heads - 1 ? 1 : 0); ++d) {
      const float x = value(d < dims ? d : 0);
      const float by =
          scale.kind == ASSAY_SCALE_CHANNEL ? channel_scale(scale, scale_head, d % dims) : common;
      const bool plain = scale.kind == ASSAY_SCALE_NONE || codes;
      store_quotient(cache, base + dim_offset(view, d), view.format, plain ? x : quotient(x, by), fault);
    }
  }
}

void write(const DataOpOperands& b, Fault fault) {
  const assay_problem& p = b.a.p;
  for (int64_t row = 0; row < p.rows - (fault == kSkipsLast ? 1 : 0); ++row) {
    int64_t slot = b.slots[row * b.slots_stride];
    if (slot < 0 && fault != kWritesPadding) continue;
    if (slot < 0) slot = 0;
    if (fault == kSlots16Bits) slot &= 0xffff;
    KeyPlace at{slot / p.page_size, static_cast<int32_t>(slot % p.page_size)};
    if (fault == kSlotOfBlock) at.slot = (at.slot + 1) % p.page_size;
    if (leaves_out(p, row, at, fault)) continue;
    write_plane(b, false, row, at, fault);
    const bool plane = b.dense_v.data != nullptr && p.layout != ASSAY_LAYOUT_MLA;
    if (plane && fault != kForgetsV) write_plane(b, true, row, at, fault);
  }
}

void gather_plane(const DataOpOperands& b, bool is_v, int64_t row, int request, KeyPlace at, Fault fault) {
  const RowsView& to = is_v ? b.dense_v : b.dense_k;
  const KvView& view = is_v ? b.a.v : b.a.k;
  const ScaleView& scale = is_v ? b.a.v_scale : b.a.k_scale;
  const int32_t dims = is_v ? b.a.p.head_dim_v : b.a.p.head_dim_qk, heads = b.a.p.heads_kv;
  for (int32_t h = 0; h < heads; ++h) {
    const int32_t scale_head = fault == kScaleOfHead ? (h + 1) % heads : h;
    KeyPlace scale_at = at;
    if (fault == kScaleOfToken && at.slot > 0) --scale_at.slot;
    for (int32_t d = 0; d < reached(dims, fault); ++d) {
      int64_t from = token_offset(view, at) + h * view.head_stride + dim_offset(view, d);
      if (fault == kAsRows) from = ((at.block * b.a.p.page_size + at.slot) * heads + h) * dims + d;
      float x = load_element(view.data, from, view.format);
      if (scale.kind == ASSAY_SCALE_CHANNEL)
        x *= channel_scale(scale, scale_head, d);
      else
        x *= kv_scale(scale, request, scale_at, scale_head);
      if (fault == kRoundsTwice) x = float_from_bf16(bf16_from_float(x));
      if (fault == kTruncatesOut && to.format == ASSAY_BF16)
        x = float_from_bits(bits_of_float(x) & 0xffff0000u);
      store_element(to.data, row * to.row + h * to.head + d * to.dim, to.format, x);
    }
  }
}

void gather(const DataOpOperands& b, Fault fault) {
  const assay_problem& p = b.a.p;
  for (int64_t row = 0; row < p.rows - (fault == kSkipsLast ? 1 : 0); ++row) {
    const int request = b.token_to_batch[row * b.token_to_batch_stride];
    const int64_t first = b.a.cu_q[request * b.a.cu_q_stride];
    const int64_t start = fault == kNoStart ? 0 : b.seq_starts[request * b.seq_starts_stride];
    KeyPlace at =
        place_key(b.a, fault == kFirstTable ? 0 : request, static_cast<int32_t>(start + row - first));
    if (fault == kSlots16Bits) {
      const int64_t slot = (at.block * p.page_size + at.slot) & 0xffff;
      at = {slot / p.page_size, static_cast<int32_t>(slot % p.page_size)};
    }
    if (leaves_out(p, row, at, fault)) continue;
    gather_plane(b, false, row, request, at, fault);
    if (b.dense_v.data != nullptr) gather_plane(b, true, row, request, at, fault);
  }
}

void quantize(const DataOpOperands& b, Fault fault) {
  const assay_problem& p = b.a.p;
  for (int32_t h = 0; b.channel_scales != nullptr && h < p.heads_q; ++h)
    for (int32_t d = 0; d < p.head_dim_qk; ++d)
      b.channel_scales[h * b.a.q_scale.stride[0] + d * b.a.q_scale.stride[1]] =
          dynamic_scale(static_cast<int32_t>(p.rows) - (fault == kAllButLast ? 1 : 0), b.q.format, fault,
                        [&](int32_t row) { return row_value(b.source, row, h, d); });
  for (int64_t row = 0; row < p.rows; ++row)
    for (int32_t h = 0; h < p.heads_q; ++h) {
      float common = 0;
      if (b.q_scale != nullptr) {
        common = dynamic_scale(p.head_dim_qk, b.q.format, fault,
                               [&](int32_t d) { return row_value(b.source, row, h, d); });
        const int64_t at = fault == kDenseScales ? row * p.heads_q + h
                                                 : row * b.a.q_scale.stride[0] + h * b.a.q_scale.stride[1];
        b.q_scale[at] = common;
      }
      const int32_t scale_head = fault == kScaleOfHead ? (h + 1) % p.heads_q : h;
      for (int32_t d = 0; d < reached(p.head_dim_qk, fault); ++d) {
        float by = common;
        if (b.q_scale == nullptr)
          by = b.a.q_scale.kind == ASSAY_SCALE_CHANNEL ? channel_scale(b.a.q_scale, scale_head, d)
                                                       : kv_scale(b.a.q_scale, 0, {row, 0}, scale_head);
        if (fault == kCasts) by = 1;
        store_quotient(b.q.data, row * b.q.row + h * b.q.head + d * b.q.dim, b.q.format,
                       quotient(row_value(b.source, row, h, d), by), fault);
      }
    }
}

// A kernel's row is its context.
Fault fault_of(const assay_kernel* self) { return static_cast<const Entry*>(self->context)->fault; }

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  const Fault fault = fault_of(self);
  if (p->op == kParts) {
    Operands a;
    if (!make_operands(p, t, &a, error, size)) return ASSAY_INVALID_ARGUMENT;
    attend_parts(a, fault);
    return ASSAY_OK;
  }
  DataOpOperands b;
  if (!make_data_op_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->op == kMerge) merge(b, fault);
  if (p->op == kWrite) write(b, fault);
  if (p->op == kGather) gather(b, fault);
  if (p->op == kQuantize) quantize(b, fault);
  return ASSAY_OK;
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  if (self->op == kParts)
    return find_instance(p, kParts, why, size) != nullptr ? ASSAY_OK : ASSAY_UNSUPPORTED;
  return supports_data_op(p, self->op, why, size);
}

int arithmetic(const assay_kernel* self, const assay_problem*, assay_arithmetic* out) {
  assay_arithmetic m{};
  m.exp_relative_error = fault_of(self) == kVague ? 0.45 : 0x1p-23;
  // Of decode_splitkv, whose kernel computes in double: fp32 is an honest description.
  m.qk = m.pv = {ASSAY_ACC_FMA, 1, 0, 23};
  m.splits = 1, m.p_format = ASSAY_FP32;
  m.tanh_relative_error = 0x1p-23;
  fill_struct(out, m);
  return ASSAY_OK;
}

std::array<assay_kernel, kCount> make_kernels() {
  std::array<assay_kernel, kCount> kernels{};
  for (size_t i = 0; i < kCount; ++i) {
    assay_kernel& k = kernels[i];
    k.struct_size = sizeof k, k.name = kFaults[i].name, k.description = "see data_op_faults.cpp";
    k.arch = "any", k.op = kFaults[i].op, k.promises = ASSAY_PROMISE_REPEATABLE;
    k.context = &kFaults[i];
    k.supports = supports, k.arithmetic = arithmetic, k.run = run;
  }
  return kernels;
}

int32_t device_count() { return 1; }
int device_info(int32_t, assay_device* info, char*, size_t) {
  *info = {};
  info->struct_size = sizeof *info;
  std::strcpy(info->name, "block faults");
  info->multiprocessors = 1, info->memory_bytes = int64_t{1} << 34, info->cache_bytes = 1 << 20;
  return ASSAY_OK;
}
int use_device(int32_t, char*, size_t) { return ASSAY_OK; }
int allocate(int64_t bytes, void** pointer, char*, size_t) {
  *pointer = std::malloc(static_cast<size_t>(bytes));
  return *pointer != nullptr ? ASSAY_OK : ASSAY_OUT_OF_MEMORY;
}
int release(void* pointer, char*, size_t) { return std::free(pointer), ASSAY_OK; }
int copy(void* to, const void* from, int64_t bytes, char*, size_t) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return ASSAY_OK;
}
int synchronize(char*, size_t) { return ASSAY_OK; }
int measure_bandwidth(int32_t, int64_t, double* rate, char*, size_t) { return *rate = 1e10, ASSAY_OK; }
int measure_matrix_rate(int32_t, double* rate, char*, size_t) { return *rate = 1e11, ASSAY_OK; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  if (version != ASSAY_ABI_VERSION) return nullptr;
  static const std::array<assay_kernel, kCount> kernels = make_kernels();
  static const std::array<const assay_kernel*, kCount> pointers = [] {
    std::array<const assay_kernel*, kCount> list{};
    for (size_t i = 0; i < kCount; ++i) list[i] = &kernels[i];
    return list;
  }();
  static const assay_backend backend = [] {
    assay_backend b{};
    b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = "data_op_faults";
    b.kernel_count = static_cast<int32_t>(kCount), b.kernels = pointers.data();
    b.device_count = device_count, b.device_info = device_info, b.use_device = use_device;
    b.allocate = allocate, b.release = release, b.copy_to_device = copy, b.copy_to_host = copy;
    b.synchronize = synchronize, b.measure_bandwidth = measure_bandwidth;
    b.measure_matrix_rate = measure_matrix_rate;
    return b;
  }();
  return &backend;
}
