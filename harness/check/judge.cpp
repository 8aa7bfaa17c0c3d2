// SPDX-License-Identifier: Apache-2.0
// One kernel, one case, four runs: twice with NaN in every place nobody may read, then with two different
// finite poisons. Everything that can be wrong apart from numbers is looked at first (status, guards,
// inputs, unwritten elements), because those reasons name the cause; then every element of the first run, the
// promised bits, what the op's expectation says of the whole, and last whether a pass means anything.
#include <algorithm>
#include <functional>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/check/expectations/expectation.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/session/lse_optional.hpp"
#include "harness/check/session/opposite.hpp"
#include "harness/check/session/races.hpp"
#include "harness/check/session/read_twice.hpp"
#include "harness/check/session/said.hpp"
#include "harness/check/verdict.hpp"
#include "harness/device/fenced.hpp"
#include "harness/device/lent.hpp"
#include "harness/input/contracts.hpp"
#include "harness/input/poison.hpp"

namespace assay {
namespace {

// The poisons of the runs a kernel is judged by; the outputs are poisoned before every run.
constexpr Poison kRuns[] = {Poison::kNaN, Poison::kNaN, Poison::kLow, Poison::kHigh};
constexpr int kRunCount = 4;
constexpr int64_t kDrawnBytes = 16 << 10;  // brought to the device before every timed call

// What one run gave.
struct Look {
  RunRecord record;
  ErrorStats values, marks;
  Objection wrong;     // in an element or beside all of them
  Objection distrust;  // of the bounds, when nothing is wrong
  std::string unwritten, differs_in_bits, differs;
  bool finite = true;
};

}  // namespace

struct Judge::Impl {
  Inputs inputs;  // but for the poison
  std::unique_ptr<Expectation> expected;
  std::unique_ptr<Session> session;
  // Of the kernel judged last, when it can be judged again.
  bool repeatable = false;
  std::optional<RunRecord> judged;
  std::optional<Snapshot> unturned;  // outputs of the values as they were built
  bool opposite = false;             // the inputs hold the turned ones
  std::vector<TurnedRows> drawn;     // rows of the inputs with turned signs
  Lent lent;                         // to that kernel
  std::function<Said()> ask;         // the kernel judged last, once more
  Said said;                         // its first answer

  void upload_values();  // whatever the host holds now of what the kernel reads
  void turn_back();      // of the host's inputs, before another kernel gets them
  // A few rows with other signs, in place of the last ones: what is no longer what the device holds.
  std::vector<TurnedRows> draw_rows(std::mt19937_64&, bool keys = false);
  explicit Impl(const Problem& problem, double row_key_budget)
      : inputs(build_inputs(problem)), expected(make_expectation(inputs, row_key_budget)) {}

  // What a run left. One that gave the bits of `first` needs no bounds: those were judged. `before` as for
  // RunOutputs; given, a kernel that promises equal bits needs none either.
  Look look(Snapshot left, const RunRecord* first, const RunRecord* before) const;
  Verdict judge(const Backend&, const assay_kernel&, const assay_device&);
  bool rests_on_new_slots(const Look& first);
  Objection asked_again() const;
  // The look at a later call with the same inputs, and what is wrong in it.
  Objection hold_against_judged(Snapshot left, Look& now) const;
  Verdict recheck();
  Verdict races(const Disturber&, const RaceSearch&);
  // The verdict, unless the kernel wrote to what it had been lent: the next one must not find that.
  Verdict unless_changed(Verdict);
};

void Judge::Impl::upload_values() {
  session->upload_inputs();
  for (const Operand cache : caches_read(inputs))
    session->device_case().upload(cache, 0, inputs.buffers[cache].bytes());
}

std::vector<TurnedRows> Judge::Impl::draw_rows(std::mt19937_64& random, bool keys) {
  // What the device holds of the last draw goes with the new one.
  std::vector<TurnedRows> changed = std::move(drawn);
  turn_rows(inputs, changed);
  if (keys) drawn = turn_random_keys(inputs, random);
  if (drawn.empty()) drawn = turn_random_rows(inputs, random, kDrawnBytes);
  changed.insert(changed.end(), drawn.begin(), drawn.end());
  return changed;
}

void Judge::Impl::turn_back() {
  turn_rows(inputs, drawn);
  drawn.clear();
  if (opposite) turn_values(inputs);
  opposite = false;
  unturned.reset();
}

Look Judge::Impl::look(Snapshot left, const RunRecord* first, const RunRecord* before) const {
  Look seen;
  const auto take = [&](const RunOutputs& out) {
    seen.values = out.values, seen.marks = out.marks;
    seen.wrong = objection_of(out, *expected);
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
  judged.reset();
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
  session = std::make_unique<Session>(backend, kernel, inputs);
  lent.lend("its tensors", session->device_case().tensors(), sizeof(assay_tensors));
  if (const CallResult r = session->plan(); r.refused())
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
    if (i == 0 && expected->has_dear_bounds()) left = now;
    if (i + 1 == kRunCount) last = now;
    looks[i] = i == 0 ? look(std::move(now), nullptr, nullptr)
                      : look(std::move(now), &looks[0].record, &looks[i - 1].record);
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
    return settle(Outcome::kWrong, "unwritten", reason);
  const bool repeats = looks[1].differs_in_bits.empty();
  const bool depends = !looks[2].differs.empty() || !looks[3].differs.empty();
  const std::string slots = "what slots of new keys held before the step: they are read, or left, unwritten";
  if (!first.finite) {
    if (looks[2].finite)
      first.wrong.reason += rests_on_new_slots(first)
                                ? "; it comes from " + slots
                                : "; finite when unused memory holds numbers, so it reads unused memory";
    return wrong(std::move(first.wrong));
  }
  describe();
  verdict.repeats = repeats;
  if (first.wrong) {
    if (repeats && depends && first.wrong.check != "untouched")
      first.wrong.reason += rests_on_new_slots(first) ? "; it changes with " + slots
                                                      : "; it changes with the contents of unused memory";
    return wrong(std::move(first.wrong));
  }
  if (repeatable && !repeats)
    return settle(Outcome::kWrong, "repeatable",
                  (kernel.refresh != nullptr
                       ? "promises repeatable results, but a second run after one refresh differs: "
                       : "promises repeatable results, but a second run differs: ") +
                      looks[1].differs_in_bits);
  if (repeatable && depends)
    return settle(Outcome::kWrong, "memory",
                  (rests_on_new_slots(first) ? "the result changes with " + slots + ": "
                                             : "the result changes with the contents of unused memory: ") +
                      (looks[2].differs.empty() ? looks[3].differs : looks[2].differs));
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
Verdict Judge::recheck() { return impl_->unless_changed(impl_->recheck()); }
Verdict Judge::races(const Disturber& disturber, const RaceSearch& search) {
  return impl_->unless_changed(impl_->races(disturber, search));
}
bool Judge::turn() {
  Impl& i = *impl_;
  ASSAY_CHECK(i.session != nullptr && i.judged.has_value(),
              "only a kernel that was judged gets other values");
  settle();
  if (!i.opposite && !i.unturned) i.unturned.emplace(i.session->outputs());
  if (!turn_values(i.inputs)) return false;
  i.opposite = !i.opposite;
  i.upload_values();
  return true;
}
std::string Judge::turned() const {
  const Impl& i = *impl_;
  ASSAY_CHECK(i.unturned.has_value(), "no values were turned");
  return not_as_turned(i.inputs, *i.unturned, i.session->outputs(), i.opposite);
}
void Judge::draw(std::mt19937_64& random, Draw what) {
  Impl& i = *impl_;
  ASSAY_CHECK(i.session != nullptr && i.judged.has_value(),
              "only a kernel that was judged gets other values");
  if (what == Draw::kEverything) {
    turn_rows(i.inputs, i.drawn);
    i.drawn = turn_random_rows(i.inputs, random, 0);
    return i.upload_values();
  }
  for (const TurnedRows& rows : i.draw_rows(random, what == Draw::kFewKeys))
    i.session->device_case().upload(rows.operand, rows.first, rows.last);
}
Changes Judge::draw_later(std::mt19937_64& random) {
  Impl& i = *impl_;
  Changes changes;
  for (const TurnedRows& rows : i.draw_rows(random)) {
    const std::byte* const from = i.inputs.buffers[rows.operand].payload();
    const auto* const host = static_cast<const std::byte*>(tensor_of(i.inputs.tensors, rows.operand).data);
    auto* const device =
        static_cast<std::byte*>(tensor_of(*i.session->device_case().tensors(), rows.operand).data);
    changes.push_back({device + (from + rows.first - host), {from + rows.first, from + rows.last}});
  }
  return changes;
}
void Judge::settle() {
  Impl& i = *impl_;
  if (i.drawn.empty()) return;
  turn_rows(i.inputs, i.drawn);
  i.drawn.clear();
  i.upload_values();
}
std::string Judge::judge_drawn(double row_key_budget) {
  Impl& i = *impl_;
  if (const Objection damage = i.session->damage()) return damage.reason;
  const auto fresh = make_expectation(i.inputs, row_key_budget);
  fresh->prepare(i.said.arithmetic);
  RunOutputs out(i.inputs, i.session->outputs());
  fresh->ask(out);
  if (std::string reason = out.unwritten(); !reason.empty()) return reason;
  return one_line(objection_of(out, *fresh).reason);
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
