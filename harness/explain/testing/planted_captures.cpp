// SPDX-License-Identifier: Apache-2.0
// libassay_planted_captures.so: steps of the CPU's kernels that are right when they are called and wrong when
// they were captured and are replayed for other batches. A graph is the calls of its stages, kept with what
// the host said at capture; memory is read anew in each replay. A new fault: a row of kFaults.
#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "harness/explain/testing/handed_on.hpp"
#include "harness/explain/testing/planted_library.hpp"
#include "harness/explain/testing/planted_steps.hpp"
#include "kernels/device/host_memory.hpp"

namespace planted_steps {
namespace {

using P = assay_problem;
using T = assay_tensors;

// ---- graphs
struct Call {
  const assay_kernel* kernel;
  P problem;
  T tensors;
  assay_plan* plan;
  std::vector<int32_t> q_len, kv_len;
};
struct Graph {
  std::list<Call> calls;
};
Graph* recording = nullptr;
bool replaying = false;

// What a batch leaves over of a table is anything, and a fault may follow it: to block 0, as a device with a
// checker would go on.
void stay_inside(const P& p, T& t) {
  if (t.k.data == nullptr || t.k.rank < 3) return;
  const int64_t blocks = t.k.shape[0], most = p.table == ASSAY_TABLE_TOKEN ? blocks * p.page_size : blocks;
  for (assay_tensor* table : {&t.block_table, &t.indices}) {
    if (table->data == nullptr) continue;
    int32_t* entries = copied(*table);
    for (int64_t i = 0; i < elements(*table); ++i)
      if (entries[i] < 0 || entries[i] >= most) entries[i] = 0;
  }
}

int begin_capture(void** stream, char*, size_t) {
  recording = new Graph;
  *stream = nullptr;
  return ASSAY_OK;
}
int end_capture(assay_graph** graph, char*, size_t) {
  const std::unique_ptr<Graph> made(std::exchange(recording, nullptr));
  if (graph != nullptr) *graph = reinterpret_cast<assay_graph*>(new Graph(std::move(*made)));
  return ASSAY_OK;
}
int replay(assay_graph* graph, char* error, size_t size) {
  replaying = true;
  int status = ASSAY_OK;
  for (const Call& c : reinterpret_cast<Graph*>(graph)->calls) {
    T tensors = c.tensors;
    stay_inside(c.problem, tensors);
    status = c.kernel->run(c.kernel, &c.problem, &tensors, c.plan, nullptr, error, size);
    if (status != ASSAY_OK) break;
  }
  replaying = false;
  return status;
}
int time_replay(assay_graph*, int64_t, double*, char* error, size_t size) {
  return assay_host::fail(ASSAY_UNSUPPORTED, error, size, "nothing is timed here");
}
void free_graph(assay_graph* graph) { delete reinterpret_cast<Graph*>(graph); }

int record(const assay_kernel* self, const P* p, const T* t, assay_plan* plan, void* stream, char* error,
           size_t size) {
  const assay_kernel& right = *handed_on(self).right;
  if (recording == nullptr) return right.run(&right, p, t, plan, stream, error, size);
  Call& c = recording->calls.emplace_back(
      Call{&right, *p, *t, plan, {p->q_len, p->q_len + p->requests}, {p->kv_len, p->kv_len + p->requests}});
  c.problem.q_len = c.q_len.data(), c.problem.kv_len = c.kv_len.data();
  return ASSAY_OK;
}
const assay_kernel* recorder(const assay_kernel& right) {
  static std::list<HandedOn> all;
  HandedOn& to = all.emplace_back();
  hand_on(to, right, record);
  to.kernel.promises |= ASSAY_PROMISE_GRAPH;  // lists are read where they lie
  return &to.kernel;
}

// ---- faults
enum class When {
  kCapture,  // a stage of the graph was given, or read, something of that moment
  kReplay,   // a stage does it in every replay
  kGiven,    // stages are right; one is given something of the moment of the capture
  kOnce,     // stages are right; one is part of the first capture alone
};
struct Planted {
  const char *name, *base, *stage;
  When when;
  const char *line, *causes;
  Spoil before = nullptr, after = nullptr;
};

// As it stands at the moment, if it is captured.
void freeze(assay_tensor& t) {
  static std::list<std::vector<char>> copies;
  if (recording == nullptr || t.data == nullptr) return;
  const int64_t width = t.format == ASSAY_INT64                             ? 8
                        : t.format == ASSAY_INT32 || t.format == ASSAY_FP32 ? 4
                        : t.format == ASSAY_UINT8                           ? 1
                                                                            : 2;
  const auto* data = static_cast<const char*>(t.data);
  t.data = copies.emplace_back(data, data + elements(t) * width).data();
}
void lengths(P&, T& t) { freeze(t.kv_len); }
void table(P&, T& t) { freeze(t.block_table); }
void starts(P&, T& t) { freeze(t.cu_q); }
void slots(P&, T& t) { freeze(t.slot_mapping); }
void tree(P&, T& t) { freeze(t.tree_indptr), freeze(t.tree_mask); }

struct Rows {
  std::vector<char> o;
  T tensors{};
} rows_before;

#define DECODES "step h=4/2 d=64 page=8 batch=3q1s40_2q1s23 seed=1"
#define CHAINS "step h=4/2 d=64 page=4 threshold=4 batch=2q4s30_2q4s9 seed=2"
#define TREES "step h=4/2 d=64 page=4 threshold=6 mask=tree sinks=on batch=2q6s30_2q6s13 seed=3"
#define PATHS \
  "step h=4/2 d=64 page=4 threshold=6 mask=tree positions=depth window=5 batch=2q6s30_2q6s13 seed=4"
#define BRANCHES \
  "step h=4/2 d=64 page=4 threshold=3 mask=tree positions=depth drafted=2 batch=2q3s30_2q3s15 seed=6"
#define LOCAL "step h=4/2 d=64 page=4 chunk=8 table=token batch=2q5s30_2q5s17 seed=5"
#define CROSS "step h=4/2 d=64 page=4 mask=cross write=off table=token batch=2q2s40_2q2s13 seed=7"
#define BEHIND "step h=4/2 d=64 page=4 encoder=21 table=token batch=3q1s40_2q1s23 seed=8"

constexpr const char *kSglang = "step_sglang_fa_cpu", *kAiter = "step_aiter_fa_cpu",
                     *kUnified = "step_unified_cpu";

const Planted kFaults[] = {
    {"captured_unified_right", kUnified, "attend", When::kCapture, DECODES, nullptr},
    {"captured_sglang_right", kSglang, "draft", When::kCapture, TREES, nullptr},
    {"captured_aiter_right", kAiter, "decode", When::kCapture, DECODES, nullptr},
    {"stale_lengths", kUnified, "attend", When::kCapture, DECODES, "captured_lengths", lengths},
    {"stale_table", kUnified, "attend", When::kCapture, DECODES, "captured_table", table},
    {"stale_starts", kUnified, "attend", When::kCapture, CHAINS, "captured_starts", starts},
    {"stale_slots", kUnified, "write", When::kCapture, CHAINS, "captured_slots", slots},
    {"stale_decodes", kAiter, "decode", When::kCapture, DECODES, "captured_lengths", lengths},
    {"stale_context", kSglang, "prefix", When::kCapture, TREES, "captured_lengths", lengths},
    {"stale_tree", kSglang, "drafts", When::kCapture, TREES, "captured_tree", tree},
    {"stale_path_table", kSglang, "paths", When::kCapture, PATHS, "captured_table", table},
    {"stale_context_of_drafts", kSglang, "prefix", When::kCapture, BRANCHES, "captured_lengths", lengths},
    {"stale_slots_of_drafts", kSglang, "drafts", When::kCapture, BRANCHES, "captured_table", table},
    {"stale_chunks", kSglang, "local", When::kCapture, LOCAL, "captured_lengths", lengths},
    {"stale_encoder", kSglang, "cross", When::kCapture, CROSS, "captured_lengths", lengths},
    {"stale_table_of_encoder", kSglang, "cross", When::kCapture, CROSS, "captured_table", table},
    {"stale_start_behind_encoder", kSglang, "decoder", When::kCapture, BEHIND, "captured_lengths",
     [](P&, T& t) { freeze(t.encoder_len); }},
    {"stale_context_behind_encoder", kSglang, "decoder", When::kCapture, BEHIND, "captured_lengths",
     [](P&, T& t) { freeze(t.context_len); }},
    {"keys_of_the_host", kUnified, "attend", When::kReplay, CHAINS, "captured_extent captured_lengths",
     [](P& p, T& t) {
       if (replaying) change(t.kv_len, [&](int32_t n, int32_t r) { return std::min(n, p.kv_len[r]); });
     }},
    {"given_stale_lengths", kUnified, "attend", When::kGiven, DECODES, "captured_lengths", lengths},
    {"given_stale_slots", kUnified, "write", When::kGiven, CHAINS, "captured_slots", slots},
    {"given_stale_tree", kSglang, "drafts", When::kGiven, TREES, "captured_tree", tree},
    {"given_stale_starts", kUnified, "attend", When::kGiven, CHAINS, "captured_starts", starts},
    {"given_stale_q", kUnified, "attend", When::kGiven, DECODES, "captured_values",
     [](P&, T& t) { freeze(t.q); }},
    {"given_stale_keys", kUnified, "write", When::kGiven, DECODES, "captured_values",
     [](P&, T& t) { freeze(t.dense_k); }},
    {"written_once", kUnified, "write", When::kOnce, DECODES, "left_out"},
    // Drawn before there was anything to explain them with.
    {"drawn_stale_slots", kUnified, "write", When::kCapture, DECODES, "captured_slots", slots},
    {"drawn_given_stale_table", kSglang, "prefix", When::kGiven, TREES, "captured_table", table},
    {"drawn_lengths_of_the_host", kUnified, "attend", When::kReplay, DECODES, "captured_lengths",
     [](P& p, T& t) {
       if (replaying) change(t.kv_len, [&](int32_t, int32_t r) { return p.kv_len[r]; });
     }},
    {"drawn_stale_q", kUnified, "attend", When::kCapture, DECODES, "captured_values",
     [](P&, T& t) { freeze(t.q); }},
    {"drawn_stale_parts", kSglang, "merge", When::kCapture, TREES, "captured_values",
     [](P&, T& t) { freeze(t.partial_lse); }},
    {"drawn_lengths_of_before", kAiter, "decode", When::kReplay, DECODES, "replay_before",
     [](P&, T& t) {
       static std::vector<int32_t> last;
       const auto* own = static_cast<const int32_t*>(t.kv_len.data);
       std::vector<int32_t> now(own, own + t.kv_len.shape[0]);
       if (last.size() == now.size()) t.kv_len = list_of(kept(last), t.kv_len.shape[0]);
       last = std::move(now);
     }},
    {"drawn_listed_once", kSglang, "drafts", When::kOnce, TREES, "left_out"},
    {"drawn_rows_of_the_first", kUnified, "attend", When::kReplay,
     "step h=4/2 d=64 page=4 threshold=4 batch=1q2s30_1q4s29 seed=2", "captured_extent",
     [](P& p, T& t) {
       const auto* o = static_cast<const char*>(t.o.data);
       rows_before = {{o, o + elements(t.o) * (t.o.format == ASSAY_FP32 ? 4 : 2)}, t};
       (void)p;
     },
     [](P& p, T& t) {
       if (!replaying) return;
       const int64_t row = t.o.stride[0] * (t.o.format == ASSAY_FP32 ? 4 : 2);
       const auto* first = static_cast<const int32_t*>(t.cu_q.data);
       for (int32_t r = 0; r < p.requests; ++r)
         for (int32_t i = first[r] + p.q_len[0]; i < first[r + 1]; ++i)
           std::memcpy(static_cast<char*>(t.o.data) + i * row, rows_before.o.data() + i * row,
                       static_cast<size_t>(
                           std::min<int64_t>(row, static_cast<int64_t>(rows_before.o.size()) - i * row)));
     }},
};

struct Spoilt : HandedOn {
  const Planted* fault;
};
int run(const assay_kernel* self, const P* p, const T* t, assay_plan* plan, void* stream, char* error,
        size_t size) {
  const auto& s = static_cast<const Spoilt&>(handed_on(self));
  P problem = *p;
  T tensors = *t;
  if (s.fault->when == When::kOnce && recording != nullptr) {
    static std::map<const Planted*, bool> recorded;
    if (std::exchange(recorded[s.fault], true)) return ASSAY_OK;
  }
  if (s.fault->before != nullptr) s.fault->before(problem, tensors);
  const int status = s.right->run(s.right, &problem, &tensors, plan, stream, error, size);
  if (s.fault->after != nullptr) s.fault->after(problem, tensors);
  return status;
}
const assay_kernel* spoilt(const assay_kernel& right, const Planted& fault) {
  static std::list<Spoilt> all;
  Spoilt& s = all.emplace_back();
  s.fault = &fault;
  return hand_on(s, right, run);
}

std::map<std::string, const Planted*>& by_name() {
  static std::map<std::string, const Planted*> all;
  return all;
}

// The pipeline with these stages; where it is wrong itself, it spoils what reaches the place.
int compose(const Planted& fault, const char* name, std::vector<assay_stage> stages,
            const assay_kernel** made, char* error, size_t size) {
  for (assay_stage& stage : stages)
    if (std::strcmp(stage.name, fault.stage) == 0) stage.kernel = spoilt(*stage.kernel, fault);
  const assay_kernel& base = base_of(fault.base);
  return base.with_stages(&base, name, stages.data(), static_cast<int32_t>(stages.size()), made, error, size);
}
int with_stages(const assay_kernel* self, const char* name, const assay_stage* stages, int32_t count,
                const assay_kernel** made, char* error, size_t size) {
  return compose(*by_name().at(self->name), name, replaced(self, stages, count), made, error, size);
}

assay_kernel made_of(const Planted& fault) {
  const assay_kernel& base = base_of(fault.base);
  static std::list<std::vector<assay_stage>> kept_stages;
  std::vector<assay_stage>& stages = kept_stages.emplace_back(base.stages, base.stages + base.stage_count);
  for (assay_stage& stage : stages) {
    const bool here = std::strcmp(stage.name, fault.stage) == 0;
    if (here && fault.when == When::kReplay) stage.kernel = spoilt(*stage.kernel, fault);
    stage.kernel = recorder(*stage.kernel);
    if (here && fault.when == When::kCapture) stage.kernel = spoilt(*stage.kernel, fault);
  }
  const bool itself = fault.when == When::kGiven || fault.when == When::kOnce;
  const assay_kernel* made = nullptr;
  char error[400] = "";
  const int status = itself
                         ? compose(fault, fault.name, stages, &made, error, sizeof error)
                         : base.with_stages(&base, fault.name, stages.data(),
                                            static_cast<int32_t>(stages.size()), &made, error, sizeof error);
  assay_kernel entry{};
  if (status != ASSAY_OK) return entry;
  entry = *made;
  if (itself) entry.stages = stages.data(), entry.with_stages = with_stages;
  entry.name = fault.name, entry.description = "wrong in one way when it is replayed";
  return entry;
}

struct Library : PlantedLibrary {
  Library() {
    for (const Planted& fault : kFaults) by_name()[fault.name] = &fault, kernels.push_back(made_of(fault));
    for (size_t i = 0; i < kernels.size(); ++i) {
      const Planted& fault = kFaults[i];
      if (fault.causes == nullptr) continue;
      const bool wiring = fault.when == When::kGiven || fault.when == When::kOnce;
      add(i, fault.name, "wrong when it is replayed", fault.causes, fault.line,
          std::string("replay ") + (wiring ? "wiring " : "") + fault.stage);
    }
    publish("planted_captures");
    table.begin_capture = begin_capture, table.end_capture = end_capture, table.replay = replay;
    table.time_replay = time_replay, table.free_graph = free_graph;
  }
};

}  // namespace

const PlantedLibrary& planted_library() {
  static const Library& all = *new Library;
  return all;
}

}  // namespace planted_steps
