// SPDX-License-Identifier: Apache-2.0
// See explain_step.hpp.
#include "harness/explain/stages/explain_step.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "harness/explain/causes.hpp"
#include "harness/explain/child.hpp"
#include "harness/explain/explanation.hpp"
#include "harness/explain/stages/wiring.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/parts.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr double kSecondsOfFamilies = 20;
constexpr size_t kMostCauses = 40, kMostEntries = 6;

void sort_causes(std::vector<StepRanked>& list) {
  std::stable_sort(list.begin(), list.end(), [](const StepRanked& a, const StepRanked& b) {
    return a.explained != b.explained ? a.explained > b.explained : a.spoilt < b.spoilt;
  });
  // Of one cause the best way.
  std::vector<StepRanked> kept;
  for (const StepRanked& r : list)
    if (std::none_of(kept.begin(), kept.end(), [&](const StepRanked& k) { return k.cause == r.cause; }))
      kept.push_back(r);
  if (kept.size() > kMostCauses) kept.resize(kMostCauses);
  list = std::move(kept);
}

// Why a stage left what it left.
void explain_stage(const StageCase& c, const StageVerdict& wrong, StepExplanation& x) {
  x.place = c.place(), x.stage_kernel = c.kernel().name, x.stage_reason = wrong.reason;
  x.causes = rank_misreadings(c, wrong);
  const std::vector<StageCase::Entry> entries = c.wrong_entries();
  for (size_t i = 0; i < entries.size() && i < kMostEntries; ++i) {
    const StageCase::Entry& e = entries[i];
    x.entries.push_back(fmt::format("{}{}[{}]: {} was written, {} is right", operand_name(e.operand),
                                    e.row < 0 ? "" : fmt::format("[{}]", e.row), e.column, e.got, e.wanted));
  }
  if (entries.size() > kMostEntries)
    x.entries.push_back(fmt::format("... {} entries are wrong", entries.size()));
  const auto take = [&](const std::vector<StepRanked>& more) {
    x.causes.insert(x.causes.end(), more.begin(), more.end());
  };
  take(list_patterns(entries, c.given()));
  take(scale_patterns(c));
  sort_causes(x.causes);
  if (!c.attends() || x.sure()) return;
  // What attention can do wrong by itself.
  run_in_child(
      [&](const Report& report) {
        for (const Ranked& r : explain(c.evidence(x.line)).ranking.list) {
          const Cause* known = find_cause(r.cause);
          report({{"cause", r.cause},
                  {"how", r.text},
                  {"explained", r.explained},
                  {"meaning", known != nullptr ? known->meaning : ""}});
        }
      },
      [&](const json& r) {
        x.causes.push_back({r["cause"], r["how"], r["explained"], 0, r["meaning"]});
      },
      kSecondsOfFamilies);
  sort_causes(x.causes);
}

std::vector<uint8_t> dense_requests(const Problem& p, const assay_arithmetic& a) {
  std::vector<uint8_t> dense;
  for (const Request& r : p.requests)
    dense.push_back(p.mask != ASSAY_MASK_CROSS && (a.dense_new_keys & request_class(p, r)) != 0 ? 1 : 0);
  return dense;
}

// The whole as two stages: the write, and attention over the cache that it left.
class Halves {
 public:
  Halves(const Backend& backend, const assay_kernel& kernel, StepEnd& end)
      : backend_(backend), end_(end), kernel_(kernel) {
    end.clear();
    copy(before_);
    assay_plan* plan = nullptr;
    const assay_problem* view = end.inputs().view->get();
    CallResult r = call_plan(backend, kernel, view, end.tensors(), &plan);
    if (r.ok()) r = call_run(backend, kernel, view, end.tensors(), plan);
    call_free_plan(kernel, plan);
    if (!r.ok()) throw InfrastructureError(fmt::format("{}: {}", kernel.name, r.error));
    copy(after_);
  }

  bool explain(StepExplanation& x, std::vector<std::string>& said) {
    const Problem& p = end_.inputs().problem;
    if (p.split_latent) return false;
    if (!p.no_write) {
      const StageRun write = as_write();
      const StageCase c(backend_, write, &end_.arithmetic());
      const StageVerdict v = c.judge(c.given());
      said.push_back("the cache: " + (v.right ? "right" : v.reason));
      if (v.judged && !v.right) {
        x.blame = StepBlame::kEnd;
        explain_stage(c, v, x);
        return true;
      }
    }
    const StageRun attend = as_attend();
    StageCase c(backend_, attend, &end_.arithmetic());
    c.read_new_keys(dense_requests(p, end_.arithmetic()));
    const StageVerdict v = c.judge(c.given());
    said.push_back("O, given the cache as it was left: " + (v.right ? "right" : v.reason));
    if (!v.judged || v.right) return false;
    x.blame = StepBlame::kEnd;
    x.causes = part_patterns(c, v);
    const std::vector<StepRanked> parts = x.causes;
    explain_stage(c, v, x);
    x.causes.insert(x.causes.end(), parts.begin(), parts.end());
    sort_causes(x.causes);
    return true;
  }

 private:
  void copy(Bytes (&to)[kOperandCount]) const {
    const assay_tensors& t = *end_.tensors();
    char why[200];
    for (int i = 0; i < kOperandCount; ++i) {
      const assay_tensor& from = tensor_of(t, static_cast<Operand>(i));
      const int64_t size = view_bytes(from);
      if (size == 0 || static_cast<Operand>(i) == Operand::kWorkspace) continue;
      to[i].address = static_cast<const std::byte*>(from.data);
      to[i].copy.resize(static_cast<size_t>(size));
      if (backend_.table()->copy_to_host(to[i].copy.data(), from.data, size, why, sizeof why) != ASSAY_OK)
        throw InfrastructureError(fmt::format("what the step left cannot be read: {}", why));
    }
  }
  StageRun half(const char* place, int32_t op) {
    StageRun run;
    assay_kernel& k = *new assay_kernel{};  // looked at as long as the process lives
    k.struct_size = sizeof k, k.name = kernel_.name, k.op = op;
    k.contracts = op == ASSAY_OP_PAGED ? contracts_of(kernel_) | ASSAY_CONTRACT_NO_LSE : 0;
    run.place = place, run.kernel = &k;
    run.problem = *end_.inputs().view->get(), run.tensors = *end_.tensors();
    run.problem.op = op;
    run.tensors.lse = assay_tensor{};
    const Problem& p = end_.inputs().problem;
    run.q_len = p.q_lens(), run.kv_len = p.kv_lens();
    for (int i = 0; i < kOperandCount; ++i) run.before[i] = before_[i], run.after[i] = after_[i];
    return run;
  }
  StageRun as_write() {
    StageRun run = half("write", ASSAY_OP_CACHE_WRITE);
    run.problem.rows = end_.inputs().problem.key_rows();
    run.problem.mask = ASSAY_MASK_CAUSAL;
    return run;
  }
  StageRun as_attend() {
    StageRun run = half("attend", ASSAY_OP_PAGED);
    for (const Operand o : {Operand::kK, Operand::kV, Operand::kKScale, Operand::kVScale})
      run.before[static_cast<int>(o)] = after_[static_cast<int>(o)];
    return run;
  }

  const Backend& backend_;
  StepEnd& end_;
  const assay_kernel& kernel_;
  Bytes before_[kOperandCount], after_[kOperandCount];
};

void look_inside(const Backend& backend, const assay_kernel& kernel, const Problem& problem,
                 StepExplanation& x, const Report& report) {
  StepEnd end(backend, kernel, problem);
  x.blame = StepBlame::kUnknown;
  if (StepApart::can(kernel)) {
    StepApart apart(backend, kernel, end.inputs().view->get(), end.tensors());
    end.clear();
    apart.record();
    const StepEnd::Look nothing = end.look();
    for (const StageRun& run : apart.runs()) {
      report({{"at", fmt::format("stage {}, {}", run.place, run.kernel->name)}});
      const StageCase c(backend, run);
      const StageVerdict v = c.judge(c.given());
      x.stages.push_back(fmt::format("{}, {}: {}", run.place, run.kernel->name,
                                     !v.judged ? "not judged: " + v.reason
                                     : v.right ? "right on what it was given"
                                               : v.reason));
      if (!v.judged || v.right) continue;
      x.blame = StepBlame::kStage;
      explain_stage(c, v, x);
      return;
    }
    report({{"at", "repairs"}});
    if (nothing.right) {
      x.stage_reason = "run by its stages the end is right: calls differ";
      return;
    }
    std::vector<WiringCause> wiring = rank_wiring(apart, end, kernel, nothing);
    if (!wiring.empty() && wiring.front().ranked.explained >= StepExplanation::kSure) {
      x.blame = StepBlame::kWiring;
      x.place = wiring.front().place;
      for (const WiringCause& w : wiring)
        if (w.place == x.place) x.causes.push_back(w.ranked);
      for (const StageRun& run : apart.runs())
        if (run.place == x.place) x.stage_kernel = run.kernel->name;
      sort_causes(x.causes);
      return;
    }
  }
  report({{"at", "the end"}});
  Halves(backend, kernel, end).explain(x, x.stages);
}

constexpr std::pair<StepBlame, const char*> kBlames[] = {{StepBlame::kNothing, "nothing"},
                                                         {StepBlame::kStage, "stage"},
                                                         {StepBlame::kWiring, "wiring"},
                                                         {StepBlame::kEnd, "end"},
                                                         {StepBlame::kUnknown, "unknown"}};

std::string blame_name(StepBlame blame) {
  for (const auto& [value, name] : kBlames)
    if (value == blame) return name;
  return "";
}

}  // namespace

std::string StepExplanation::where() const {
  if (blame == StepBlame::kStage) return place;
  if (blame == StepBlame::kWiring || blame == StepBlame::kEnd) return blame_name(blame) + " " + place;
  return "";
}

bool StepExplanation::sure() const { return !causes.empty() && causes.front().explained >= kSure; }

StepExplanation explain_step(const std::string& line, const Problem& problem, const std::string& backend,
                             const std::string& kernel, const CaptureOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  StepExplanation x;
  std::string at, refused;
  const ChildEnd end = run_in_child(
      [&](const Report& report) {
        omp_set_num_threads(1);  // repairs are tried in children of this one, which inherit no threads
        const Backend loaded = Backend::load(backend);
        const assay_kernel* found = loaded.find(kernel);
        if (found == nullptr || found->op != problem.op)
          return report(
              {{"refused",
                found == nullptr
                    ? fmt::format("backend {} has no kernel {}; assay kernels lists them", loaded.name(),
                                  kernel)
                    : fmt::format("kernel {} is for another op, and the line is of op step", kernel)}});
        char error[512] = "";
        if (loaded.table()->use_device(0, error, sizeof error) != ASSAY_OK)
          throw InfrastructureError(fmt::format("backend {}: {}", loaded.name(), error));
        StepExplanation own;
        own.line = line, own.kernel = kernel;
        Judge judge(problem, options.rows_budget);
        const Verdict v = judge.judge(loaded, *found, loaded.device(0));
        own.outcome = v.outcome, own.reason = v.reason;
        report(explanation_json(own));
        if (v.outcome != Outcome::kWrong) return;
        look_inside(loaded, *found, problem, own, report);
        report(explanation_json(own));
      },
      [&](const json& j) {
        if (j.contains("at"))
          at = j["at"];
        else if (j.contains("refused"))
          refused = j["refused"];
        else
          x = step_explanation(j);
      },
      options.timeout_s);
  if (!refused.empty()) throw InputError(refused);
  if (!end.fine()) {
    if (!end.timed_out && end.signal == 0 && end.exit_code == 0 && at.empty())
      throw InfrastructureError(end.text());
    if (x.kernel.empty()) {
      x.line = line, x.kernel = kernel;
      x.outcome = end.timed_out ? Outcome::kTimedOut : Outcome::kCrashed;
      x.reason = "the kernel " + end.text();
    }
    x.blame = StepBlame::kUnknown;
    x.stage_reason = at.empty() ? end.text() : fmt::format("at {}: {}", at, end.text());
  }
  x.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return x;
}

json explanation_json(const StepExplanation& x) {
  json j = {{"scenario", x.line},
            {"kernel", x.kernel},
            {"outcome", outcome_name(x.outcome)},
            {"outcome_id", static_cast<int>(x.outcome)},
            {"reason", x.reason},
            {"stages", x.stages},
            {"blame", blame_name(x.blame)},
            {"place", x.place},
            {"stage_kernel", x.stage_kernel},
            {"stage_reason", x.stage_reason},
            {"entries", x.entries},
            {"sure", x.sure()},
            {"seconds", x.seconds},
            {"causes", json::array()}};
  for (const StepRanked& r : x.causes)
    j["causes"].push_back({{"cause", r.cause},
                           {"how", r.how},
                           {"explained", r.explained},
                           {"spoilt", r.spoilt},
                           {"meaning", r.meaning.empty() ? step_cause_meaning(r.cause) : r.meaning}});
  return j;
}

StepExplanation step_explanation(const json& j) {
  StepExplanation x;
  x.line = j["scenario"], x.kernel = j["kernel"];
  x.outcome = static_cast<Outcome>(j["outcome_id"].get<int>());
  x.reason = j["reason"], x.stages = j["stages"], x.place = j["place"];
  for (const auto& [value, name] : kBlames)
    if (j["blame"] == name) x.blame = value;
  x.stage_kernel = j["stage_kernel"], x.stage_reason = j["stage_reason"], x.entries = j["entries"];
  x.seconds = j["seconds"];
  for (const json& r : j["causes"])
    x.causes.push_back({r["cause"], r["how"], r["explained"], r["spoilt"], r["meaning"]});
  return x;
}

std::string explanation_text(const StepExplanation& x, size_t top, bool color) {
  const char *bold = color ? "\033[1m" : "", *red = color ? "\033[31m" : "", *off = color ? "\033[0m" : "";
  std::string text = fmt::format("{}{}{}\nkernel    {}\nverdict   {}{}{}{}\n", bold, x.line, off, x.kernel,
                                 x.outcome == Outcome::kPassed ? "" : red, outcome_name(x.outcome), off,
                                 x.reason.empty() ? "" : ": " + x.reason);
  for (size_t i = 0; i < x.stages.size(); ++i)
    text += fmt::format("{:<9} {}\n", i == 0 ? "stages" : "", x.stages[i]);
  if (x.blame == StepBlame::kNothing) {
    text +=
        x.outcome == Outcome::kPassed ? "nothing to explain: O and the cache lie in their intervals\n" : "";
    return text;
  }
  const std::string what =
      x.blame == StepBlame::kStage
          ? fmt::format("stage {}, {}, is wrong on its own inputs", x.place, x.stage_kernel)
      : x.blame == StepBlame::kWiring
          ? fmt::format("every stage is right on its inputs; what is wrong is {}",
                        x.stage_kernel.empty() ? "that " + x.place + " is missing"
                                               : "what stage " + x.place + " is given, or when it runs")
      : x.blame == StepBlame::kEnd ? fmt::format("no stage is to blame or seen; of the whole: {}", x.place)
                                   : "neither a stage nor what one was given explains it";
  text += fmt::format("where     {}{}{}\n", bold, what, off);
  if (x.blame == StepBlame::kUnknown && !x.stage_reason.empty()) text += "          " + x.stage_reason + "\n";
  for (const std::string& entry : x.entries) text += "          " + entry + "\n";
  if (!x.causes.empty()) text += fmt::format("causes    {:>8}  {:<24} {}\n", "explains", "cause", "how");
  for (size_t i = 0; i < x.causes.size() && i < top; ++i)
    text += fmt::format("          {:>7.0f}%  {:<24} {}\n", 100 * x.causes[i].explained, x.causes[i].cause,
                        x.causes[i].how);
  if (!x.sure()) return text + "so        none of the known causes\n";
  const auto meaning = [](const StepRanked& r) {
    return r.meaning.empty() ? step_cause_meaning(r.cause) : r.meaning;
  };
  text += fmt::format("so        {}: {}\n", x.place, meaning(x.causes[0]));
  for (size_t i = 1; i < x.causes.size(); ++i)
    if (x.causes[i].explained >= x.causes[0].explained && x.causes[i].spoilt <= x.causes[0].spoilt)
      text += fmt::format("or        {}\n", meaning(x.causes[i]));
  return text;
}

}  // namespace assay
