// SPDX-License-Identifier: Apache-2.0
// See replay_apart.hpp. The table of the library, loaded for this alone, gets graphs that are lists of the
// library's own: one of each stage, and between two of them what nobody sees of a pipeline.
#include "harness/explain/stages/replay_apart.hpp"

#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <map>

#include "harness/base/error.hpp"
#include "harness/explain/stages/watched.hpp"

namespace assay {
namespace {

struct Piece {
  assay_graph* graph = nullptr;
  int64_t run = -1;  // of a stage; -1: what stands between stages
};

// What a captured call is.
struct Apart {
  std::vector<Piece> pieces;
  std::deque<StageRun> runs;  // addresses stay
  StageRun step;
  struct Planned {
    const assay_kernel* kernel;
    assay_plan* plan;
  };
  std::vector<Planned> plans;  // of stages that were changed
};

void point_at_own(StageRun& run) {
  run.problem.q_len = run.q_len.data(), run.problem.kv_len = run.kv_len.data();
  if (run.problem.encoder_len != nullptr) run.problem.encoder_len = run.encoder_len.data();
  if (run.problem.first_key != nullptr) run.problem.first_key = run.first_key.data();
}

}  // namespace

struct ReplayApart::Impl {
  Backend backend;
  assay_backend own{};  // the library's functions
  Watched *whole = nullptr, *apart = nullptr;
  StageEdit edit;
  std::unique_ptr<Apart> capturing;
  void* stream = nullptr;
  size_t at = 0;
  std::vector<StageRun> last;
  StageRun step;
  int64_t replays = 0;
  bool twice = false;                                         // see twice()
  std::map<std::pair<std::string, size_t>, StageRun> before;  // by place and how often it ran

  // Tables have no context: whose replays are taken apart in this process.
  static Impl*& current() {
    static Impl* one = nullptr;
    return one;
  }

  int close(int64_t run, char* error, size_t size) {
    assay_graph* graph = nullptr;
    const int status = own.end_capture(&graph, error, size);
    if (status == ASSAY_OK) capturing->pieces.push_back({graph, run});
    return status;
  }

  // What a call that is captured is given.
  void note(StageRun& run, const Post& post, const assay_problem& p, const assay_tensors& t) const {
    run.place = post.place, run.kernel = post.inner, run.problem = p, run.tensors = t, run.replayed = true;
    const auto kept = [&](const int32_t* list) {
      return list == nullptr ? std::vector<int32_t>() : std::vector<int32_t>(list, list + p.requests);
    };
    run.q_len = kept(p.q_len), run.kv_len = kept(p.kv_len);
    run.encoder_len = kept(p.encoder_len), run.first_key = kept(p.first_key);
    point_at_own(run);
    copy_operands(backend, t, run.captured);
  }

  int captured_whole(const Post& post, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                     char* error, size_t size) {
    if (const int bad = close(-1, error, size); bad != ASSAY_OK) return bad;
    note(capturing->step, post, *p, *t);
    if (const int bad = own.begin_capture(&stream, error, size); bad != ASSAY_OK) return bad;
    return post.inner->run(post.inner, p, t, plan, stream, error, size);
  }

  int captured(const Post& post, const assay_problem& p, const assay_tensors& t, assay_plan* plan,
               char* error, size_t size) {
    if (const int bad = close(-1, error, size); bad != ASSAY_OK) return bad;
    assay_problem problem = p;
    assay_tensors tensors = t;
    int status = ASSAY_OK;
    if (!edit || edit(at++, problem, tensors)) {
      const bool changed =
          std::memcmp(&problem, &p, sizeof p) != 0 || std::memcmp(&tensors, &t, sizeof t) != 0;
      StageRun& run = capturing->runs.emplace_back();
      note(run, post, p, t);
      const assay_kernel& k = *post.inner;
      if (changed && k.plan != nullptr) {  // what it planned is not for these
        plan = nullptr;
        status = k.plan(&k, &problem, &tensors, &plan, error, size);
        if (plan != nullptr) capturing->plans.push_back({&k, plan});
      }
      void* stage_stream = nullptr;
      if (status == ASSAY_OK) status = own.begin_capture(&stage_stream, error, size);
      if (status != ASSAY_OK) return status;
      status = k.run(&k, &problem, &tensors, plan, stage_stream, error, size);
      const auto run_index = static_cast<int64_t>(capturing->runs.size()) - 1;
      if (status != ASSAY_OK)
        own.end_capture(nullptr, error, 0);
      else
        status = close(run_index, error, size);
    }
    const int open = own.begin_capture(&stream, error, size);
    return status != ASSAY_OK ? status : open;
  }

  int replay(Apart& call, char* error, size_t size) {
    ++replays;
    last.clear();
    std::map<std::string, size_t> count;
    int status = ASSAY_OK;
    const auto with_previous = [&](StageRun& run, const std::string& place) {
      StageRun& known = before[{place, count[place]++}];
      for (int i = 0; i < kOperandCount; ++i)
        if (known.before[i].copy.size() == run.before[i].copy.size()) run.previous[i] = known.before[i];
      known = run;
    };
    step = call.step;
    for (size_t n = 0; twice && n < call.pieces.size(); ++n)
      if (status = own.replay(call.pieces[n].graph, error, size); status != ASSAY_OK) return status;
    copy_operands(backend, step.tensors, step.before);
    for (const Piece& piece : call.pieces) {
      if (piece.run < 0) {
        if (status = own.replay(piece.graph, error, size); status != ASSAY_OK) break;
        continue;
      }
      StageRun& run = last.emplace_back(call.runs[static_cast<size_t>(piece.run)]);
      copy_operands(backend, run.tensors, run.before);
      if (status = own.replay(piece.graph, error, size); status != ASSAY_OK) break;
      copy_operands(backend, run.tensors, run.after);
      with_previous(run, run.place);
    }
    copy_operands(backend, step.tensors, step.after);
    with_previous(step, "");
    point_at_own(step);
    for (StageRun& run : last) point_at_own(run);
    return status;
  }

  void release(Apart* call) const {
    for (const Piece& piece : call->pieces)
      if (piece.graph != nullptr) own.free_graph(piece.graph);
    for (const Apart::Planned& planned : call->plans) call_free_plan(*planned.kernel, planned.plan);
    delete call;
  }
};

ReplayApart::ReplayApart(const std::string& library, const std::string& kernel)
    : impl_(std::make_unique<Impl>(Impl{Backend::load(library)})) {
  Impl& i = *impl_;
  const assay_kernel* found = i.backend.find(kernel);
  ASSAY_CHECK(found != nullptr, "{} has no kernel {}", i.backend.name(), kernel);
  ASSAY_CHECK(Impl::current() == nullptr, "two steps are taken apart at once");
  i.own = *i.backend.table();
  if (has_stages(*found)) i.apart = &watched(*found);
  i.whole = &watched_whole(i.apart != nullptr ? *i.apart->made : *found);
  // Numbers in memory that nobody should read: what did read it can be followed.
  i.whole->posts.front().kernel.contracts |= ASSAY_CONTRACT_FINITE_UNUSED;
  i.whole->on_run = [&i](const Post& post, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                         void* s, char* error, size_t size) -> int {
    if (i.capturing == nullptr) return post.inner->run(post.inner, p, t, plan, s, error, size);
    return i.captured_whole(post, p, t, plan, error, size);
  };
  if (i.apart != nullptr)
    i.apart->on_run = [&i](const Post& post, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                           void* stream, char* error, size_t size) -> int {
      if (i.capturing == nullptr) return post.inner->run(post.inner, p, t, plan, stream, error, size);
      return i.captured(post, *p, *t, plan, error, size);
    };
  Impl::current() = &i;
  // Backend::load made this table for this object alone.
  assay_backend& graphs = const_cast<assay_backend&>(*i.backend.table());
  graphs.begin_capture = [](void** stream, char* error, size_t size) {
    Impl& own = *Impl::current();
    own.capturing = std::make_unique<Apart>();
    own.at = 0;
    const int status = own.own.begin_capture(&own.stream, error, size);
    *stream = own.stream;
    return status;
  };
  graphs.end_capture = [](assay_graph** graph, char* error, size_t size) {
    Impl& own = *Impl::current();
    if (graph == nullptr) {
      own.own.end_capture(nullptr, error, size);
      own.release(own.capturing.release());
      return int{ASSAY_OK};
    }
    const int status = own.close(-1, error, size);
    if (status == ASSAY_OK)
      *graph = reinterpret_cast<assay_graph*>(own.capturing.release());
    else
      own.release(own.capturing.release());
    return status;
  };
  graphs.replay = [](assay_graph* graph, char* error, size_t size) {
    return Impl::current()->replay(*reinterpret_cast<Apart*>(graph), error, size);
  };
  graphs.free_graph = [](assay_graph* graph) { Impl::current()->release(reinterpret_cast<Apart*>(graph)); };
}

ReplayApart::~ReplayApart() {
  if (impl_->apart != nullptr) impl_->apart->on_run = nullptr;
  impl_->whole->on_run = nullptr;
  Impl::current() = nullptr;
}

const Backend& ReplayApart::backend() const { return impl_->backend; }
const assay_kernel& ReplayApart::kernel() const { return *impl_->whole->made; }
void ReplayApart::twice(bool on) { impl_->twice = on; }
void ReplayApart::edit(StageEdit edit) { impl_->edit = std::move(edit); }
const std::vector<StageRun>& ReplayApart::runs() const { return impl_->last; }
const assay_tensors& ReplayApart::capturing() const { return impl_->capturing->step.tensors; }
const StageRun& ReplayApart::step() const { return impl_->step; }
bool ReplayApart::follows_another() const { return impl_->replays > 1; }

}  // namespace assay
