// SPDX-License-Identifier: Apache-2.0
// From the header alone: attention over a cache of pages, in fp32, bf16, fp8 (e4m3) or int8 and every layout
// but the latent one, and a step, which first writes its new keys there. One thread, fp32, a row and head at
// a time, written to be read. What neither looks at, supports() refuses: harness/abi/README.md has the list.
#include <assay/assay_kernel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

// ---- numbers
static float from_bf16(uint16_t code) {
  const uint32_t bits = uint32_t{code} << 16;
  float x;
  return std::memcpy(&x, &bits, sizeof x), x;
}
static uint16_t to_bf16(float x) {  // to nearest even; there are no NaNs here
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_e4m3(uint8_t code) {  // sign, 4 bits of exponent, 3 of fraction: steps of 2^-9 at least
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const float x = exponent > 0 ? std::ldexp(8.0f + fraction, exponent - 10) : std::ldexp(1.0f * fraction, -9);
  return (code & 0x80) != 0 ? -x : x;
}
static uint8_t to_e4m3(float x) {  // to nearest even, what is beyond 448 becomes 448
  int exponent;
  const float size = std::min(std::fabs(x), 448.0f);
  std::frexp(size, &exponent);
  const int step = size > 0 ? std::max(exponent - 4, -9) : -9;  // frexp says exponent 0 of 0, as of 0.5
  const int code = (step + 9) * 8 + static_cast<int>(std::nearbyint(std::ldexp(size, -step)));
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}
static float load(const assay_tensor& t, int64_t i) {
  if (t.format == ASSAY_FP32) return static_cast<const float*>(t.data)[i];
  if (t.format == ASSAY_BF16) return from_bf16(static_cast<const uint16_t*>(t.data)[i]);
  if (t.format == ASSAY_FP8_E4M3) return from_e4m3(static_cast<const uint8_t*>(t.data)[i]);
  return static_cast<const int8_t*>(t.data)[i];
}
static void store(const assay_tensor& t, int64_t i, float x) {
  if (t.format == ASSAY_FP32) static_cast<float*>(t.data)[i] = x;
  if (t.format == ASSAY_BF16) static_cast<uint16_t*>(t.data)[i] = to_bf16(x);
  if (t.format == ASSAY_FP8_E4M3) static_cast<uint8_t*>(t.data)[i] = to_e4m3(x);
  if (t.format == ASSAY_INT8)
    static_cast<int8_t*>(t.data)[i] = static_cast<int8_t>(std::clamp(std::nearbyint(x), -127.0f, 127.0f));
}

// ---- places
static int64_t at(const assay_tensor& t, std::initializer_list<int64_t> index) {
  int64_t sum = 0, axis = 0;
  for (const int64_t i : index) sum += i * t.stride[axis++];
  return sum;
}
static int32_t number(const assay_tensor& t, int64_t i, int64_t j = 0) {
  return static_cast<const int32_t*>(t.data)[i * t.stride[0] + j * (t.rank > 1 ? t.stride[1] : 0)];
}
static int64_t slot_of(const assay_problem& p, const assay_tensors& t, int64_t r, int64_t key) {
  if (p.table == ASSAY_TABLE_TOKEN) return number(t.block_table, r, key);
  return int64_t{number(t.block_table, r, key / p.page_size)} * p.page_size + key % p.page_size;
}

struct Side {  // K or V of the cache
  const assay_problem& p;
  const assay_tensor &codes, &scales;
  int32_t kind;
  float host;
  bool is_v;

  int64_t element(int64_t slot, int64_t head, int64_t d) const {
    const int64_t b = slot / p.page_size, s = slot % p.page_size, x = codes.shape[4];
    switch (p.layout) {
      case ASSAY_LAYOUT_NHD:
        return at(codes, {b, s, head, d});
      case ASSAY_LAYOUT_HND:
        return at(codes, {b, head, s, d});
      case ASSAY_LAYOUT_X:
        return is_v ? at(codes, {b, head, d, s}) : at(codes, {b, head, d / x, s, d % x});
      default:
        return is_v ? at(codes, {b, head, s / x, d, s % x}) : at(codes, {b, head, d / x, s, d % x});
    }
  }
  int64_t scale_at(int64_t r, int64_t slot, int64_t head, int64_t d) const {
    switch (kind) {
      case ASSAY_SCALE_HEAD:
        return at(scales, {head});
      case ASSAY_SCALE_REQUEST_HEAD:
        return at(scales, {r, head});
      case ASSAY_SCALE_TOKEN_HEAD:
        return at(scales, {slot / p.page_size, head, slot % p.page_size});
      case ASSAY_SCALE_CHANNEL:
        return at(scales, {head, d});
      default:
        return 0;
    }
  }
  float scale(int64_t r, int64_t slot, int64_t head, int64_t d) const {
    if (kind == ASSAY_SCALE_NONE) return 1;
    return kind == ASSAY_SCALE_HOST ? host : load(scales, scale_at(r, slot, head, d));
  }
  float value(int64_t r, int64_t slot, int64_t head, int64_t d) const {
    return load(codes, element(slot, head, d)) * scale(r, slot, head, d);
  }
  // A new key: row `row` of `from` to its slot. A scale of the token is the kernel's to compute.
  void write(const assay_tensor& from, int64_t row, int64_t slot, int64_t dims) const {
    for (int64_t head = 0; head < p.heads_kv; ++head) {
      if (kind == ASSAY_SCALE_TOKEN_HEAD) {
        float largest = 0;
        for (int64_t d = 0; d < dims; ++d)
          largest = std::max(largest, std::fabs(load(from, at(from, {row, head, d}))));
        store(scales, scale_at(0, slot, head, 0), largest / (codes.format == ASSAY_INT8 ? 127 : 448));
      }
      for (int64_t d = 0; d < dims; ++d) {
        const float by = scale(0, slot, head, d);
        store(codes, element(slot, head, d), by > 0 ? load(from, at(from, {row, head, d})) / by : 0);
      }
    }
  }
};
static Side side_k(const assay_problem& p, const assay_tensors& t) {
  return {p, t.k, t.k_scale, p.k_scale_kind, p.k_scale_host, false};
}
static Side side_v(const assay_problem& p, const assay_tensors& t) {
  return {p, t.v, t.v_scale, p.v_scale_kind, p.v_scale_host, true};
}

// ---- the kernels
static void attend(const assay_problem& p, const assay_tensors& t) {
  const Side k = side_k(p, t), v = side_v(p, t);
  std::vector<float> q(p.head_dim_qk), o(p.head_dim_v);
  for (int32_t r = 0; r < p.requests; ++r) {
    const int32_t first = number(t.cu_q, r), rows = number(t.cu_q, r + 1) - first, keys = number(t.kv_len, r);
    for (int32_t i = 0; i < rows; ++i)
      for (int32_t h = 0; h < p.heads_q; ++h) {
        const int32_t head = h / (p.heads_q / p.heads_kv), position = keys - rows + i;
        const int32_t oldest = p.window_left < 0 ? 0 : std::max(0, position - p.window_left);
        for (int32_t d = 0; d < p.head_dim_qk; ++d) q[d] = load(t.q, at(t.q, {first + i, h, d}));
        std::fill(o.begin(), o.end(), 0.0f);
        float top = -INFINITY, sum = 0;
        for (int32_t j = oldest; j <= position; ++j) {
          const int64_t slot = slot_of(p, t, r, j);
          float s = 0;
          for (int32_t d = 0; d < p.head_dim_qk; ++d) s += q[d] * k.value(r, slot, head, d);
          s *= p.softmax_scale;
          const float higher = std::max(top, s), old = std::exp(top - higher), weight = std::exp(s - higher);
          for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] = o[d] * old + weight * v.value(r, slot, head, d);
          top = higher, sum = sum * old + weight;
        }
        for (int32_t d = 0; d < p.head_dim_v; ++d)
          store(t.o, at(t.o, {first + i, h, d}), sum > 0 ? o[d] / sum : 0);
        if (t.lse.data != nullptr)  // a step has none
          store(t.lse, at(t.lse, {first + i, h}), sum > 0 ? top + std::log(sum) : -INFINITY);
      }
  }
}

static int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
               char*, size_t) {
  if (self->op == ASSAY_OP_STEP && !p->no_write)
    for (int64_t row = 0; row < p->rows; ++row) {  // those of padding, too: they have no slot
      const int64_t slot = static_cast<const int64_t*>(t->slot_mapping.data)[row * t->slot_mapping.stride[0]];
      if (slot < 0) continue;
      side_k(*p, *t).write(t->dense_k, row, slot, p->head_dim_qk);
      side_v(*p, *t).write(t->dense_v, row, slot, p->head_dim_v);
    }
  return attend(*p, *t), ASSAY_OK;
}

static int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                    const assay_device*, char* why, size_t size) {
  const auto wide = [](int32_t f) { return f == ASSAY_FP32 || f == ASSAY_BF16; };
  const auto known = [&](int32_t f) { return wide(f) || f == ASSAY_FP8_E4M3 || f == ASSAY_INT8; };
  const bool formats = wide(p->q_format) && wide(p->o_format) && known(p->k_format) && known(p->v_format) &&
                       p->q_scale_kind == ASSAY_SCALE_NONE;
  const bool plain = p->mask == ASSAY_MASK_CAUSAL && p->window_right < 0 && !p->chunk && !p->alibi &&
                     !(p->softcap > 0) && !p->has_sinks && !p->first_key && !p->positions && !p->drafted &&
                     p->layout != ASSAY_LAYOUT_MLA && p->table != ASSAY_TABLE_CSR;
  const bool step = !p->encoder_len && !p->full_pool && !p->two_sources && wide(p->source_format);
  if (formats && plain && (step || self->op != ASSAY_OP_STEP)) return ASSAY_OK;
  return std::snprintf(why, size, "required more than causal attention, missing it"), ASSAY_UNSUPPORTED;
}

static int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* a) {
  a->exp_relative_error = a->log_absolute_error = 1.0 / (1 << 23);  // of the C library
  a->scaling_relative_error = 0;  // x / scale and max / 127 are one division each: codes are known to the bit
  a->dense_new_keys = 0;          // rows see new keys as they lie in the cache, as all others
  return ASSAY_OK;
}

// ---- the table: what a CPU needs of it
static int32_t count() { return 1; }
static int info(int32_t, assay_device* d, char*, size_t) {
  std::snprintf(d->name, sizeof d->name, "a CPU");
  std::snprintf(d->arch, sizeof d->arch, "x86-64");
  return ASSAY_OK;
}
static int use(int32_t, char*, size_t) { return ASSAY_OK; }
static int allocate(int64_t bytes, void** to, char*, size_t) {
  *to = std::malloc(static_cast<size_t>(bytes));
  return *to != nullptr ? ASSAY_OK : ASSAY_OUT_OF_MEMORY;
}
static int release(void* p, char*, size_t) { return std::free(p), ASSAY_OK; }
static int copy(void* to, const void* from, int64_t bytes, char*, size_t) {
  return std::memcpy(to, from, static_cast<size_t>(bytes)), ASSAY_OK;
}
static int wait(char*, size_t) { return ASSAY_OK; }
static int bandwidth(int32_t, int64_t, double*, char*, size_t) { return ASSAY_UNSUPPORTED; }
static int rate(int32_t, double*, char*, size_t) { return ASSAY_UNSUPPORTED; }

static assay_kernel entry(const char* name, int32_t op) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.op = op;
  k.description = "one row and head at a time, fp32", k.arch = "x86-64",
  k.promises = ASSAY_PROMISE_REPEATABLE;
  k.supports = supports, k.arithmetic = arithmetic, k.run = run;
  return k;
}
extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  static const assay_kernel paged = entry("paged_bare_cpu", ASSAY_OP_PAGED),
                            step = entry("step_bare_cpu", ASSAY_OP_STEP);
  static const assay_kernel* kernels[] = {&paged, &step};
  static assay_backend table;  // what is not named stays null: a CPU needs none of it
  table.struct_size = sizeof table, table.abi_version = ASSAY_ABI_VERSION, table.name = "bare_cache";
  table.kernel_count = 2, table.kernels = kernels, table.host_memory = 1;
  table.device_count = count, table.device_info = info, table.use_device = use;
  table.allocate = allocate, table.release = release, table.copy_to_device = table.copy_to_host = copy;
  table.synchronize = wait, table.measure_bandwidth = bandwidth, table.measure_matrix_rate = rate;
  return version == ASSAY_ABI_VERSION ? &table : nullptr;
}
