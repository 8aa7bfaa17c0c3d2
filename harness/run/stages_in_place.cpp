// SPDX-License-Identifier: Apache-2.0
// See stages_in_place.hpp.
#include "harness/run/stages_in_place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>

#include "harness/base/error.hpp"
#include "harness/device/handed_on.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

struct Apart;

// Stands in a place and hands calls on to the kernel it was made of.
struct Valve : HandedOn {
  Apart* of = nullptr;
};

// One call as it came.
struct Seen {
  const Valve* valve;
  assay_problem problem;
  assay_tensors tensors;
  std::vector<int32_t> q_len, kv_len;
};

// A composed kernel of valves. Lives as long as the process, as what with_stages() makes does.
struct Apart {
  std::list<Valve> valves;
  const assay_kernel* made = nullptr;
  std::vector<Seen>* record = nullptr;
  // Of the run in progress, from 0; which calls go through: those below `until`, of `only` or of all.
  int64_t at = 0, until = 0;
  const Valve* only = nullptr;

  bool open(const Valve& v) const { return at < until && (only == nullptr || only == &v); }
};

const Valve& valve_of(const assay_kernel* self) { return static_cast<const Valve&>(handed_on(self)); }

int run_if_open(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                void* stream, char* error, size_t size) {
  const Valve& v = valve_of(self);
  const bool open = v.of->open(v);
  if (std::vector<Seen>* record = v.of->record; record != nullptr)
    record->push_back({&v, *p, *t, {p->q_len, p->q_len + p->requests}, {p->kv_len, p->kv_len + p->requests}});
  ++v.of->at;
  return open ? v.inner->run(v.inner, p, t, plan, stream, error, size) : static_cast<int>(ASSAY_OK);
}
int refresh_if_open(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                    assay_plan* plan, void* stream, char* error, size_t size) {
  const Valve& v = valve_of(self);
  if (!v.of->open(v)) return ASSAY_OK;
  return v.inner->refresh(v.inner, p, t, plan, stream, error, size);
}

// The kernel with a valve in every place; made once.
Apart& take_apart(const assay_kernel& kernel) {
  static std::map<const assay_kernel*, Apart> all;
  Apart& apart = all[&kernel];
  if (apart.made != nullptr) return apart;
  apart.made = &in_every_place(kernel, apart.valves, run_if_open, [&](Valve& v) {
    v.of = &apart;
    if (v.kernel.refresh != nullptr) v.kernel.refresh = refresh_if_open;
  });
  return apart;
}

// `count` numbers of a device's list.
std::vector<int32_t> numbers_of(const Backend& backend, const assay_tensor& t, int64_t count) {
  std::vector<int32_t> all(static_cast<size_t>((count - 1) * t.stride[0] + 1)), picked;
  char why[400] = "";
  if (backend.table()->copy_to_host(all.data(), t.data, static_cast<int64_t>(all.size() * sizeof(int32_t)),
                                    why, sizeof why) != ASSAY_OK)
    throw InfrastructureError(fmt::format("lengths of a stage cannot be read: {}", why));
  for (int64_t i = 0; i < count; ++i) picked.push_back(all[static_cast<size_t>(i * t.stride[0])]);
  return picked;
}

bool is_rank_one(const assay_tensor& t) { return t.data != nullptr && t.rank == 1; }

// The stage's problem as far as its work depends on it.
Problem problem_of(const Backend& backend, const Problem& whole, const Seen& seen) {
  const assay_problem& v = seen.problem;
  Problem p = whole;
  p.op = v.op, p.mask = v.mask;
  p.heads_q = v.heads_q, p.heads_kv = v.heads_kv, p.head_dim_qk = v.head_dim_qk, p.head_dim_v = v.head_dim_v;
  p.window_left = v.window_left, p.window_right = v.window_right, p.chunk = v.chunk;
  p.softcap = v.softcap, p.softmax_scale = v.softmax_scale, p.alibi = v.alibi, p.sinks = v.has_sinks != 0;
  p.q_format = v.q_format, p.k_format = v.k_format, p.v_format = v.v_format, p.o_format = v.o_format;
  p.q_scale = v.q_scale_kind, p.k_scale = v.k_scale_kind, p.v_scale = v.v_scale_kind;
  p.layout = v.layout, p.page_size = v.page_size, p.table = v.table;
  p.source_format = v.source_format, p.states = v.states, p.part_tokens = v.part_tokens;
  p.drafted = v.drafted;
  std::vector<int32_t> q = seen.q_len, kv = seen.kv_len;
  if (op_of(p).attends_rows && v.requests > 0 && is_rank_one(seen.tensors.cu_q) &&
      is_rank_one(seen.tensors.kv_len)) {
    const std::vector<int32_t> starts = numbers_of(backend, seen.tensors.cu_q, v.requests + 1);
    for (int32_t r = 0; r < v.requests; ++r) q[static_cast<size_t>(r)] = starts[r + 1] - starts[r];
    kv = numbers_of(backend, seen.tensors.kv_len, v.requests);
  }
  // Shared prefixes, trees and positions are those of the whole batch; a part of it has none that counts.
  if (q == whole.q_lens() && kv == whole.kv_lens()) return p;
  p.requests.clear(), p.pages.clear(), p.first_key.clear(), p.positions.clear(), p.encoder_len.clear();
  for (size_t r = 0; r < q.size(); ++r) {
    p.requests.push_back({q[r], kv[r], -1, 0});
    const int32_t page = std::max(1, v.page_size);
    p.pages.emplace_back(static_cast<size_t>((kv[r] + page - 1) / page), 0);
  }
  return p;
}

// Of lists: every element of every operand once, as long as the stage has them.
double operand_bytes(const assay_tensors& t) {
  const auto* first = &t.q;
  double bytes = 0;
  const auto count = (sizeof t - offsetof(assay_tensors, q)) / sizeof(assay_tensor);
  for (size_t i = 0; i < count; ++i) {
    const assay_tensor& operand = first[i];
    if (operand.data == nullptr || &operand == &t.workspace) continue;
    double elements = 1;
    for (int32_t axis = 0; axis < operand.rank; ++axis) elements *= static_cast<double>(operand.shape[axis]);
    bytes += elements * format_bytes(operand.format);
  }
  return bytes;
}

Work work_of_run(const Problem& p, const Seen& seen) {
  if (const Op& op = op_of(p); op.work != list_work) return work_of(p);
  Work w;
  w.tokens = p.total_q(), w.total_bytes = operand_bytes(seen.tensors);
  return w;
}

}  // namespace

struct StagesInPlace::Impl {
  const Backend& backend;
  const assay_problem* view;
  const assay_tensors* tensors;
  Apart& apart;
  assay_plan* plan = nullptr;
  std::vector<Run> runs;

  void run(int64_t until) {
    apart.at = 0, apart.until = until, apart.only = nullptr;
    if (const CallResult r = call_run(backend, *apart.made, view, tensors, plan); !r.ok())
      throw InfrastructureError(fmt::format("{} by its stages: {}", apart.made->name, r.error));
  }
};

StagesInPlace::StagesInPlace(const Backend& backend, const assay_kernel& kernel, const Problem& problem,
                             const assay_problem* view, const assay_tensors* tensors)
    : impl_(new Impl{backend, view, tensors, take_apart(kernel), nullptr, {}}) {
  Impl& i = *impl_;
  if (const CallResult r = call_plan(backend, *i.apart.made, view, tensors, &i.plan); !r.ok())
    throw InfrastructureError(fmt::format("{} by its stages: {}", kernel.name, r.error));
  std::vector<Seen> seen;
  i.apart.record = &seen;
  run_whole();
  i.apart.record = nullptr;
  for (const Seen& s : seen) {
    Problem p = problem_of(backend, problem, s);
    const Work w = work_of_run(p, s);
    i.runs.push_back({s.valve->place, s.valve->inner->name, std::move(p), w});
  }
}

StagesInPlace::~StagesInPlace() {
  impl_->apart.record = nullptr;
  call_free_plan(*impl_->apart.made, impl_->plan);
}

const std::vector<StagesInPlace::Run>& StagesInPlace::runs() const { return impl_->runs; }
const assay_kernel& StagesInPlace::kernel() const { return *impl_->apart.made; }
void StagesInPlace::run_whole() { impl_->run(INT64_MAX); }

void StagesInPlace::stop_before(const std::string& place) {
  Impl& i = *impl_;
  const auto first =
      std::find_if(i.runs.begin(), i.runs.end(), [&](const Run& r) { return r.place == place; });
  ASSAY_CHECK(first != i.runs.end(), "no stage {} ran", place);
  run_whole();
  i.run(first - i.runs.begin());
  i.apart.until = INT64_MAX;
  for (const Valve& v : i.apart.valves)
    if (v.place == place) i.apart.only = &v;
}

}  // namespace assay
