// SPDX-License-Identifier: Apache-2.0
// A backend whose kernels misbehave on demand, to prove that the harness notices. Every behaviour exists
// for both ops: paged_<behaviour>_fake and prefill_<behaviour>_fake. The arithmetic underneath is one
// plain double-precision attention over the tensors (dense prefill; NHD or HND cache with a block table;
// causal, full and window masks; bf16, fp16, fp32 without scales). To add a behaviour: one enumerator,
// one row of kBehaviours, one case in run().
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/device/testing/fake_device.hpp"
#include "reference/formats/formats.hpp"

namespace {

using namespace assay_fake;

enum class Behaviour {
  kOk,
  kSilent,       // returns OK and writes nothing
  kSkipRow,      // leaves the last row unwritten
  kNan,          // writes NaN everywhere
  kOneNan,       // one NaN in the last row, the rest right
  kZeros,        // O = 0, LSE = 0
  kOverrunNear,  // right, and 4 bytes past the end of O
  kOverrunFar,   // right, and 3000 bytes past the end of LSE
  kUnderrun,     // right, and 8 bytes before the start of O
  kWriteInput,   // right, and flips a byte of K
  kThrow,        // lets a C++ exception escape
  kThrowInt,     // lets something escape that is no std::exception
  kFail,         // returns ASSAY_FAILED with a text
  kRefuse,       // supports() says no
  kFlaky,        // changes low bits from run to run, promises repeatability
  kDropPage,     // ignores the last page (16 keys for prefill)
  kLeak,         // multiplies P = 0 with the unused slots of the last page
  kPeek,         // the last bit of the LSE follows the sign of an unused slot
  kVague,        // right, but declares an exponential so bad that nothing could be wrong
  kLse2,         // LSE in base 2
  kSegfault,
  kAbort,
  kExit,        // calls exit(0)
  kHang,        // never returns
  kAllocate,    // allocates and touches memory without end
  kLose,        // right, but the device answers nothing from then on
  kPending,     // right, but leaves an error for whoever asks next
  kNoisy,       // right, but prints to stdout and stderr
  kUndeclared,  // right, declares no arithmetic
  kLean,        // O too large by 0.16 %, declares P in bf16: within every bound
  kLeanOnce,    // the same where the first element of Q is positive
  kFrozen,      // right when called; a replay keeps the lengths the host had at capture
  kGridBound,   // right when called; a replay leaves out requests longer than at capture
  kPadding,     // right when called; a replay for fewer rows writes the last of those captured
};

struct Entry {
  Behaviour behaviour;
  const char* name;
  const char* description;
};
constexpr Entry kBehaviours[] = {
    {Behaviour::kOk, "ok", "right"},
    {Behaviour::kSilent, "silent", "writes nothing"},
    {Behaviour::kSkipRow, "skiprow", "leaves the last row unwritten"},
    {Behaviour::kNan, "nan", "writes NaN"},
    {Behaviour::kOneNan, "onenan", "writes one NaN"},
    {Behaviour::kZeros, "zeros", "writes zeros"},
    {Behaviour::kOverrunNear, "overrun", "writes 4 bytes past the end of O"},
    {Behaviour::kOverrunFar, "overrunfar", "writes 3000 bytes past the end of LSE"},
    {Behaviour::kUnderrun, "underrun", "writes 8 bytes before the start of O"},
    {Behaviour::kWriteInput, "writeinput", "changes a byte of K"},
    {Behaviour::kThrow, "throw", "throws std::runtime_error"},
    {Behaviour::kThrowInt, "throwint", "throws an int"},
    {Behaviour::kFail, "fail", "returns ASSAY_FAILED"},
    {Behaviour::kRefuse, "refuse", "refuses every problem"},
    {Behaviour::kFlaky, "flaky", "different low bits in every run"},
    {Behaviour::kDropPage, "droppage", "ignores the last page"},
    {Behaviour::kLeak, "leak", "multiplies P = 0 with unused slots"},
    {Behaviour::kPeek, "peek", "last bit of the LSE follows an unused slot"},
    {Behaviour::kVague, "vague", "declares an exponential of no accuracy"},
    {Behaviour::kLse2, "lse2", "LSE in base 2"},
    {Behaviour::kSegfault, "segfault", "writes to address 0"},
    {Behaviour::kAbort, "abort", "calls abort"},
    {Behaviour::kExit, "exit", "calls exit(0)"},
    {Behaviour::kHang, "hang", "never returns"},
    {Behaviour::kAllocate, "allocate", "allocates without end"},
    {Behaviour::kLose, "lose", "right, and the device is gone"},
    {Behaviour::kPending, "pending", "right, and leaves an error behind"},
    {Behaviour::kNoisy, "noisy", "prints to stdout and stderr"},
    {Behaviour::kUndeclared, "undeclared", "declares no arithmetic"},
    {Behaviour::kLean, "lean", "O too large by 0.16 %, P declared in bf16"},
    {Behaviour::kLeanOnce, "leanonce", "the same where the first element of Q is positive"},
    {Behaviour::kFrozen, "frozen", "replays with the lengths of the capture"},
    {Behaviour::kGridBound, "gridbound", "replays cut off at the lengths of the capture"},
    {Behaviour::kPadding, "padding", "writes behind the last request of a replay"},
};
constexpr int kBehaviourCount = sizeof(kBehaviours) / sizeof(kBehaviours[0]);

double element(const assay_tensor& t, int64_t a, int64_t b, int64_t c, int64_t d = 0) {
  return assay::load(t.format, t.data, a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]);
}

// K or V element of one position; NHD [block, slot, head, dim], HND [block, head, slot, dim].
double cached(const assay_problem& p, const assay_tensors& ts, const assay_tensor& t, int request,
              int64_t position, int head, int dim) {
  if (p.op == ASSAY_OP_PREFILL) {
    const int64_t first = static_cast<const int32_t*>(ts.cu_kv.data)[request];
    return element(t, first + position, head, dim);
  }
  const auto* table = static_cast<const int32_t*>(ts.block_table.data);
  const int64_t block =
      table[request * ts.block_table.stride[0] + position / p.page_size * ts.block_table.stride[1]];
  const int64_t slot = position % p.page_size;
  return p.layout == ASSAY_LAYOUT_NHD ? element(t, block, slot, head, dim)
                                      : element(t, block, head, slot, dim);
}

bool sees(const assay_problem& p, int64_t position, int64_t key) {
  if (p.mask == ASSAY_MASK_CAUSAL && key > position) return false;
  if (p.window_left >= 0 && key < position - p.window_left) return false;
  return p.window_right < 0 || key <= position + p.window_right;
}

void attend(const assay_problem& p, const assay_tensors& ts, Behaviour behaviour) {
  const auto* cu_q = static_cast<const int32_t*>(ts.cu_q.data);
  const auto* kv_len = static_cast<const int32_t*>(ts.kv_len.data);
  const int32_t page = p.op == ASSAY_OP_PAGED ? p.page_size : 16;
  const bool leans = behaviour == Behaviour::kLean ||
                     (behaviour == Behaviour::kLeanOnce && p.total_q > 0 && element(ts.q, 0, 0, 0) > 0);
  const double size = leans ? 1.0016 : 1.0;
  for (int r = 0; r < p.requests; ++r) {
    const bool frozen = behaviour == Behaviour::kFrozen;
    const int64_t n = frozen ? p.q_len[r] : cu_q[r + 1] - cu_q[r];
    const int64_t m = frozen ? p.kv_len[r] : kv_len[r * ts.kv_len.stride[0]];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = cu_q[r] + i, position = m - n + i;
      if (behaviour == Behaviour::kSkipRow && row + 1 == p.total_q) continue;
      for (int h = 0; h < p.heads_q; ++h) {
        const int kv = h / (p.heads_q / p.heads_kv);
        int64_t end = m;
        if (behaviour == Behaviour::kDropPage && m > page) end = (m - 1) / page * page;
        if (behaviour == Behaviour::kGridBound) end = std::min<int64_t>(m, p.kv_len[r]);
        std::vector<double> x(end);
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < end; ++j) {
          double dot = 0;
          for (int d = 0; d < p.head_dim_qk; ++d)
            dot += element(ts.q, row, h, d) * cached(p, ts, ts.k, r, j, kv, d);
          x[j] = sees(p, position, j) ? dot * p.softmax_scale : -std::numeric_limits<double>::infinity();
          top = std::max(top, x[j]);
        }
        double sum = 0;
        for (double& value : x) sum += value = std::isinf(top) ? 0.0 : std::exp(value - top);
        const double lse = sum > 0 ? top + std::log(sum) : -std::numeric_limits<double>::infinity();
        for (int d = 0; d < p.head_dim_v; ++d) {
          double o = 0;
          for (int64_t j = 0; j < end; ++j)
            if (x[j] > 0) o += x[j] * cached(p, ts, ts.v, r, j, kv, d);
          if (behaviour == Behaviour::kLeak && m % page != 0 && p.op == ASSAY_OP_PAGED) {
            // The classical mistake: the whole last page is multiplied, masked keys with P = 0.
            for (int64_t j = m; j < (m / page + 1) * page; ++j) o += 0.0 * cached(p, ts, ts.v, r, j, kv, d);
          }
          assay::store(ts.o.format, ts.o.data, row * ts.o.stride[0] + h * ts.o.stride[1] + d * ts.o.stride[2],
                       sum > 0 ? size * o / sum : 0.0);
        }
        assay::store(ts.lse.format, ts.lse.data, row * ts.lse.stride[0] + h * ts.lse.stride[1],
                     behaviour == Behaviour::kLse2 ? lse * 1.4426950408889634 : lse);
      }
    }
  }
}

// Every element of a view, strides respected.
template <class Value>
void fill(const assay_tensor& t, const Value& value) {
  for (int64_t a = 0; a < t.shape[0]; ++a)
    for (int64_t b = 0; b < t.shape[1]; ++b)
      for (int64_t c = 0; c < (t.rank > 2 ? t.shape[2] : 1); ++c)
        assay::store(t.format, t.data, a * t.stride[0] + b * t.stride[1] + (t.rank > 2 ? c * t.stride[2] : 0),
                     value);
}

// One past the last byte of a view.
char* end_of(const assay_tensor& t, int bytes) {
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return static_cast<char*>(t.data) + (last + 1) * bytes;
}
int bytes_of(int32_t format) { return format == ASSAY_FP32 ? 4 : 2; }

int run(Behaviour behaviour, const assay_problem& p, const assay_tensors& ts, char* error, size_t size) {
  static std::atomic<int> calls{0};
  const int call = calls++;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const bool any = p.total_q > 0;
  switch (behaviour) {
    case Behaviour::kSilent:
      return ASSAY_OK;
    case Behaviour::kNan:
      fill(ts.o, nan), fill(ts.lse, nan);
      return ASSAY_OK;
    case Behaviour::kZeros:
      fill(ts.o, 0.0), fill(ts.lse, 0.0);
      return ASSAY_OK;
    case Behaviour::kThrow:
      throw std::runtime_error("fake kernel threw");
    case Behaviour::kThrowInt:
      throw 42;
    case Behaviour::kFail:
      fail_text(error, size, "fake kernel failed on purpose");
      return ASSAY_FAILED;
    case Behaviour::kSegfault:
      raise(SIGSEGV);
      return ASSAY_OK;
    case Behaviour::kAbort:
      std::abort();
    case Behaviour::kExit:
      std::exit(0);
    case Behaviour::kHang:
      for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
    case Behaviour::kAllocate:
      for (std::vector<char*> held;;) {
        constexpr size_t kStep = size_t{64} << 20;
        held.push_back(new char[kStep]);
        std::memset(held.back(), 1, kStep);
      }
    default:
      break;
  }
  attend(p, ts, behaviour);
  if (slow_device) attend(p, ts, behaviour);
  if (!any) return ASSAY_OK;
  switch (behaviour) {
    case Behaviour::kOneNan:
      assay::store(ts.o.format, ts.o.data, (p.total_q - 1) * ts.o.stride[0], nan);
      break;
    case Behaviour::kPadding:
      if (static_cast<const int32_t*>(ts.cu_q.data)[p.requests] < p.total_q)
        assay::store(ts.o.format, ts.o.data, (p.total_q - 1) * ts.o.stride[0], 0.0);
      break;
    case Behaviour::kOverrunNear:
      std::memset(end_of(ts.o, bytes_of(ts.o.format)), 0x11, 4);
      break;
    case Behaviour::kOverrunFar:
      end_of(ts.lse, 4)[3000] = 0x11;
      break;
    case Behaviour::kUnderrun:
      static_cast<char*>(ts.o.data)[-8] = 0x11;
      break;
    case Behaviour::kWriteInput:
      *static_cast<char*>(ts.k.data) ^= 0x40;
      break;
    case Behaviour::kPeek: {
      // The slot behind the last key of request 0, if its page has one.
      if (p.op != ASSAY_OP_PAGED || p.kv_len[0] % p.page_size == 0) break;
      auto* lse = static_cast<float*>(ts.lse.data);
      if (cached(p, ts, ts.k, 0, p.kv_len[0], 0, 0) > 0) *lse = std::nextafter(*lse, *lse + 1);
      break;
    }
    case Behaviour::kFlaky: {
      // One unit in the last place of the largest element, every other run: within any bound.
      if (call % 2 == 0) break;
      auto* lse = static_cast<float*>(ts.lse.data);
      if (std::isfinite(*lse)) *lse = std::nextafter(*lse, *lse + 1);
      break;
    }
    case Behaviour::kLose:
      device_gone = true;
      break;
    case Behaviour::kPending:
      error_pending = true;
      break;
    case Behaviour::kNoisy:
      std::printf("fake kernel was here\n{\"not\": \"protocol\"}\n");
      std::fprintf(stderr, "fake kernel was here too\n");
      std::fflush(nullptr);
      break;
    default:
      break;
  }
  return ASSAY_OK;
}

int supports(Behaviour behaviour, const assay_problem& p, char* why, size_t size) {
  const auto refuse = [&](const char* text) {
    fail_text(why, size, text);
    return static_cast<int>(ASSAY_UNSUPPORTED);
  };
  if (behaviour == Behaviour::kRefuse)
    return refuse("required this problem, supported none, missing everything");
  for (int32_t format : {p.q_format, p.k_format, p.v_format, p.o_format})
    if (format != ASSAY_BF16 && format != ASSAY_FP16 && format != ASSAY_FP32)
      return refuse("required a quantised format, supported bf16 fp16 fp32, missing the format");
  if (p.q_scale_kind || p.k_scale_kind || p.v_scale_kind)
    return refuse("required scales, supported none, missing scales");
  if ((p.mask != ASSAY_MASK_CAUSAL && p.mask != ASSAY_MASK_FULL) || p.chunk || p.softcap != 0 || p.alibi ||
      p.has_sinks)
    return refuse("required more than causal, full and window masks, supported those, missing the rest");
  if (p.op == ASSAY_OP_PAGED &&
      (p.table != ASSAY_TABLE_BLOCK || (p.layout != ASSAY_LAYOUT_NHD && p.layout != ASSAY_LAYOUT_HND)))
    return refuse("required another layout or table, supported nhd or hnd with a block table, missing it");
  return ASSAY_OK;
}

// Computes in double, so fp32 with a short chain is an honest, generous description.
template <Behaviour kBehaviour>
int arithmetic(const assay_problem* p, assay_arithmetic* a) {
  *a = assay_arithmetic{};
  a->struct_size = sizeof(*a);
  a->qk = a->pv = {ASSAY_ACC_FMA, 16, 0, 23};
  a->tile_keys = p->max_kv_len > 0 ? p->max_kv_len : 1;
  a->splits = 1;
  a->row_sum_chain = 64;
  const bool leans = kBehaviour == Behaviour::kLean || kBehaviour == Behaviour::kLeanOnce;
  a->p_format = leans ? ASSAY_BF16 : ASSAY_FP32;
  a->exp_relative_error = kBehaviour == Behaviour::kVague ? 0.6 : 0x1p-22;
  a->tanh_relative_error = 0x1p-22;
  a->qk_instruction = "fake products";
  return ASSAY_OK;
}

template <int kIndex>
int run_door(const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char* error, size_t size) {
  return run(kBehaviours[kIndex].behaviour, *p, *t, error, size);
}
template <int kIndex, int kOp>
int supports_door(const assay_problem* p, const assay_device*, char* why, size_t size) {
  if (p->op != kOp) {
    fail_text(why, size, "required the other op, supported its own, missing the other");
    return ASSAY_UNSUPPORTED;
  }
  return supports(kBehaviours[kIndex].behaviour, *p, why, size);
}

struct Registry {
  std::vector<std::string> names;
  std::vector<assay_kernel> kernels;
  std::vector<const assay_kernel*> pointers;

  template <int kIndex, int kOp>
  void add() {
    const Entry& entry = kBehaviours[kIndex];
    assay_kernel k{};
    k.struct_size = sizeof(k);
    names.push_back(std::string(kOp == ASSAY_OP_PAGED ? "paged_" : "prefill_") + entry.name + "_fake");
    k.description = entry.description;
    k.arch = "any";
    k.op = kOp;
    k.promises = ASSAY_PROMISE_REPEATABLE;
    if (entry.behaviour != Behaviour::kUndeclared) k.promises |= ASSAY_PROMISE_GRAPH;
    if (entry.behaviour == Behaviour::kOk) k.promises |= ASSAY_PROMISE_BATCH_INVARIANT;
    k.supports = supports_door<kIndex, kOp>;
    k.arithmetic =
        entry.behaviour == Behaviour::kUndeclared ? nullptr : arithmetic<kBehaviours[kIndex].behaviour>;
    k.run = run_door<kIndex>;
    kernels.push_back(k);
  }
  template <int... kIndex>
  void add_all(std::integer_sequence<int, kIndex...>) {
    (add<kIndex, ASSAY_OP_PAGED>(), ...);
    (add<kIndex, ASSAY_OP_PREFILL>(), ...);
  }
  Registry() {
    add_all(std::make_integer_sequence<int, kBehaviourCount>{});
    for (size_t i = 0; i < kernels.size(); ++i) {
      kernels[i].name = names[i].c_str();
      pointers.push_back(&kernels[i]);
    }
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  if (version != ASSAY_ABI_VERSION) return nullptr;
  static const Registry registry;
  static const assay_backend backend = [] {
    assay_backend b{};
    b.struct_size = sizeof(b);
    b.abi_version = ASSAY_ABI_VERSION;
    b.name = "fake";
    b.kernel_count = static_cast<int32_t>(registry.pointers.size());
    b.kernels = registry.pointers.data();
    b.device_count = device_count;
    b.device_info = device_info;
    b.use_device = use_device;
    b.allocate = allocate;
    b.release = release;
    b.copy_to_device = copy;
    b.copy_to_host = copy;
    b.synchronize = synchronize;
    b.measure_bandwidth = measure_bandwidth;
    b.measure_matrix_rate = measure_matrix_rate;
    b.instructions = instructions;
    b.run_products = run_products;
    b.run_function = run_function;
    b.measure_rate = measure_rate;
    b.capture = capture;
    b.replay = replay;
    b.time_replay = time_replay;
    b.free_graph = free_graph;
    return b;
  }();
  return &backend;
}
