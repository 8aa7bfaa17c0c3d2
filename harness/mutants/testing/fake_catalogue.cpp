// SPDX-License-Identifier: Apache-2.0
// A small catalogue for tests of the campaign: the naive CPU kernels, spoilt afterwards in one known way
// each, so that every outcome a campaign can have occurs: a fault that is caught, one that nothing can catch,
// one that no case reaches, crashes and hangs, a control, legal variants, and variants that are not legal.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "harness/abi/assay_fault.h"
#include "kernels/cpu/kernels.hpp"
#include "kernels/device/host_memory.hpp"

namespace {

enum Spoil { kNothing, kHalve, kOnePercent, kNudgeLse, kLeak, kCrash, kHang, kExit };

float from_bf16(uint16_t code) {
  const uint32_t bits = uint32_t{code} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

uint16_t to_bf16(float value) {  // truncation: a test needs no better
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}

void scale_o(const assay_tensor& o, float factor) {
  if (o.format != ASSAY_BF16) return;
  for (int64_t a = 0; a < o.shape[0]; ++a)
    for (int64_t b = 0; b < o.shape[1]; ++b)
      for (int64_t c = 0; c < o.shape[2]; ++c) {
        uint16_t& code = static_cast<uint16_t*>(o.data)[a * o.stride[0] + b * o.stride[1] + c * o.stride[2]];
        code = to_bf16(from_bf16(code) * factor);
      }
}

void nudge_lse(const assay_tensor& lse) {
  for (int64_t a = 0; a < lse.shape[0]; ++a)
    for (int64_t b = 0; b < lse.shape[1]; ++b)
      static_cast<float*>(lse.data)[a * lse.stride[0] + b * lse.stride[1]] += 1e-3f;
}

// The slot behind the last key of the first request, where nobody has business: times zero, so only NaN
// shows.
void leak(const assay_problem& p, const assay_tensors& t) {
  const int64_t block = static_cast<const int32_t*>(t.block_table.data)[p.kv_len[0] / p.page_size];
  const int64_t at = block * t.k.stride[0] + p.kv_len[0] % p.page_size * t.k.stride[1];
  uint16_t& code = *static_cast<uint16_t*>(t.o.data);
  code = to_bf16(from_bf16(code) + 0 * from_bf16(static_cast<const uint16_t*>(t.k.data)[at]));
}

int has_unused_slot(const assay_problem* p) {
  return p->op == ASSAY_OP_PAGED && p->layout == ASSAY_LAYOUT_NHD && p->table == ASSAY_TABLE_BLOCK &&
         p->k_format == ASSAY_BF16 && p->o_format == ASSAY_BF16 && p->requests > 0 && p->q_len[0] > 0 &&
         p->kv_len[0] % p->page_size != 0;
}

template <const assay_kernel& kBase, Spoil kSpoil>
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
        void* stream, char* error, size_t size) {
  if (kSpoil == kCrash) raise(SIGSEGV);
  if (kSpoil == kExit) std::_Exit(0);
  while (kSpoil == kHang) pause();
  const int status = kBase.run(self, p, t, plan, stream, error, size);
  if (kSpoil == kHalve) scale_o(t->o, 0.5f);
  if (kSpoil == kOnePercent) scale_o(t->o, 1.01f);
  if (kSpoil == kNudgeLse) nudge_lse(t->lse);
  if (kSpoil == kLeak) leak(*p, *t);
  return status;
}

template <const assay_kernel& kBase, Spoil kSpoil>
assay_kernel spoilt(const char* name) {
  assay_kernel k = kBase;
  k.name = name;
  k.run = run<kBase, kSpoil>;
  return k;
}

#define PAIR(id, spoil)                                                                      \
  const assay_kernel prefill_##id = spoilt<assay_cpu::kPrefillNaive, spoil>("prefill_" #id); \
  const assay_kernel paged_##id = spoilt<assay_cpu::kPagedNaive, spoil>("paged_" #id);
PAIR(halved, kHalve)
PAIR(hidden, kNothing)
PAIR(unreached, kHalve)
PAIR(lse_off, kNudgeLse)
PAIR(leaking, kLeak)
PAIR(crashing, kCrash)
PAIR(hanging, kHang)
PAIR(leaving, kExit)
PAIR(control, kNothing)
PAIR(rejected_control, kHalve)
PAIR(legal, kNothing)
PAIR(legal_too, kNothing)
PAIR(not_legal, kOnePercent)
PAIR(legal_crash, kCrash)
#undef PAIR

int never(const assay_problem*) { return 0; }

#define FAULT(id, cause, equivalent, reached)                                                           \
  {                                                                                                     \
    sizeof(assay_fault), #id, "spoilt after the fact: " #id, "output", "proto:" #id, cause, equivalent, \
        &prefill_##id, &paged_##id, reached                                                             \
  }
const assay_fault kFaults[] = {
    FAULT(halved, "output.scaled", 0, nullptr),
    FAULT(hidden, "output.scaled", 0, nullptr),
    FAULT(unreached, "output.scaled", 0, never),
    FAULT(lse_off, "lse.base2", 0, nullptr),
    FAULT(leaking, "memory.unused_slot", 0, has_unused_slot),
    FAULT(crashing, "output.zeros", 0, nullptr),
    FAULT(hanging, "output.zeros", 0, nullptr),
    FAULT(leaving, "output.zeros", 0, nullptr),
    FAULT(control, "alibi.shifted", 1, nullptr),
    FAULT(rejected_control, "alibi.shifted", 1, nullptr),
};
const assay_fault kVariants[] = {
    {sizeof(assay_fault), "legal", "the naive kernel", nullptr, nullptr, nullptr, 0, &prefill_legal,
     &paged_legal, nullptr},
    {sizeof(assay_fault), "legal_too", "the naive kernel", nullptr, nullptr, nullptr, 0, &prefill_legal_too,
     &paged_legal_too, nullptr},
    {sizeof(assay_fault), "not_legal", "one percent too large", nullptr, nullptr, nullptr, 0,
     &prefill_not_legal, &paged_not_legal, nullptr},
    {sizeof(assay_fault), "legal_crash", "crashes", nullptr, nullptr, nullptr, 0, &prefill_legal_crash,
     &paged_legal_crash, nullptr},
};
const assay_fault_catalogue kCatalogue = {sizeof(assay_fault_catalogue), sizeof(kFaults) / sizeof(kFaults[0]),
                                          sizeof(kVariants) / sizeof(kVariants[0]), kFaults, kVariants};

const assay_kernel* const kKernels[] = {
    &prefill_halved,    &paged_halved,    &prefill_hidden,           &paged_hidden,
    &prefill_unreached, &paged_unreached, &prefill_lse_off,          &prefill_leaking,
    &paged_leaking,     &paged_lse_off,   &prefill_crashing,         &paged_crashing,
    &prefill_hanging,   &paged_hanging,   &prefill_leaving,          &paged_leaving,
    &prefill_control,   &paged_control,   &prefill_rejected_control, &paged_rejected_control,
    &prefill_legal,     &paged_legal,     &prefill_legal_too,        &paged_legal_too,
    &prefill_not_legal, &paged_not_legal, &prefill_legal_crash,      &paged_legal_crash,
};

int device_info(int32_t, assay_device* out, char*, size_t) {
  *out = assay_device{};
  out->struct_size = sizeof(*out);
  std::strcpy(out->name, "fake catalogue");
  out->multiprocessors = 1;
  return ASSAY_OK;
}
int use_device(int32_t, char*, size_t) { return ASSAY_OK; }
int measure_bandwidth(int32_t, int64_t, double*, char*, size_t) { return ASSAY_UNSUPPORTED; }
int measure_matrix_rate(int32_t, double*, char*, size_t) { return ASSAY_UNSUPPORTED; }

const assay_backend kBackend = [] {
  assay_backend b{};
  b.struct_size = sizeof b, b.abi_version = ASSAY_ABI_VERSION, b.name = "fake_catalogue";
  b.kernel_count = sizeof(kKernels) / sizeof(kKernels[0]), b.kernels = kKernels;
  assay_host::fill(b);
  b.device_info = device_info, b.use_device = use_device;
  b.measure_bandwidth = measure_bandwidth, b.measure_matrix_rate = measure_matrix_rate;
  return b;
}();

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(uint32_t version) {
  return version == ASSAY_ABI_VERSION ? &kBackend : nullptr;
}

extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t version) {
  return version == ASSAY_ABI_VERSION ? &kCatalogue : nullptr;
}
