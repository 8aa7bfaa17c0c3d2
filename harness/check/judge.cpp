// SPDX-License-Identifier: Apache-2.0
// One kernel, one case, four runs: twice with NaN in every place nobody may read, then with two different
// finite poisons. Everything that can be wrong apart from numbers is looked at first (status, guards,
// inputs, unwritten elements), because those reasons name the cause; then every element of the first run, the
// promised bits, what the op's expectation says of the whole, and last whether a pass means anything.
#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/check/declarations/redeclared.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/judge_impl.hpp"
#include "harness/check/session/before_plan.hpp"
#include "harness/check/session/lse_optional.hpp"
#include "harness/check/session/opposite.hpp"
#include "harness/check/session/races.hpp"
#include "harness/check/session/read_twice.hpp"
#include "harness/check/session/unused_reads.hpp"
#include "harness/device/fenced.hpp"
#include "harness/input/contracts.hpp"
#include "harness/input/poison.hpp"

namespace assay {
namespace {

// The poisons of the runs a kernel is judged by; the outputs are poisoned before every run.
constexpr Poison kRuns[] = {Poison::kNaN, Poison::kNaN, Poison::kLow, Poison::kHigh};
constexpr int kRunCount = 4;
constexpr int64_t kKeptBytes = 64 << 20;  // of a snapshot that only a failure has a use for

}  // namespace

Look Judge::Impl::look(Snapshot left, const RunRecord* first, const RunRecord* before) const {
  Look seen;
  const auto take = [&](const RunOutputs& out) {
    seen.values = out.values, seen.marks = out.marks;
    seen.wrong = objection_of(out, *expected);
    // The consequence is found first: a key that was overwritten makes O wrong.
    if (seen.wrong && seen.wrong.check != "untouched") seen.wrong.reason += out.changed_beside();
    if (!seen.wrong) seen.distrust = expected->distrust(out);
  };
  const bool dear = expected->has_dear_bounds();
  RunOutputs out(inputs, dear ? left : std::move(left), first, before);
  dear ? expected->survey(out) : expected->ask(out);
  seen.unwritten = out.unwritten();
  if (!seen.unwritten.empty()) seen.unwritten += out.changed_beside();
  seen.differs_in_bits = out.differs_in_bits(), seen.differs = out.differs();
  seen.finite = out.not_finite().empty();
  const bool judged_before =
      first != nullptr && (seen.differs_in_bits.empty() || (repeatable && before != nullptr));
  if (!dear) {
    take(out);
  } else if (judged_before || (!seen.finite && !expected->leaves_open())) {
    seen.wrong = objection_of(out, *expected);
    if (judged_before && seen.wrong.check == "finite" && expected->leaves_open()) seen.wrong = {};
  } else {
    RunOutputs bounded(inputs, std::move(left));
    expected->ask(bounded);
    seen.finite = bounded.not_finite().empty();
    take(bounded);
  }
  seen.record = std::move(out.record());
  return seen;
}

Verdict Judge::Impl::judge(const Backend& backend, const assay_kernel& kernel, const assay_device& device) {
  const assay_problem* view = inputs.view->get();
  Verdict verdict;
  verdict.rows_total = expected->rows_total();
  const auto settle = [&](Outcome outcome, std::string check, std::string reason) {
    verdict.outcome = outcome;
    verdict.check = std::move(check);
    verdict.reason = one_line(std::move(reason));
    return verdict;
  };
  const auto wrong = [&](Objection objection) {
    return settle(Outcome::kWrong, std::move(objection.check), std::move(objection.reason));
  };
  session.reset();
  judged.reset(), failed.reset();
  turn_back();
  repeatable = (promises_of(kernel) & ASSAY_PROMISE_REPEATABLE) != 0;

  if (const std::string broken = impossible_contracts(contracts_of(kernel), inputs.problem.op);
      !broken.empty())
    return settle(Outcome::kWrong, "declaration", "declares an impossible contract: " + broken);
  if (const CallResult r = Session::supports(kernel, inputs, device); r.refused())
    return settle(Outcome::kUnsupported, "", r.error);
  else if (!r.ok())
    return settle(Outcome::kCrashed, "call", "supports: " + r.error);
  if (const CallResult r = check_declarations(kernel, view); !r.ok())
    return settle(Outcome::kCrashed, "call", r.error);
  ask = [&backend, &kernel, view] { return what_it_says(backend, kernel, view); };
  said = ask();
  verdict.declaration = declaration_text(said);
  if (const int64_t bytes = said.workspace.bytes; device.memory_bytes > 0 && bytes > device.memory_bytes)
    return settle(
        Outcome::kCrashed, "call",
        fmt::format("workspace_bytes says {}, more than the {} of the device", bytes, device.memory_bytes));
  if (const std::string broken = expected->impossible(said.arithmetic); !broken.empty())
    return settle(Outcome::kWrong, "declaration", "declares an impossible arithmetic: " + broken);
  if (Objection other = asked_again()) return wrong(std::move(other));
  expected->prepare(said.arithmetic);

  repoison(inputs, Poison::kNaN);
  if (const CallResult r = plan_over_other_contents(backend, kernel); r.refused())
    return settle(Outcome::kUnsupported, "", r.error);
  else if (!r.ok())
    return settle(Outcome::kCrashed, "call", "plan: " + r.error);
  Look looks[kRunCount];
  Snapshot left, last;  // of the first run, and of the last one
  for (int i = 0; i < kRunCount; ++i) {
    // What a refresh leaves serves any number of runs: the second one finds it as the first one did.
    const bool again = i == 1 && kernel.refresh != nullptr;
    if (i == 1) session->poison_outputs(!again);
    if (i > 1) session->lay(kRuns[i]);
    if (i == 0 && kernel.refresh != nullptr) {
      if (const CallResult r = session->refresh(); !r.ok() && !r.refused())
        return settle(Outcome::kCrashed, "call", "refresh: " + r.error);
      if (const std::vector<std::string> written = session->written(); !written.empty())
        return settle(Outcome::kWrong, "refresh", "refresh writes what only a run may: " + written.front());
    }
    if (const CallResult r = again ? session->run_again() : session->run(); r.refused()) {
      // Before it served the problem a kernel may refuse, and has written nothing then.
      if (i > 0) return settle(Outcome::kWrong, "refusal", "refuses a second run of what it ran: " + r.error);
      if (!session->untouched())
        return settle(Outcome::kWrong, "refusal", "refuses and writes all the same: " + r.error);
      return settle(Outcome::kUnsupported, "", r.error);
    } else if (!r.ok()) {
      return settle(Outcome::kCrashed, "call", r.error);
    }
    Snapshot now = session->outputs();  // at once: who writes later has not written
    if (Objection damage = session->damage()) return wrong(std::move(damage));
    const bool dear = expected->has_dear_bounds(), small = now.bytes() <= kKeptBytes;
    if (i == 0 && dear) left = now;
    if (i + 1 == kRunCount) last = now;
    looks[i] = i == 0 ? look(std::move(now), nullptr, nullptr)
                      : look(std::move(now), &looks[0].record, &looks[i - 1].record);
    // Of a cheap look only a failure wants what was left: it still lies there.
    if (i == 0 && !dear && small && (looks[0].wrong || !looks[0].unwritten.empty()))
      left = session->outputs();
  }
  const std::string late = last.changed_in(session->outputs());
  last = {};
  session->lay(Poison::kNaN);

  Look& first = looks[0];
  const auto describe = [&] {
    expected->describe(verdict);
    verdict.o = first.values, verdict.lse = first.marks;
  };
  if (!expected->has_dear_bounds()) describe();
  if (const std::string& reason = looks[kRunCount - 1].unwritten; !reason.empty())
    return failed.emplace(std::move(left)), settle(Outcome::kWrong, "unwritten", reason);
  const bool repeats = looks[1].differs_in_bits.empty();
  const bool depends = !looks[2].differs.empty() || !looks[3].differs.empty();
  const std::string slots = "what slots of new keys held before the step: they are read, or left, unwritten";
  const bool of_plan = first.wrong && right_by_plan(backend, kernel);
  if (of_plan)
    first.wrong.reason +=
        fmt::format("; right where the plan was made over what the run finds: {}", kKeptFromPlan);
  if (!first.finite) {
    if (looks[2].finite && !of_plan)
      first.wrong.reason +=
          rests_on_new_slots(first)
              ? "; it comes from " + slots
              : "; finite when unused memory holds numbers, so it reads unused memory" + unused_memory(first);
    return wrong(std::move(first.wrong));
  }
  describe();
  verdict.repeats = repeats;
  if (first.wrong) {
    if (repeats && depends && !of_plan && first.wrong.check != "untouched")
      first.wrong.reason += rests_on_new_slots(first)
                                ? "; it changes with " + slots
                                : "; it changes with the contents of unused memory" + unused_memory(first);
    failed.emplace(std::move(left));
    return wrong(std::move(first.wrong));
  }
  if (repeatable && !repeats)
    return settle(Outcome::kWrong, "repeatable",
                  (kernel.refresh != nullptr
                       ? "promises repeatable results, but a second run after one refresh differs: "
                       : "promises repeatable results, but a second run differs: ") +
                      looks[1].differs_in_bits);
  if (repeatable && depends) {
    const std::string differs = looks[2].differs.empty() ? looks[3].differs : looks[2].differs;
    if (rests_on_new_slots(first))
      return settle(Outcome::kWrong, "memory", "the result changes with " + slots + ": " + differs);
    const std::string read = unused_memory(first);
    return settle(Outcome::kWrong, "memory",
                  "the result changes with the contents of unused memory: " + differs +
                      (read.empty() ? "" : "; what is read" + read));
  }
  for (int i = 1; i < kRunCount; ++i)
    if (Objection& other = looks[i].wrong) {
      if (other.check != "finite" && other.check != "untouched")
        verdict.o = looks[i].values, verdict.lse = looks[i].marks;
      other.reason = fmt::format("in run {} of {}: {}", i + 1, kRunCount, other.reason);
      return wrong(std::move(other));
    }
  if (!late.empty())
    return settle(Outcome::kWrong, "late", "its outputs change after the call has ended: " + late);
  if (const CallResult r = fenced_call(backend, kernel, inputs, device); !r.ok() && !r.refused())
    return settle(Outcome::kCrashed, "call", "in memory between unreadable pages: " + r.error);
  if (Objection other = asked_again()) return wrong(std::move(other));
  // Who refuses from now on keeps out of everything that is looked at besides the result.
  if (const CallResult r = Session::supports(kernel, inputs, device); !r.ok())
    return settle(Outcome::kWrong, "refusal", "ran, and refuses when it is asked again: " + r.error);
  judged = std::move(first.record);
  if ((promises_of(kernel) & ASSAY_PROMISE_LSE_OPTIONAL) != 0 && inputs.tensors.lse.data != nullptr)
    if (Objection other =
            repeatable ? differs_without_lse(*session, backend, kernel, device, inputs, left)
                       : Objection{"declaration", "promises an optional LSE, and not to repeat its results"})
      return wrong(std::move(other));

  if (Objection whole = expected->examine({backend, kernel, device, inputs, left}, verdict))
    return wrong(std::move(whole));
  if (first.distrust)
    return settle(Outcome::kUntrusted, std::move(first.distrust.check), std::move(first.distrust.reason));
  return settle(Outcome::kPassed, "", "");
}

CallResult Judge::Impl::plan_over_other_contents(const Backend& backend, const assay_kernel& kernel) {
  std::optional<OtherContents> others;
  if (kernel.plan != nullptr) others.emplace(inputs);
  session = std::make_unique<Session>(backend, kernel, inputs);
  lent.lend("its tensors", session->device_case().tensors(), sizeof(assay_tensors));
  CallResult planned = session->plan();
  if (others) {
    others->put_back();
    upload_values();
  }
  return planned;
}

bool Judge::Impl::right_by_plan(const Backend& backend, const assay_kernel& kernel) {
  if (kernel.plan == nullptr) return false;
  Session again(backend, kernel, inputs);
  if (!again.plan().ok() || !again.run().ok()) return false;
  RunOutputs out(inputs, again.outputs());
  expected->ask(out);
  return out.unwritten().empty() && !objection_of(out, *expected);
}

// One more run, with numbers in the slots of new keys alone.
bool Judge::Impl::rests_on_new_slots(const Look& first) {
  repoison(inputs, Poison::kNaN);
  if (!poison_new_keys(inputs, Poison::kHigh)) return false;
  session->device_case().upload();
  bool rests = false;
  if (session->run().ok()) {
    RunOutputs now(inputs, session->outputs(), &first.record);
    expected->has_dear_bounds() ? expected->survey(now) : expected->ask(now);
    rests = first.finite ? !now.differs().empty() : now.not_finite().empty();
  }
  session->lay(Poison::kNaN);
  return rests;
}

std::string Judge::Impl::unused_memory(const Look& first) {
  const auto ask_all = [&](RunOutputs& now) {
    expected->has_dear_bounds() ? expected->survey(now) : expected->ask(now);
  };
  session->lay(Poison::kLow);
  if (!session->run().ok()) return session->lay(Poison::kNaN), std::string();
  RunOutputs low(inputs, session->outputs());
  ask_all(low);
  const auto shows = [&](Snapshot left) {
    RunOutputs now(inputs, std::move(left), &low.record());
    ask_all(now);
    return first.finite ? !now.differs().empty() : !now.not_finite().empty();
  };
  std::string read;
  // NaN is not seen by who takes a maximum of it, numbers not by who is far from them.
  for (const Poison other : {Poison::kHigh, Poison::kNaN})
    if (read.empty() && (first.finite || other == Poison::kNaN))
      read = unused_reads(*session, inputs, Poison::kLow, other, shows);
  return read.empty() ? "" : ": " + read;
}

Objection Judge::Impl::asked_again() const {
  std::string other = otherwise(said, ask());
  return other.empty() ? Objection{} : Objection{"declaration", std::move(other)};
}

Objection Judge::Impl::hold_against_judged(Snapshot left, Look& now) const {
  now = look(std::move(left), &*judged, nullptr);
  if (!now.unwritten.empty()) return {"unwritten", now.unwritten};
  if (now.wrong) return now.wrong;
  if (repeatable && !now.differs_in_bits.empty())
    return {"repeatable",
            "promises repeatable results, but differs from the run that was judged: " + now.differs_in_bits};
  return {};
}

Verdict Judge::Impl::races(const Disturber& disturber, const RaceSearch& search) {
  ASSAY_CHECK(session != nullptr && judged.has_value(),
              "only a kernel that was judged is looked at for races");
  Verdict verdict;
  verdict.rows_total = expected->rows_total();
  const auto judge_again = [&](Snapshot left) {
    Look now;
    Objection wrong = hold_against_judged(std::move(left), now);
    // Where bits are promised the first element that is another one says more than what is wrong with it.
    if (wrong && repeatable && !now.differs_in_bits.empty()) wrong.reason = now.differs_in_bits;
    if (wrong) expected->describe(verdict), verdict.o = now.values, verdict.lse = now.marks;
    return wrong;
  };
  const auto turn = [&] {
    if (!turn_values(inputs)) return false;
    opposite = !opposite;
    upload_values();
    return true;
  };
  const Objection objection = find_races(*session, disturber, search, judge_again, turn);
  verdict.outcome = objection ? Outcome::kWrong : Outcome::kPassed;
  verdict.check = objection.check;
  verdict.reason = one_line(objection.reason);
  return verdict;
}

Verdict Judge::Impl::recheck() {
  ASSAY_CHECK(session != nullptr && judged.has_value(), "only a kernel that was judged can be judged again");
  Verdict verdict;
  verdict.rows_total = expected->rows_total();
  Objection objection = session->damage();
  if (!objection) {
    Look now;
    objection = hold_against_judged(session->outputs(), now);
    expected->describe(verdict);
    verdict.o = now.values, verdict.lse = now.marks;
  }
  if (!objection) objection = asked_again();
  session->poison_outputs();
  verdict.outcome = objection ? Outcome::kWrong : Outcome::kPassed;
  verdict.check = std::move(objection.check);
  verdict.reason = one_line(std::move(objection.reason));
  return verdict;
}

Verdict Judge::Impl::unless_changed(Verdict verdict) {
  const std::string changed = lent.restore();
  if (changed.empty() || verdict.outcome == Outcome::kCrashed) return verdict;
  verdict.outcome = Outcome::kWrong;
  verdict.check = "inputs";
  verdict.reason = one_line("changed what it may only read: " + changed);
  return verdict;
}

Judge::Judge(const Problem& problem, double row_key_budget)
    : impl_(std::make_unique<Impl>(problem, row_key_budget)) {}
Judge::~Judge() = default;
Verdict Judge::judge(const Backend& backend, const assay_kernel& kernel, const assay_device& device) {
  impl_->lent = {};
  impl_->lent.lend(*impl_->inputs.view->get());
  impl_->lent.lend("its entry", &kernel, std::min<size_t>(kernel.struct_size, sizeof kernel));
  return impl_->unless_changed(impl_->judge(backend, kernel, device));
}
const Inputs& Judge::inputs() const { return impl_->inputs; }
DeviceCase& Judge::device_case() {
  ASSAY_CHECK(impl_->session != nullptr, "no kernel has been judged yet");
  return impl_->session->device_case();
}
std::string Judge::otherwise_declared() {
  Impl& i = *impl_;
  if (!i.failed || i.failed->bytes() == 0) return {};
  return assay::otherwise_declared({i.inputs, *i.expected, *i.failed, i.said.arithmetic, i.row_key_budget});
}
Verdict Judge::recheck() { return impl_->unless_changed(impl_->recheck()); }
Verdict Judge::races(const Disturber& disturber, const RaceSearch& search) {
  return impl_->unless_changed(impl_->races(disturber, search));
}
void Judge::clear_outputs() { impl_->session->poison_outputs(false); }
std::string Judge::written_late(double seconds, double* longer) {
  ReadTwice read = read_twice([this] { return impl_->session->outputs(); }, seconds);
  *longer = read.longer_s;
  return std::move(read.changed);
}
void Judge::forget() {
  impl_->turn_back();
  impl_->judged.reset();
  impl_->session.reset();
}

}  // namespace assay
