// SPDX-License-Identifier: Apache-2.0
// See hunt.hpp. A job is a chunk; when it ends, the next one takes its place. What a process has said counts
// even if it dies: its chunk goes on in a new process behind the suspect that was running.
#include "harness/campaign/hunt.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "harness/mutants/jobs.hpp"

namespace assay::campaign {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Hunt {
 public:
  Hunt(const HuntOptions& o, TotalsFile* file, const std::atomic<bool>* stop,
       const std::function<void(const HuntProgress&)>& on)
      : options_(o), file_(file), stop_(stop), on_(on), suspects_(o.suspects) {
    next_ = static_cast<uint64_t>(o.shard.index - 1);
  }

  HuntResult run() {
    if (file_ != nullptr) done_ = now_ = file_->sum();
    std::vector<Job> jobs;
    for (int i = 0; i < options_.jobs; ++i)
      if (auto job = next_job()) jobs.push_back(std::move(*job));
    HuntResult result;
    result.complete =
        run_jobs(std::move(jobs), options_.jobs, options_.silent_s, stop_, [this] { tell(nullptr); });
    result.totals = std::move(done_);
    result.seconds = since(start_);
    return result;
  }

 private:
  struct Duty {
    uint64_t chunk = 0, line = 0, end = 0;
    int suspect = 0;
    bool running = false;  // a suspect
    bool line_alarmed = false;
    Judging about;                  // the suspect that runs or ran last
    std::optional<Judged> verdict;  // of that suspect, once heard
    Totals totals;
    Clock::time_point start = Clock::now();
  };
  using DutyPointer = std::shared_ptr<Duty>;

  void tell(const Alarm* alarm) { on_({now_, since(start_), alarm}); }

  bool enough() const {
    return (options_.seconds > 0 && since(start_) >= options_.seconds) ||
           (options_.cases > 0 && now_.sum().judged() >= options_.cases);
  }

  std::optional<Job> next_job() {
    const uint64_t all = options_.again.size();
    if (options_.again.empty() && enough()) return std::nullopt;
    while (file_ != nullptr && file_->has(next_)) next_ += static_cast<uint64_t>(options_.shard.count);
    if (!options_.again.empty() && next_ * kLinesPerChunk >= all) return std::nullopt;
    auto duty = std::make_shared<Duty>();
    duty->chunk = next_;
    duty->line = next_ * kLinesPerChunk;
    duty->end = duty->line + kLinesPerChunk;
    if (!options_.again.empty()) duty->end = std::min(duty->end, all);
    next_ += static_cast<uint64_t>(options_.shard.count);
    return job_of(duty);
  }

  Job job_of(const DutyPointer& duty) {
    Job job;
    job.work = [this, duty](const SayLine& line) {
      const Say say = [&line](const Message& m) { line(encode_message(m, "said")); };
      if (options_.again.empty())
        judge_lines(suspects_, options_.draw, duty->line, duty->end, duty->suspect, say);
      else
        judge_recorded(suspects_, options_.again, options_.draw.rows_budget, duty->line, duty->end,
                       duty->suspect, say);
    };
    job.heard = [this, duty](const nlohmann::json& line) {
      Message m;
      decode_message(line, "said", {"a process of the campaign", 0, 0}, m);
      std::visit([&](const auto& said) { hear(*duty, said); }, m);
    };
    job.ended = [this, duty](const JobEnd& end) { return after(duty, end); };
    return job;
  }

  // Said again while the line of an alarm is made smaller.
  void hear(Duty& d, const Judging& about) {
    if (about.line != d.about.line || about.suspect != d.about.suspect || d.about.text.empty())
      d.verdict.reset();
    d.about = about, d.running = true;
  }

  void hear(Duty& d, const Judged& judged) {
    d.verdict = judged;
    d.running = false;
    Counts one;
    if (judged.outcome == outcome_name(Outcome::kPassed)) {
      one.passed = 1;
      one.useless = judged.useless, one.largest = judged.largest, one.unrounded = judged.unrounded;
    } else if (judged.outcome == outcome_name(Outcome::kUnsupported)) {
      one.unsupported = 1;
    } else if (judged.outcome == outcome_name(Outcome::kUntrusted) && judged.check != "bounds") {
      one.untrusted = 1;
      count(d, [&](Totals& t) { ++t.untrusted[judged.reason]; });
    } else {
      one.alarms = 1;
      d.line_alarmed = true;
    }
    count(d, [&](Totals& t) { t.kernels[family_of(judged.kernel)].add(one); });
  }
  void hear(Duty& d, const Unbuilt&) {
    count(d, [](Totals& t) { ++t.unbuilt; });
  }
  void hear(Duty& d, const LineDone& done) {
    count(d, [&](Totals& t) { ++t.lines, t.alarm_lines += d.line_alarmed; });
    d.line = done.line + 1, d.suspect = 0, d.running = d.line_alarmed = false;
  }
  void hear(Duty& d, const Alarm& alarm) {
    d.running = false;
    count(d, [&](Totals& t) { t.alarms.push_back(alarm); });
    tell(&alarm);
  }

  // In the chunk, which counts when it is whole, and in what is shown meanwhile.
  template <class Change>
  void count(Duty& d, const Change& change) {
    change(d.totals);
    change(now_);
  }

  std::optional<Job> after(const DutyPointer& duty, const JobEnd& end) {
    Duty& d = *duty;
    if (end.how == JobEnd::How::kThrew) throw InfrastructureError("campaign: " + end.text);
    if (d.line < d.end) {
      if (!d.running)
        throw InfrastructureError(fmt::format("campaign: a process ended outside any kernel: {}", end.text));
      const Judging about = d.about;
      const bool hung = end.how == JobEnd::How::kSilent;
      const std::string how = hung ? "hung: " + end.text : "crashed: " + end.text;
      if (!d.verdict) {
        Judged died{.kernel = about.kernel, .check = "call"};
        died.outcome = outcome_name(hung ? Outcome::kTimedOut : Outcome::kCrashed);
        hear(d, died);
        hear(d, Alarm{about.text, about.text, about.kernel, about.library, died.outcome, died.check, how});
      } else {
        hear(d, Alarm{about.text, about.text, about.kernel, about.library, d.verdict->outcome,
                      d.verdict->check, "while its line was made smaller, the kernel " + how});
      }
      d.line = about.line, d.suspect = about.suspect + 1;
      d.running = false;
      return job_of(duty);
    }
    d.totals.seconds = since(d.start);
    done_.add(d.totals);
    if (file_ != nullptr) file_->append(d.chunk, d.totals);
    return next_job();
  }

  const HuntOptions& options_;
  TotalsFile* file_;
  const std::atomic<bool>* stop_;
  const std::function<void(const HuntProgress&)>& on_;
  Suspects suspects_;
  uint64_t next_ = 0;
  Totals done_, now_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

HuntResult hunt(const HuntOptions& options, TotalsFile* file, const std::atomic<bool>* stop,
                const std::function<void(const HuntProgress&)>& on) {
  return Hunt(options, file, stop, on).run();
}

}  // namespace assay::campaign
