// SPDX-License-Identifier: Apache-2.0
// libassay_rank_faults.so: step_ixformer_dcp_cpu with one thing wrong in a rank, as its stages get it or
// leave it, and ranks that end, hang, fail or never join. "right" is the kernel itself. Everything happens in
// the rank's process; rank_group_test.cpp lists on which line each shows. The library has four devices and
// connects its ranks itself, as one for GPUs does (rank_connection.cpp), and none of it fails by itself.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <list>
#include <vector>

#include "harness/abi/assay_fault.h"
#include "harness/abi/assay_group.h"
#include "harness/check/testing/fault_library.hpp"
#include "harness/run/testing/rank_connection.hpp"
#include "kernels/common/group.hpp"
#include "kernels/common/pipelines.hpp"
#include "kernels/cpu/kernels.hpp"

// The entries of kernels/cpu/backend.cpp, compiled into this library under other names.
extern "C" const assay_backend* assay_rank_faults_inner_open(uint32_t abi_version);
extern "C" int assay_rank_faults_inner_join(const assay_group*, char* error, size_t size);

namespace {

using namespace assay_kernels;
using Change = int (*)(assay_problem&, assay_tensors&);

// A stage that changes what it is about to get, or what it left.
struct Spoilt {
  assay_kernel kernel;
  const assay_kernel* right;
  Change before, after;
};

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
        void* stream, char* error, size_t size) {
  const Spoilt& s = *static_cast<const Spoilt*>(self->context);
  assay_problem problem = *p;
  assay_tensors tensors = *t;
  if (s.before != nullptr && s.before(problem, tensors) != ASSAY_OK) {
    std::snprintf(error, size, "planted failure");
    return ASSAY_FAILED;
  }
  const int status = s.right->run(s.right, &problem, &tensors, plan, stream, error, size);
  if (s.after != nullptr) s.after(problem, tensors);
  return status;
}

float* floats(const assay_tensor& t) { return static_cast<float*>(t.data); }
int64_t count(const assay_tensor& t) {
  int64_t n = 1;
  for (int axis = 0; axis < t.rank; ++axis) n *= t.shape[axis];
  return n;
}
int32_t rank() { return joined_group()->rank; }
int32_t ranks() { return joined_group()->ranks; }

// A changed copy of a list, which lives until the next one.
template <class Element, class F>
void change_list(assay_tensor& t, const F& f) {
  static std::vector<Element> copy;
  copy.resize(static_cast<size_t>(t.shape[0]));
  for (int64_t i = 0; i < t.shape[0]; ++i)
    copy[static_cast<size_t>(i)] = f(static_cast<const Element*>(t.data)[i * t.stride[0]], i);
  t.data = copy.data(), t.stride[0] = 1;
}

int lse_base_2(assay_problem&, assay_tensors& t) {
  for (int64_t i = 0; i < count(t.partial_lse); ++i) floats(t.partial_lse)[i] *= 0.69314718f;
  return ASSAY_OK;
}
int no_correction(assay_problem&, assay_tensors& t) {
  std::copy_n(floats(t.partial_o), count(t.o), floats(t.o));
  return ASSAY_OK;
}
int empty_as_zero(assay_problem&, assay_tensors& t) {
  float* lse = floats(t.partial_lse);
  std::replace(lse, lse + count(t.partial_lse), -std::numeric_limits<float>::infinity(), 0.0f);
  return ASSAY_OK;
}
int own_total(assay_problem&, assay_tensors& t) {
  const int64_t each = t.partial_lse.shape[2] * t.partial_lse.shape[3];
  std::copy_n(floats(t.partial_lse) + (rank() * ranks() + rank()) * each, each, floats(t.lse));
  return ASSAY_OK;
}
int heads_turned(assay_problem&, assay_tensors& t) {
  const int64_t each = count(t.partial_o) / t.partial_o.shape[0];
  float* o = floats(t.partial_o);
  std::swap_ranges(o, o + each, o + (t.partial_o.shape[0] - 1) * each);
  return ASSAY_OK;
}
int own_heads_for_all(assay_problem&, assay_tensors& t) {
  const int64_t each = count(t.o) / t.o.shape[0] * 2;  // bytes, of 16-bit Q
  auto* o = static_cast<unsigned char*>(t.o.data);
  for (int64_t of = 0; of < t.o.shape[0]; ++of)
    if (of != rank()) std::memcpy(o + of * each, o + rank() * each, static_cast<size_t>(each));
  return ASSAY_OK;
}
int local_causal(assay_problem& p, assay_tensors&) {
  p.mask = ASSAY_MASK_CAUSAL;
  return ASSAY_OK;
}
// The host's bound on lengths, where those in memory are to be larger than a right step has them.
void more_room(assay_problem& p) {
  static std::vector<int32_t> bound;
  constexpr int32_t kMost = 1000;
  bound.assign(static_cast<size_t>(p.requests), kMost);
  p.kv_len = bound.data(), p.max_kv_len = kMost, p.total_kv = int64_t{kMost} * p.requests;
}
int next_rank(assay_problem& p, assay_tensors& t) {  // whose keys they are, off by one
  const int32_t to = (rank() + 1) % ranks();
  t.kv_len.data = static_cast<int32_t*>(t.kv_len.data) + (to - rank()) * p.requests;
  more_room(p);
  return ASSAY_OK;
}
int of_bound(assay_problem& p, assay_tensors& t) {
  // A rank's share of the longest, ceil(m / (N I)) I, is known without waiting for the device; turns of 4
  // tokens in the test. Requests of fewer have that many keys then, or what their pages hold.
  constexpr int32_t kTurn = 4;
  const int32_t bound = (*std::max_element(p.kv_len, p.kv_len + p.requests) + kTurn - 1) / kTurn * kTurn;
  change_list<int32_t>(t.kv_len, [&](int32_t n, int64_t) { return n > kTurn ? bound : n; });
  more_room(p);
  return ASSAY_OK;
}
int with_new_keys(assay_problem& p, assay_tensors& t) {
  change_list<int32_t>(t.kv_len, [&](int32_t n, int64_t r) { return n + p.q_len[r]; });
  more_room(p);
  return ASSAY_OK;
}
int writes_all(assay_problem&, assay_tensors& t) {
  int64_t own = -1;
  for (int64_t i = 0; i < t.slot_mapping.shape[0]; ++i)
    own = std::max(own, static_cast<const int64_t*>(t.slot_mapping.data)[i * t.slot_mapping.stride[0]]);
  change_list<int64_t>(t.slot_mapping,
                       [&](int64_t slot, int64_t i) { return slot < 0 ? own + 1 + i : slot; });
  return ASSAY_OK;
}
int writes_none(assay_problem&, assay_tensors& t) {
  change_list<int64_t>(t.slot_mapping, [&](int64_t slot, int64_t) { return rank() == 1 ? -1 : slot; });
  return ASSAY_OK;
}

// A kernel told that a prefix common to all is attended apart, where nobody built what that takes.
int prefix_apart(assay_problem&, assay_tensors& t) {
  constexpr int32_t kPrefix = 4;
  change_list<int32_t>(t.kv_len, [&](int32_t n, int64_t) { return std::max(0, n - kPrefix); });
  return ASSAY_OK;
}
int tired(assay_problem&, assay_tensors& t) {  // right while it is judged
  static int calls = 0;
  constexpr int kJudged = 6;
  if (++calls > kJudged && rank() == 1)
    for (assay_tensor* own : {&t.o, &t.lse}) {
      static std::vector<unsigned char> elsewhere(1 << 20);
      own->data = elsewhere.data();
    }
  return ASSAY_OK;
}

int32_t window = -1;  // of the line, which the step itself does not see
int windowed(assay_problem& p, assay_tensors&) {
  p.window_left = window;
  return ASSAY_OK;
}

int ends(assay_problem&, assay_tensors&) {
  if (rank() == 1) _exit(7);
  return ASSAY_OK;
}
int crashes(assay_problem&, assay_tensors&) {
  if (rank() == 1) abort();
  return ASSAY_OK;
}
int hangs(assay_problem&, assay_tensors&) {
  while (rank() == 1) pause();
  return ASSAY_OK;
}
int fails(assay_problem&, assay_tensors&) { return rank() == 1 ? ASSAY_FAILED : ASSAY_OK; }

// ---- drawn before there was anything to explain them with
int one_less(assay_problem&, assay_tensors& t) {
  if (rank() == 1) change_list<int32_t>(t.kv_len, [](int32_t n, int64_t) { return std::max(0, n - 1); });
  return ASSAY_OK;
}
int causal_on_1(assay_problem& p, assay_tensors&) {
  if (rank() == 1) p.mask = ASSAY_MASK_CAUSAL;
  return ASSAY_OK;
}
int turns_of_one(assay_problem& p, assay_tensors&) {
  p.interleave = 1;
  more_room(p);
  return ASSAY_OK;
}
int own_lse_for_all(assay_problem&, assay_tensors& t) {
  const int64_t each = count(t.o) / t.o.shape[0];
  float* lse = floats(t.o);
  for (int64_t of = 0; of < t.o.shape[0]; ++of)
    if (of != rank()) std::copy_n(lse + rank() * each, each, lse + of * each);
  return ASSAY_OK;
}
int no_correction_on_1(assay_problem& p, assay_tensors& t) {
  return rank() == 1 ? no_correction(p, t) : int{ASSAY_OK};
}
int mean_of_ranks(assay_problem&, assay_tensors& t) {
  for (int64_t i = 0; i < count(t.o); ++i) floats(t.o)[i] /= static_cast<float>(ranks());
  return ASSAY_OK;
}
int k_for_v_on_1(assay_problem&, assay_tensors& t) {
  if (rank() == 1) std::swap(t.dense_k.data, t.dense_v.data);
  return ASSAY_OK;
}
int sinks_missing_on_0(assay_problem& p, assay_tensors&) {
  if (rank() == 0) p.has_sinks = 0;
  return ASSAY_OK;
}
int all_new(assay_problem& p, assay_tensors&) {
  p.mask = ASSAY_MASK_FULL;
  return ASSAY_OK;
}

// ---- a clock of its own, as libraries for devices have (ASSAY_TEST_CLOCK): "late": now and then rank 0
// comes late to where the ranks meet, which its own time tells and that of rank 1, who waits there, does not;
// "tenth": all say a tenth of what it took.
int time_run(const assay_kernel* kernel, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
             int64_t, double* us, char* error, size_t size) {
  static int calls = 0;
  constexpr int kAwayUs = 400000, kSlowUs = 4000, kEvery = 4;
  const bool late = std::strcmp(std::getenv("ASSAY_TEST_CLOCK"), "late") == 0;
  const auto came = std::chrono::steady_clock::now();
  if (late && rank() == 0 && calls++ % kEvery == 1) usleep(kAwayUs);
  rank_testing::meet();
  const auto met = std::chrono::steady_clock::now();
  if (!late) usleep(kSlowUs);
  const int status = kernel->run(kernel, p, t, plan, nullptr, error, size);
  const auto ended = std::chrono::steady_clock::now();
  const double took = std::chrono::duration<double>(ended - (late && rank() == 0 ? came : met)).count();
  *us = 1e6 * took / (late ? 1 : 10);
  return status;
}

#define LINE "step h=4/2 d=32 ranks=2 interleave=4 page=4 batch=2q1s33_1q5s40_1q1s3 seed=3"

// `place`, `causes`: what an explanation has to say (assay_fault.h); null: it ends the rank, or is right.
struct Fault {
  const char *name, *stage;
  Change before, after;
  const char *place = nullptr, *causes = nullptr, *line = LINE;
};
const Fault kFaults[] = {
    {"right", "correct", nullptr, nullptr},
    {"lse_base_2", "correct", lse_base_2, nullptr, "exchange correct", "merge_base2"},
    {"no_correction", "correct", nullptr, no_correction, "exchange correct", "merge_unweighted"},
    {"empty_as_zero", "correct", empty_as_zero, nullptr, "exchange correct", "empty_as_zero"},
    {"own_total", "correct", nullptr, own_total, "exchange correct", "total_of_one_rank"},
    {"heads_turned", "scatter", heads_turned, nullptr, "exchange scatter", "heads_turned"},
    {"own_heads_for_all", "gather_q", nullptr, own_heads_for_all, "exchange gather_q", "heads_of_one_rank"},
    {"local_causal", "context", local_causal, nullptr, "context", "mask_causal"},
    {"next_rank", "context", next_rank, nullptr, "context", "keys_of_other_rank"},
    {"lengths_of_bound", "context", of_bound, nullptr, "rank 0 context", "keys_of_longest"},
    {"new_keys_twice", "context", with_new_keys, nullptr, "context", "lengths_with_new"},
    {"writes_all", "write", writes_all, nullptr, "write", "foreign_rows"},
    {"writes_none", "write", writes_none, nullptr, "rank 1 write", "left_out row_missing"},
    {"prefix_apart", "context", prefix_apart, nullptr, "context", "lengths_off_by_page"},
    {"tired", "merge", tired, nullptr},
    {"window_local", "context", windowed, nullptr},
    {"ends", "context", ends, nullptr},
    {"crashes", "correct", crashes, nullptr},
    {"hangs", "gather_lse", hangs, nullptr},
    {"fails", "merge", fails, nullptr},
    {"drawn_causal_on_1", "context", causal_on_1, nullptr, "rank 1 context", "mask_causal"},
    {"drawn_one_less_on_1", "context", one_less, nullptr, "rank 1 context", "lengths_off_by_one"},
    {"drawn_turns_of_one", "lengths", turns_of_one, nullptr, "lengths", "turns_other"},
    {"drawn_own_lse_for_all", "gather_lse", nullptr, own_lse_for_all, "exchange gather_lse",
     "total_of_one_rank"},
    {"drawn_no_correction_on_1", "correct", nullptr, no_correction_on_1, "rank 1 exchange correct",
     "merge_unweighted"},
    {"drawn_mean_of_ranks", "scatter", nullptr, mean_of_ranks, "exchange scatter", "sum_scaled"},
    {"drawn_k_for_v_on_1", "write", k_for_v_on_1, nullptr, "rank 1 write", "v_for_k"},
    {"drawn_sinks_missing_on_0", "merge", sinks_missing_on_0, nullptr, "rank 0 merge", "sink_missing",
     LINE " sinks=on"},
    {"drawn_all_new", "new", all_new, nullptr, "new", "mask_full"},
};

const assay_kernel* made(const Fault& fault) {
  static std::list<Spoilt> all;
  std::vector<assay_stage> stages = stages_of(kIxformerDcp, assay_cpu::step_kit());
  for (assay_stage& stage : stages) {
    const bool wide = std::strcmp(fault.name, "window_local") == 0 && std::strcmp(stage.name, "new") == 0;
    if (std::strcmp(stage.name, fault.stage) != 0 && !wide) continue;
    Spoilt& s = all.emplace_back(Spoilt{*stage.kernel, stage.kernel, fault.before, fault.after});
    s.kernel.run = run;
    s.kernel.context = &s;
    // Entries look at themselves only in run().
    stage.kernel = &s.kernel;
  }
  const assay_kernel* step =
      make_composed(&kIxformerDcp, std::string("dcp_") + fault.name, "x86-64", std::move(stages), nullptr);
  if (fault.before != windowed) return step;
  static assay_kernel open;  // takes windows, and shows its stages what they are
  static const assay_kernel* inner;
  inner = step, open = *step;
  static const auto without = [](const assay_problem* p) {
    assay_problem q = *p;
    window = q.window_left, q.window_left = q.window_right = -1;
    return q;
  };
  open.supports = [](const assay_kernel*, const assay_problem* p, const assay_tensors* t,
                     const assay_device* d, char* why, size_t size) {
    const assay_problem q = without(p);
    return inner->supports(inner, &q, t, d, why, size);
  };
  open.arithmetic = [](const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
    const assay_problem q = without(p);
    return inner->arithmetic(inner, &q, out);
  };
  open.workspace_bytes = [](const assay_kernel*, const assay_problem* p) {
    const assay_problem q = without(p);
    return inner->workspace_bytes(inner, &q);
  };
  open.plan = [](const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan** plan,
                 char* error, size_t size) {
    const assay_problem q = without(p);
    return inner->plan(inner, &q, t, plan, error, size);
  };
  open.run = [](const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                void* stream, char* error, size_t size) {
    const assay_problem q = without(p);
    return inner->run(inner, &q, t, plan, stream, error, size);
  };
  return &open;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_backend* assay_backend_open(
    uint32_t abi_version) {
  static const assay_backend* backend = [&] {
    static assay_backend table = *assay_rank_faults_inner_open(abi_version);
    static const assay_backend inner = table;
    static std::vector<const assay_kernel*> kernels;
    for (const Fault& f : kFaults) kernels.push_back(made(f));
    table.name = "rank_faults";
    table.kernels = kernels.data(), table.kernel_count = static_cast<int32_t>(kernels.size());
    if (std::getenv("ASSAY_TEST_CLOCK") != nullptr) table.time_run = time_run;
    table.device_count = [] { return rank_testing::kDevices; };
    table.use_device = [](int32_t, char* error, size_t size) { return inner.use_device(0, error, size); };
    table.device_info = [](int32_t device, assay_device* out, char* error, size_t size) {
      const int status = inner.device_info(0, out, error, size);
      std::snprintf(out->uuid, sizeof out->uuid, "device-%d", device);
      return status;
    };
    return &table;
  }();
  return backend;
}

extern "C" __attribute__((visibility("default"))) const assay_fault_catalogue* assay_fault_catalogue_open(
    uint32_t abi_version) {
  return fault_library::steps_opened<kFaults>(assay_backend_open(abi_version), "wrong on its ranks");
}

extern "C" __attribute__((visibility("default"))) int assay_backend_join(const assay_group* group,
                                                                         char* error, size_t size) {
  const char* never = std::getenv("ASSAY_TEST_NEVER_JOINS");
  while (never != nullptr && group->rank == std::atoi(never)) pause();
  return assay_rank_faults_inner_join(rank_testing::connect(group), error, size);
}
