// SPDX-License-Identifier: Apache-2.0
// See apart.hpp. Every place gets a kernel that hands its calls on and notes them.
#include "harness/explain/stages/apart.hpp"

#include <fmt/format.h>

#include <map>

#include "harness/base/error.hpp"
#include "harness/explain/stages/watched.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

int run_watched(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                void* stream, char* error, size_t size) {
  const Post& post = static_cast<const Post&>(handed_on(self));
  return post.of->on_run(post, p, t, plan, stream, error, size);
}

}  // namespace

Watched& watched(const assay_kernel& kernel) {
  static std::map<const assay_kernel*, Watched> all;
  Watched& w = all[&kernel];
  if (w.made != nullptr) return w;
  w.made = &in_every_place(kernel, w.posts, run_watched, [&](Post& post) { post.of = &w; });
  return w;
}

Watched& watched_whole(const assay_kernel& kernel) {
  static std::map<const assay_kernel*, Watched> all;
  Watched& w = all[&kernel];
  if (w.made != nullptr) return w;
  Post& post = w.posts.emplace_back();
  hand_on(post, kernel, run_watched);
  post.of = &w;
  w.made = &post.kernel;
  return w;
}

Bytes copy_of(const Backend& backend, const assay_tensor& t) {
  Bytes bytes;
  const int64_t size = view_bytes(t);
  if (size == 0) return bytes;
  // A view may run backwards along an axis.
  int64_t first = 0;
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.stride[axis] < 0) first += (t.shape[axis] - 1) * t.stride[axis];
  bytes.address = static_cast<const std::byte*>(t.data) + first * format_bytes(t.format);
  bytes.copy.resize(static_cast<size_t>(size));
  char why[400] = "";
  if (backend.table()->copy_to_host(bytes.copy.data(), bytes.address, size, why, sizeof why) != ASSAY_OK)
    throw InfrastructureError(fmt::format("what a stage was given cannot be read: {}", why));
  return bytes;
}

void copy_operands(const Backend& backend, const assay_tensors& t, Bytes (&to)[kOperandCount]) {
  for (int i = 0; i < kOperandCount; ++i)
    if (static_cast<Operand>(i) != Operand::kWorkspace)
      to[i] = copy_of(backend, tensor_of(t, static_cast<Operand>(i)));
}

int64_t view_bytes(const assay_tensor& t) {
  if (t.data == nullptr || t.rank == 0) return 0;
  int64_t span = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] <= 0) return 0;
    span += (t.shape[axis] - 1) * std::abs(t.stride[axis]);
  }
  return (span + 1) * format_bytes(t.format);
}

struct StepApart::Impl {
  const Backend& backend;
  const assay_problem* view;
  const assay_tensors* tensors;
  Watched& apart;
  assay_plan* plan = nullptr;
  std::vector<StageRun> runs;

  void note(const Post& post, const assay_problem& p, const assay_tensors& t, assay_plan* of_stage) {
    StageRun& run = runs.emplace_back();
    run.place = post.place, run.kernel = post.inner, run.problem = p, run.tensors = t, run.plan = of_stage;
    run.q_len.assign(p.q_len, p.q_len + p.requests), run.kv_len.assign(p.kv_len, p.kv_len + p.requests);
    run.problem.q_len = run.q_len.data(), run.problem.kv_len = run.kv_len.data();
    copy_operands(backend, run.tensors, run.before);
  }
  void call() {
    if (const CallResult r = call_run(backend, *apart.made, view, tensors, plan); !r.ok())
      throw InfrastructureError(fmt::format("{} by its stages: {}", apart.made->name, r.error));
  }
  // A stage as another problem, or over other tensors: what it planned is not for these.
  int run_changed(const StageRun& run, const assay_problem& p, const assay_tensors& t, void* stream,
                  char* error, size_t size) const {
    const assay_kernel& k = *run.kernel;
    assay_plan* own = nullptr;
    int status = ASSAY_OK;
    if (k.plan != nullptr) status = k.plan(&k, &p, &t, &own, error, size);
    if (status == ASSAY_OK) status = k.run(&k, &p, &t, own, stream, error, size);
    if (own != nullptr && k.free_plan != nullptr) k.free_plan(&k, own);
    return status;
  }
};

bool StepApart::can(const assay_kernel& k) { return has_stages(k); }

StepApart::StepApart(const Backend& backend, const assay_kernel& kernel, const assay_problem* view,
                     const assay_tensors* tensors)
    : impl_(new Impl{backend, view, tensors, watched(kernel), nullptr, {}}) {
  Impl& i = *impl_;
  if (const CallResult r = call_plan(backend, *i.apart.made, view, tensors, &i.plan); !r.ok())
    throw InfrastructureError(fmt::format("{} by its stages: {}", kernel.name, r.error));
}

StepApart::~StepApart() { call_free_plan(*impl_->apart.made, impl_->plan); }

const std::vector<StageRun>& StepApart::runs() const { return impl_->runs; }
const Backend& StepApart::backend() const { return impl_->backend; }

void StepApart::record(const std::function<void(const StageRun&)>& before) {
  Impl& i = *impl_;
  i.runs.clear();
  i.apart.on_run = [&](const Post& post, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                       void* stream, char* error, size_t size) {
    char why[400] = "";
    i.backend.table()->synchronize(why, sizeof why);
    i.note(post, *p, *t, plan);
    if (before) before(i.runs.back());
    const int status = post.inner->run(post.inner, p, t, plan, stream, error, size);
    i.backend.table()->synchronize(why, sizeof why);
    copy_operands(i.backend, i.runs.back().tensors, i.runs.back().after);
    return status;
  };
  i.call();
  for (StageRun& run : i.runs)  // the vector has grown meanwhile
    run.problem.q_len = run.q_len.data(), run.problem.kv_len = run.kv_len.data();
}

void StepApart::run(const StageEdit& edit) {
  Impl& i = *impl_;
  size_t at = 0;
  i.apart.on_run = [&](const Post& post, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                       void* stream, char* error, size_t size) -> int {
    assay_problem problem = *p;
    assay_tensors tensors = *t;
    const size_t here = at++;
    if (!edit(here, problem, tensors)) return ASSAY_OK;
    if (std::memcmp(&problem, p, sizeof problem) == 0 && std::memcmp(&tensors, t, sizeof tensors) == 0)
      return post.inner->run(post.inner, p, t, plan, stream, error, size);
    if (here >= i.runs.size()) return ASSAY_FAILED;
    return i.run_changed(i.runs[here], problem, tensors, stream, error, size);
  };
  i.call();
}

void StepApart::run_in_order(const std::vector<size_t>& order) {
  Impl& i = *impl_;
  bool done = false;
  i.apart.on_run = [&](const Post&, const assay_problem*, const assay_tensors*, assay_plan*, void* stream,
                       char* error, size_t size) -> int {
    if (done) return ASSAY_OK;
    done = true;
    for (const size_t at : order) {
      const StageRun& run = i.runs[at];
      const int status =
          run.kernel->run(run.kernel, &run.problem, &run.tensors, run.plan, stream, error, size);
      if (status != ASSAY_OK) return status;
    }
    return ASSAY_OK;
  };
  i.call();
}

}  // namespace assay
