// SPDX-License-Identifier: Apache-2.0
// A backend whose kernels misbehave on demand, to prove that the harness notices. Every behaviour exists
// for both ops: paged_<behaviour>_fake and prefill_<behaviour>_fake. The arithmetic underneath is one
// plain double-precision attention over the tensors (dense prefill; NHD or HND cache with a block table;
// causal, full and window masks; bf16, fp16, fp32 without scales). To add a behaviour: its enumerator and
// row in fake_behaviours.hpp, one case in run() (or in the door it concerns). A kernel's row is its context.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/device/testing/fake_attention.hpp"
#include "harness/device/testing/fake_behaviours.hpp"
#include "harness/device/testing/fake_device.hpp"
#include "reference/formats/formats.hpp"

struct assay_plan {
  int served = 0;                // runs
  std::vector<int32_t> lengths;  // cu_q and kv_len as refresh() found them
  std::vector<std::byte> q;      // as plan() found it
};

namespace {

using namespace assay_fake;

// Whether this worker was started with a part of the processors, for other workers to have the rest.
bool works_beside() {
  std::ifstream words("/proc/self/cmdline");
  for (std::string word; std::getline(words, word, '\0');)
    if (word == "--threads") return true;
  return false;
}

int run(Behaviour behaviour, const assay_problem& p, const assay_tensors& given, assay_plan* plan,
        char* error, size_t size) {
  assay_tensors ts = given;
  static std::atomic<int> calls{0};
  const int call = calls++;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const bool any = p.total_q > 0;
  if (behaviour == Behaviour::kSeldom) behaviour = call % 20 == 19 ? Behaviour::kDropPage : Behaviour::kOk;
  switch (behaviour) {
    case Behaviour::kSilent:
      return ASSAY_OK;
    case Behaviour::kRefuseWrote:
      fill(ts.o, 1.0);
      [[fallthrough]];
    case Behaviour::kRefuseRun:
      return fail_text(error, size, "required a run, supported none, missing the kernel"), ASSAY_UNSUPPORTED;
    case Behaviour::kRefuseLater:
      if (plan->served++ == 0) break;
      return fail_text(error, size, "required two runs, supported one, missing the second"),
             ASSAY_UNSUPPORTED;
    case Behaviour::kPackedOnly:
      if (packed(ts.q)) break;
      return fail_text(error, size, "required strides, supported none, missing strides"), ASSAY_UNSUPPORTED;
    case Behaviour::kSemaphore:
    case Behaviour::kDirty: {
      int32_t& counter = *static_cast<int32_t*>(ts.workspace.data);
      if (counter != 0) return ASSAY_OK;  // as if it still waited for the others: nothing is written
      if (behaviour == Behaviour::kDirty) ++counter;
      break;
    }
    case Behaviour::kRefreshed:
    case Behaviour::kRefreshOut:
    case Behaviour::kEatsRefresh:
      ts = with_lengths(p, ts, static_cast<int32_t*>(ts.workspace.data));
      break;
    case Behaviour::kStale:
      ts = with_lengths(p, ts, plan->lengths.data());
      break;
    case Behaviour::kPlanned:
      ts.q.data = plan->q.data();
      break;
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
    case Behaviour::kWildRead: {
      auto page = (reinterpret_cast<uintptr_t>(end_of(ts.q, bytes_of(ts.q.format))) | 4095) + 1;
      while (msync(reinterpret_cast<void*>(page), 4096, MS_ASYNC) == 0) page += 4096;
      static_cast<void>(*reinterpret_cast<volatile char*>(page));
      return ASSAY_OK;
    }
    case Behaviour::kNullRead:
    case Behaviour::kWildAddress: {
      volatile uintptr_t address = behaviour == Behaviour::kNullRead ? 24 : uintptr_t{1} << 62;
      static_cast<void>(*reinterpret_cast<volatile char*>(address));
      return ASSAY_OK;
    }
    case Behaviour::kLastWords:
      std::printf("last words: no tile of 7 rows\n");
      std::abort();
    case Behaviour::kAbort:
      std::abort();
    case Behaviour::kBeside:
      if (works_beside()) std::abort();
      break;
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
  // For who watches a run or stops it in the middle: cases that take their time without taking the machine's.
  if (const char* const pause = std::getenv("ASSAY_FAKE_PAUSE_MS"); pause != nullptr)
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(pause)));
  // Far longer than other work on this machine may delay the devices beside it.
  if (slow_device) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (!any) return ASSAY_OK;
  switch (behaviour) {
    case Behaviour::kOneNan:
      assay::store(ts.o.format, ts.o.data, (p.total_q - 1) * ts.o.stride[0], nan);
      break;
    case Behaviour::kCopiesNan:
      // As a kernel does whose table is one entry short: bits of a slot that nobody wrote, in O's own format.
      if (p.op == ASSAY_OP_PAGED && p.kv_len[0] % p.page_size != 0)
        for (int64_t h = 0; h < p.heads_q; ++h)
          for (int64_t d = 0; d < p.head_dim_v; ++d)
            assay::store(ts.o.format, ts.o.data,
                         (p.total_q - 1) * ts.o.stride[0] + h * ts.o.stride[1] + d * ts.o.stride[2],
                         cached(p, ts, ts.v, 0, p.kv_len[0], 0, static_cast<int>(d)));
      break;
    case Behaviour::kPadding:
      if (static_cast<const int32_t*>(ts.cu_q.data)[p.requests] < p.total_q)
        assay::store(ts.o.format, ts.o.data, (p.total_q - 1) * ts.o.stride[0], 0.0);
      break;
    case Behaviour::kSpill:
      if (const int64_t used = ts.o.shape[1] * ts.o.shape[2]; ts.o.stride[0] > used)
        assay::store(ts.o.format, ts.o.data, used, 1.0);
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
    case Behaviour::kEatsRefresh:
      std::memset(given.workspace.data, 0, static_cast<size_t>(given.workspace.shape[0]));
      break;
    case Behaviour::kReadPast:
      static_cast<void>(*const_cast<volatile char*>(end_of(ts.q, bytes_of(ts.q.format)) + 64));
      break;
    case Behaviour::kRestore: {
      volatile char& byte = *static_cast<char*>(ts.k.data);
      byte = byte ^ 0x40;
      byte = byte ^ 0x40;
      break;
    }
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
    case Behaviour::kKept:
      return exchange_kept(ts.o.data, end_of(ts.o, bytes_of(ts.o.format)), call % 3 == 2), ASSAY_OK;
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
  if (behaviour == Behaviour::kOneShape &&
      (p.heads_q != 4 * p.heads_kv || p.head_dim_qk != 128 || (p.op == ASSAY_OP_PAGED && p.page_size != 16)))
    return refuse("required another shape, supported groups of 4, d 128, page 16, missing it");
  for (int32_t format : {p.q_format, p.k_format, p.v_format, p.o_format})
    if (format != ASSAY_BF16 && format != ASSAY_FP16 && format != ASSAY_FP32)
      return refuse("required a quantised format, supported bf16 fp16 fp32, missing the format");
  if (p.first_key != nullptr || p.positions != nullptr)
    return refuse("required positions, supported none, missing positions");
  if (p.q_scale_kind || p.k_scale_kind || p.v_scale_kind)
    return refuse("required scales, supported none, missing scales");
  if ((p.mask != ASSAY_MASK_CAUSAL && p.mask != ASSAY_MASK_FULL) || p.chunk || p.softcap != 0 || p.alibi ||
      p.has_sinks)
    return refuse("required more than causal, full and window masks, supported those, missing the rest");
  if (p.op == ASSAY_OP_PAGED &&
      (p.table == ASSAY_TABLE_CSR || (p.layout != ASSAY_LAYOUT_NHD && p.layout != ASSAY_LAYOUT_HND)))
    return refuse(
        "required another layout or table, supported nhd or hnd with a block or token table, missing it");
  return ASSAY_OK;
}

Behaviour behaviour_of(const assay_kernel* self) {
  return static_cast<const Entry*>(self->context)->behaviour;
}

// Computes in double, so fp32 with a short chain is an honest, generous description.
int arithmetic(const assay_kernel* self, const assay_problem* p, assay_arithmetic* a) {
  const Behaviour behaviour = behaviour_of(self);
  if (behaviour == Behaviour::kDefaults) return ASSAY_OK;
  a->qk = a->pv = {ASSAY_ACC_FMA, 16, 0, 23};
  a->tile_keys = p->max_kv_len > 0 ? p->max_kv_len : 1;
  a->splits = 1;
  a->row_sum_chain = 64;
  const bool leans = behaviour == Behaviour::kLean || behaviour == Behaviour::kLeanOnce;
  a->p_format = leans ? ASSAY_BF16 : ASSAY_FP32;
  a->exp_relative_error = behaviour == Behaviour::kVague ? 0.6 : 0x1p-22;
  a->tanh_relative_error = 0x1p-22;
  a->qk_instruction = "fake products";
  return ASSAY_OK;
}

int run_door(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
             void* stream, char* error, size_t size) {
  if (recorded(self, p, t, plan, stream)) return ASSAY_OK;
  return run(behaviour_of(self), *p, *t, plan, error, size);
}
int supports_door(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                  const assay_device*, char* why, size_t size) {
  if (p->op != self->op) {
    fail_text(why, size, "required the other op, supported its own, missing the other");
    return ASSAY_UNSUPPORTED;
  }
  if (behaviour_of(self) == Behaviour::kPackedOnly && t != nullptr && !packed(t->q)) {
    fail_text(why, size, "required strides, supported packed operands, missing strides");
    return ASSAY_UNSUPPORTED;
  }
  return supports(behaviour_of(self), *p, why, size);
}
int plan_door(const assay_kernel* self, const assay_problem*, const assay_tensors* t, assay_plan** plan,
              char* error, size_t size) {
  if (behaviour_of(self) == Behaviour::kRefusePlan)
    return fail_text(error, size, "required a plan, supported none, missing plans"), ASSAY_UNSUPPORTED;
  *plan = new assay_plan;
  if (behaviour_of(self) == Behaviour::kPlanned) {
    const auto* const q = static_cast<const std::byte*>(t->q.data);
    (*plan)->q.assign(q, reinterpret_cast<const std::byte*>(end_of(t->q, bytes_of(t->q.format))));
  }
  return ASSAY_OK;
}
void free_plan_door(const assay_kernel*, assay_plan* plan) { delete plan; }
int refresh_door(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                 void*, char*, size_t) {
  const Behaviour behaviour = behaviour_of(self);
  if (behaviour == Behaviour::kRefreshOut && p->total_q > 0) assay::store(t->o.format, t->o.data, 0, 1.0);
  if (behaviour != Behaviour::kStale) {
    copy_lengths(*p, *t, static_cast<int32_t*>(t->workspace.data));
  } else if (plan->lengths.empty()) {
    plan->lengths.resize(static_cast<size_t>(2) * p->requests + 1);
    copy_lengths(*p, *t, plan->lengths.data());
  }
  return ASSAY_OK;
}
int64_t workspace_door(const assay_kernel*, const assay_problem* p) {
  return (2 * int64_t{p->requests} + 1) * static_cast<int64_t>(sizeof(int32_t));
}
int64_t zeroed_door(const assay_kernel* self, const assay_problem*) {
  return behaviour_of(self) == Behaviour::kGreedy ? int64_t{1} << 20 : 4;
}

struct Registry {
  std::vector<std::string> names;
  std::vector<assay_kernel> kernels;
  std::vector<const assay_kernel*> pointers;

  void add(Entry& entry, int32_t op) {
    assay_kernel k{};
    k.struct_size = sizeof(k);
    names.push_back(std::string(op == ASSAY_OP_PAGED ? "paged_" : "prefill_") + entry.name + "_fake");
    k.description = entry.description;
    k.arch = "any";
    k.op = op;
    k.context = &entry;
    k.contracts = entry.contracts;
    k.promises = ASSAY_PROMISE_REPEATABLE;
    if (entry.behaviour != Behaviour::kUndeclared) k.promises |= ASSAY_PROMISE_GRAPH;
    if (entry.behaviour == Behaviour::kOk) k.promises |= ASSAY_PROMISE_BATCH_INVARIANT;
    k.supports = supports_door;
    k.arithmetic = entry.behaviour == Behaviour::kUndeclared ? nullptr : arithmetic;
    k.run = run_door;
    switch (entry.behaviour) {
      case Behaviour::kSemaphore:
      case Behaviour::kDirty:
      case Behaviour::kGreedy:
        k.workspace_bytes = workspace_door, k.workspace_zeroed_bytes = zeroed_door;
        break;
      case Behaviour::kRefreshed:
      case Behaviour::kRefreshOut:
      case Behaviour::kEatsRefresh:
        k.workspace_bytes = workspace_door, k.refresh = refresh_door;
        break;
      case Behaviour::kStale:
        k.refresh = refresh_door;
        [[fallthrough]];
      case Behaviour::kRefusePlan:
      case Behaviour::kPlanned:
      case Behaviour::kRefuseLater:
        k.plan = plan_door, k.free_plan = free_plan_door;
        break;
      default:
        break;
    }
    kernels.push_back(k);
  }
  Registry() {
    for (const int32_t op : {ASSAY_OP_PAGED, ASSAY_OP_PREFILL})
      for (Entry& entry : kBehaviours) add(entry, op);
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
    b.name = "fake", b.host_memory = 1;
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
    b.begin_capture = begin_capture;
    b.end_capture = end_capture;
    b.replay = replay;
    b.time_replay = time_replay;
    b.free_graph = free_graph;
    return b;
  }();
  return &backend;
}
