// SPDX-License-Identifier: Apache-2.0
// A step that is right when it is called, and wrong when it was captured and is replayed for other batches:
// the replay that is wrong runs once more by its stages (replay_apart.hpp), and each is judged on what lay
// there then.
#include <algorithm>
#include <cstring>
#include <set>

#include "harness/base/error.hpp"
#include "harness/check/graph/graph.hpp"
#include "harness/check/graph/walk.hpp"
#include "harness/check/verdict.hpp"
#include "harness/explain/stages/replay_apart.hpp"
#include "harness/explain/stages/step_search.hpp"
#include "harness/explain/stages/watched.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int kWalkSteps = 20;

// One way to capture and replay: the shapes of check --graphs, or a walk.
class Replaying {
 public:
  Replaying(const Problem& p, double budget) : problem_(p), budget_(budget) {}
  // The reason why a replay is wrong, or "": the first way that shows one stays the way.
  std::string find(const Backend& backend, const assay_kernel& kernel) {
    for (const bool walk : {false, true}) {
      walks_ = walk;
      if (std::string reason = again(backend, kernel); !reason.empty()) return reason;
    }
    return {};
  }
  std::string again(const Backend& backend, const assay_kernel& kernel) const {
    RelationResult result;
    return walks_ ? check_walk(backend, kernel, backend.device(0), problem_, kWalkSteps, default_arithmetic(),
                               budget_, result)
                  : check_graph(backend, kernel, backend.device(0), problem_, default_arithmetic(), budget_,
                                result);
  }

 private:
  const Problem& problem_;
  double budget_;
  bool walks_ = false;
};

// The call that a replay repeats, made anew on what the replay found: right there, it is the capture that is
// wrong.
bool right_when_called(const Backend& backend, const StageRun& run) {
  char why[400] = "";
  const assay_backend& table = *backend.table();
  StageRun fresh = run;
  std::vector<void*> memory;
  // Operands that overlap stay where they are to each other.
  std::vector<int> order;
  for (int i = 0; i < kOperandCount; ++i)
    if (!run.before[i].copy.empty()) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return run.before[a].address < run.before[b].address; });
  bool fine = true;
  const auto room = [&](int64_t bytes) {
    void* to = nullptr;
    fine = fine && table.allocate(bytes + 4096, &to, why, sizeof why) == ASSAY_OK;
    if (to != nullptr) memory.push_back(to);
    return static_cast<std::byte*>(to);
  };
  for (size_t first = 0; first < order.size() && fine;) {
    const std::byte *from = run.before[order[first]].address, *end = run.before[order[first]].end();
    size_t last = first + 1;
    for (; last < order.size() && run.before[order[last]].address < end; ++last)
      end = std::max(end, run.before[order[last]].end());
    std::byte* to = room(end - from);
    for (; first < last && fine; ++first) {
      const Bytes& bytes = run.before[order[first]];
      assay_tensor& t = tensor_of(fresh.tensors, static_cast<Operand>(order[first]));
      std::byte* here = to + (bytes.address - from);
      t.data = here + (static_cast<const std::byte*>(t.data) - bytes.address);
      fine = table.copy_to_device(here, bytes.copy.data(), static_cast<int64_t>(bytes.copy.size()), why,
                                  sizeof why) == ASSAY_OK;
    }
  }
  if (fine && fresh.tensors.workspace.data != nullptr)
    fresh.tensors.workspace.data = room(fresh.tensors.workspace.shape[0]);
  fresh.problem.q_len = fresh.q_len.data(), fresh.problem.kv_len = fresh.kv_len.data();
  if (fine) {
    assay_plan* plan = nullptr;
    CallResult r = call_plan(backend, *run.kernel, &fresh.problem, &fresh.tensors, &plan);
    if (r.ok()) r = call_run(backend, *run.kernel, &fresh.problem, &fresh.tensors, plan);
    call_free_plan(*run.kernel, plan);
    fine = r.ok();
  }
  if (fine) {
    copy_operands(backend, fresh.tensors, fresh.before);
    for (int i = 0; i < kOperandCount; ++i) {
      fresh.after[i] = fresh.before[i];
      fresh.before[i].copy = run.before[i].copy;
    }
    const StageCase c(backend, fresh);
    const StageVerdict v = c.judge(c.given());
    fine = v.judged && v.right;
  }
  for (void* of : memory) table.release(of, why, sizeof why);
  return fine;
}

// What a stage was given that did not change with the batch, where something of the step that was equal at
// capture did.
class StaleOperands {
 public:
  StaleOperands(ReplayApart& apart, const Replaying& replaying) : apart_(apart), replaying_(replaying) {
    runs_ = apart.runs(), step_ = apart.step();
  }
  // Best first; the places with their causes.
  std::vector<WiringCause> all() {
    std::set<std::string> done;
    for (size_t n = 0; n < runs_.size(); ++n)
      for (int i = 0; i < kOperandCount; ++i) {
        const StageRun& run = runs_[n];
        const OperandUse* use = find_operand(op_of(run.kernel->op), static_cast<Operand>(i));
        if (use == nullptr || use->role != Role::kIn || run.captured[i].copy.empty() ||
            run.captured[i].copy != run.before[i].copy || !done.insert(run.place + std::to_string(i)).second)
          continue;
        for (int j = 0; j < kOperandCount; ++j)
          if (try_one(n, i, j)) break;
      }
    return std::move(found_);
  }

 private:
  // Operand i of run n and all runs of its place, as the step's operand j.
  bool try_one(size_t n, int i, int j) {
    const StageRun& run = runs_[n];
    const assay_tensor& given = tensor_of(run.tensors, static_cast<Operand>(i));
    const assay_tensor& of_step = tensor_of(step_.tensors, static_cast<Operand>(j));
    if (of_step.data == nullptr || given.format != of_step.format || given.rank != of_step.rank) return false;
    if (step_.captured[j].copy == step_.before[j].copy ||
        run.captured[i].address == step_.captured[j].address)
      return false;
    const std::vector<std::byte>&a = run.captured[i].copy, &b = step_.captured[j].copy;
    const size_t common = std::min(a.size(), b.size());
    if (common == 0 || std::memcmp(a.data(), b.data(), common) != 0) return false;
    const std::string place = run.place;
    std::vector<size_t> at;
    for (size_t m = 0; m < runs_.size(); ++m)
      if (runs_[m].place == place && runs_[m].captured[i].copy == runs_[m].before[i].copy) at.push_back(m);
    const auto o = static_cast<Operand>(i);
    // Of every capture: the step's operand lies where this capture's does, and buffers are shared.
    apart_.edit([=, this](size_t here, assay_problem&, assay_tensors& t) {
      if (std::find(at.begin(), at.end(), here) != at.end() && tensor_of(t, o).data != nullptr) {
        assay_tensor& own = tensor_of(t, o);
        const assay_tensor& right = tensor_of(apart_.capturing(), static_cast<Operand>(j));
        own.data = right.data;
        std::copy_n(right.stride, ASSAY_MAX_RANK, own.stride);
      }
      return true;
    });
    const std::string reason = replaying_.again(apart_.backend(), apart_.kernel());
    apart_.edit({});
    if (!reason.empty()) return false;
    found_.push_back(
        {place,
         {kept_cause(o), fmt::format("given {} as of the capture; with that of the step", operand_name(o)), 1,
          0, ""}});
    return true;
  }

  ReplayApart& apart_;
  const Replaying& replaying_;
  std::vector<StageRun> runs_;
  StageRun step_;
  std::vector<WiringCause> found_;
};

// Places that should run and are not part of the captured call.
std::vector<WiringCause> not_captured(const assay_kernel& kernel, const ReplayApart& apart) {
  std::vector<WiringCause> found;
  std::vector<char> text(1 << 16);
  if (kernel.dispatch == nullptr ||
      kernel.dispatch(&kernel, &apart.step().problem, text.data(), text.size()) != ASSAY_OK)
    return found;
  std::multiset<std::string> ran;
  for (const StageRun& run : apart.runs()) ran.insert(run.place);
  const std::string all = text.data();
  for (int32_t i = 0; i < kernel.stage_count; ++i) {
    const std::string place = kernel.stages[i].name, begins = place + ": ";
    size_t due = 0;
    for (size_t at = 0; at < all.size(); at = std::min(all.find('\n', at), all.size() - 1) + 1)
      due += all.compare(at, begins.size(), begins) == 0;
    if (due > ran.count(place))
      found.push_back(
          {place,
           {"left_out", fmt::format("is captured {} times, and {} are due", ran.count(place), due), 1, 0,
            ""}});
  }
  return found;
}

bool blame_a_stage(const ReplayApart& apart, StepExplanation& x, const Report& report) {
  for (const StageRun& run : apart.runs()) {
    report({{"at", fmt::format("stage {}, {}, replayed", run.place, run.kernel->name)}});
    const StageCase c(apart.backend(), run);
    const StageVerdict v = c.judge(c.given());
    x.stages.push_back(stage_text(run, v));
    if (!v.judged || v.right) continue;
    x.blame = StepBlame::kStage;
    explain_stage(c, v, x, replay_misreadings(c));
    if (!x.sure() && right_when_called(apart.backend(), run)) {
      // What held no numbers when the call was captured, and is not read when it is called.
      const auto kept = std::find_if(x.causes.begin(), x.causes.end(), [](const StepRanked& r) {
        return r.explained == kNumberlessRows && r.cause.starts_with("captured_");
      });
      if (kept != x.causes.end())
        kept->explained = StepExplanation::kSure;
      else
        x.causes.push_back({"capture_keeps", "called on what this replay found it is right", 1, 0, ""});
    }
    sort_causes(x.causes);
    return true;
  }
  return false;
}

// What a stage has of the replay before may be as well of the capture, where the one followed the other: the
// replay runs again behind one of the same batch.
void tell_before_from_capture(ReplayApart& apart, const Replaying& replaying, StepExplanation& x) {
  const auto sure = [](const StepRanked& r) { return r.explained >= StepExplanation::kSure; };
  const auto before = std::find_if(x.causes.begin(), x.causes.end(),
                                   [&](const StepRanked& r) { return sure(r) && r.cause == kReplayBefore; });
  if (before == x.causes.end() || std::count_if(x.causes.begin(), x.causes.end(), sure) < 2) return;
  apart.twice(true);
  const bool right = replaying.again(apart.backend(), apart.kernel()).empty();
  apart.twice(false);
  x.stages.push_back(
      fmt::format("replayed behind a replay of the same batch it is {}", right ? "right" : "wrong"));
  for (StepRanked& r : x.causes)
    if (sure(r) && (r.cause == kReplayBefore) != right) r.explained = StepExplanation::kNotSure;
  sort_causes(x.causes);
}

}  // namespace

bool explain_replays(const Backend& backend, const assay_kernel& kernel, const Problem& problem,
                     const CaptureOptions& options, StepExplanation& x, const Report& report) {
  if (!graph_refusal(backend, kernel).empty()) return false;
  report({{"at", "replays"}});
  Replaying replaying(problem, options.rows_budget);
  std::string reason = replaying.find(backend, kernel);
  if (reason.empty()) return false;
  x.outcome = Outcome::kWrong, x.reason = std::move(reason), x.when = kReplayed;
  x.blame = StepBlame::kUnknown;
  report(explanation_json(x));
  ReplayApart apart(backend.path(), kernel.name);
  bool wrong = !replaying.again(apart.backend(), apart.kernel()).empty();
  // What a stage keeps of the replay before shows where one was seen before.
  if (wrong && !apart.runs().empty() && !apart.follows_another())
    wrong = !replaying.again(apart.backend(), apart.kernel()).empty() ||
            !replaying.again(apart.backend(), apart.kernel()).empty();
  if (!wrong) {
    x.stage_reason = "captured by its stages every replay is right";
    return true;
  }
  if (blame_a_stage(apart, x, report)) {
    tell_before_from_capture(apart, replaying, x);
    return true;
  }
  if (!apart.runs().empty()) {
    report({{"at", "repairs of replays"}});
    std::vector<WiringCause> wiring = not_captured(kernel, apart);
    if (wiring.empty()) wiring = StaleOperands(apart, replaying).all();
    if (!wiring.empty()) {
      x.blame = StepBlame::kWiring, x.place = wiring.front().place;
      for (const WiringCause& w : wiring)
        if (w.place == x.place) x.causes.push_back(w.ranked);
      for (const StageRun& run : apart.runs())
        if (run.place == x.place) x.stage_kernel = run.kernel->name;
      return true;
    }
  }
  report({{"at", "the end of a replay"}});
  assay_arithmetic arithmetic = default_arithmetic();
  call_arithmetic(backend, kernel, &apart.step().problem, arithmetic);
  Halves(apart.backend(), apart.step(), problem, arithmetic).explain(x, x.stages);
  return true;
}

}  // namespace assay
