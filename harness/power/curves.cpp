// SPDX-License-Identifier: Apache-2.0
// The whole of a measurement: which parts it has, in which order, which process does which, and what of it
// was reached. The cheapest first, where the n-th draw counts n times its cost: points far and near get their
// first draw before any gets its last.
#include "harness/power/curves.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "harness/base/error.hpp"
#include "harness/mutants/jobs.hpp"
#include "harness/power/search.hpp"

namespace assay::power {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The random half is seen whole or not at all, so one of its detectors stands for it.
bool reached(const CurveRow& r, bool known) {
  return r.seen[known ? kIncidence : kTierD].kind != Threshold::kNotReached;
}

class Measurement {
 public:
  Measurement(const Catalogue& c, const CurveOptions& o, const std::vector<CurveRow>& done,
              const std::atomic<bool>* stop, const std::function<void(const CurveProgress&)>& on,
              const std::function<void(const std::vector<CurveRow>&)>& rows)
      : catalogue_(c), options_(o), stop_(stop), on_(on), rows_(rows), families_(families_of(c, o.faults)) {
    for (const CurveRow& r : done) known_[key_of(r)] = r;
    for (const std::string& name : o.formats)
      for (int64_t keys : o.keys) plan(format_named(name), keys);
    std::stable_sort(parts_.begin(), parts_.end(),
                     [](const Planned& a, const Planned& b) { return a.place < b.place; });
    progress_.total = static_cast<int64_t>(parts_.size());
  }

  bool run() {
    tell_holes();
    std::vector<Job> jobs;
    for (const Planned& p : parts_) jobs.push_back(job_of(p));
    const bool through = run_jobs(std::move(jobs), options_.jobs, kSilent, &halt_, [this] { tick(); });
    return through || late_;
  }

 private:
  struct Planned {
    Part part;
    double cost, bytes, place;
  };

  void plan(const Format& format, int64_t keys) {
    for (int draw = 0; draw < draws_of(options_, keys); ++draw)
      for (const bool known : {false, true}) {
        std::vector<const Family*> missing;
        for (const Family& f : families_) {
          const auto at = known_.find({format.name, keys, draw, f.name});
          if (at == known_.end() || !reached(at->second, known)) missing.push_back(&f);
        }
        if (missing.empty()) continue;
        const uint64_t seed = options_.seed + static_cast<uint64_t>(draw);
        for (Part& part : parts_of(format, keys, draw, seed, known, missing)) {
          part.before = seen_before(format, keys);
          part.threads = options_.threads;
          const double cost = part.cost();
          parts_.push_back({part, cost, part.bytes(), cost * (draw + 1)});
        }
      }
  }

  // By fault, what each detector saw in the longest context below: of a record that is gone on with.
  std::map<std::string, std::array<Threshold, kDetectors>> seen_before(const Format& format,
                                                                       int64_t keys) const {
    std::map<std::string, std::array<Threshold, kDetectors>> all;
    for (const auto& [key, row] : known_)
      if (key.format == format.name && key.keys < keys)
        for (size_t d = 0; d < kDetectors; ++d)
          if (row.seen[d].kind != Threshold::kNotReached) all[key.fault][d] = row.seen[d];
    return all;
  }

  // Of every point that is not in the record: a row that says so until it is measured.
  void tell_holes() {
    std::vector<CurveRow> holes;
    for (const Planned& p : parts_)
      for (const Family* f : p.part.families)
        if (p.part.draw == 0) {
          CurveRow row{p.part.format->name, f->name, p.part.keys, 0, {}};
          for (Threshold& t : row.seen) t.kind = Threshold::kNotReached;
          if (known_.try_emplace(key_of(row), row).second) holes.push_back(row);
        }
    if (!holes.empty()) rows_(holes);
  }

  double left() const { return options_.seconds - since(start_); }

  JobStart may_start(const Planned& p) const {
    if (options_.seconds > 0) {
      if (left() <= 0) return JobStart::kNever;
      const auto pace = pace_.find({p.part.format->name, p.part.known});
      if (pace != pace_.end() && pace->second.second * p.cost > left()) return JobStart::kNever;
    }
    return options_.memory > 0 && held_ + p.bytes > options_.memory ? JobStart::kLater : JobStart::kNow;
  }

  Job job_of(const Planned& p) {
    const auto start = std::make_shared<Clock::time_point>();
    Job job;
    job.may_start = [this, &p, start] {
      const JobStart answer = may_start(p);
      if (answer == JobStart::kNow) held_ += p.bytes, *start = Clock::now();
      return answer;
    };
    job.work = [this, &p](const SayLine& say) {
      search(catalogue_, p.part, [&](const CurveRow& row) { say({{"row", csv_line(row)}}); });
    };
    job.heard = [this, &p](const nlohmann::json& message) { hear(p, message); };
    job.ended = [this, &p, start](const JobEnd& end) {
      held_ = std::max(0.0, held_ - p.bytes);
      after(p, since(*start), end);
      return std::optional<Job>();
    };
    return job;
  }

  void hear(const Planned& p, const nlohmann::json& message) {
    const CurveRow heard = row_of_line(message.at("row").get<std::string>());
    CurveRow& row = known_.try_emplace(key_of(heard), heard).first->second;
    for (size_t d = 0; d < kDetectors; ++d)
      if ((d == kIncidence) == p.part.known) row.seen[d] = heard.seen[d];
    rows_({row});
  }

  void after(const Planned& p, double seconds, const JobEnd& end) {
    ++progress_.done;
    progress_.where = p.part.line();
    // The system ends what takes too much memory; such a part is not reached, and the rest goes on.
    if (end.how == JobEnd::How::kThrew || (end.how == JobEnd::How::kDied && end.text != "SIGKILL"))
      throw InfrastructureError(fmt::format("power: {}: {}", p.part.line(), end.text));
    if (end.how != JobEnd::How::kDone) return;
    auto& [cost, pace] = pace_[{p.part.format->name, p.part.known}];
    if (p.cost >= cost) cost = p.cost, pace = seconds / p.cost;
  }

  void tick() {
    late_ = options_.seconds > 0 && left() <= 0;
    if (late_ || (stop_ != nullptr && *stop_)) halt_ = true;
    on_(progress_);
  }

  const Catalogue& catalogue_;
  const CurveOptions& options_;
  const std::atomic<bool>* stop_;
  const std::function<void(const CurveProgress&)>& on_;
  const std::function<void(const std::vector<CurveRow>&)>& rows_;
  const std::vector<Family> families_;
  std::vector<Planned> parts_;
  std::map<DrawKey, CurveRow> known_;
  std::map<std::pair<std::string, bool>, std::pair<double, double>> pace_;  // (cost, seconds a unit of it)
  double held_ = 0;                                                         // bytes
  std::atomic<bool> halt_ = false;
  bool late_ = false;
  CurveProgress progress_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

int draws_of(const CurveOptions& o, int64_t keys) {
  if (keys <= 4096) return o.draws;
  return std::max(1, keys <= 16384 ? o.draws / 2 : keys <= 65536 ? o.draws * 3 / 10 : o.draws / 10);
}

DrawKey key_of(const CurveRow& r) { return {r.format, r.keys, r.draw, r.fault}; }

bool measure(const Catalogue& c, const CurveOptions& o, const std::vector<CurveRow>& done,
             const std::atomic<bool>* stop, const std::function<void(const CurveProgress&)>& on,
             const std::function<void(const std::vector<CurveRow>&)>& rows) {
  if (c.variants.empty()) throw InputError("the catalogue has no kernel without a fault");
  return Measurement(c, o, done, stop, on, rows).run();
}

void sort_curves(std::vector<CurveRow>& rows, const Catalogue& c) {
  const auto place = [&](const CurveRow& r) {
    const auto format =
        std::find_if(formats().begin(), formats().end(), [&](const Format& f) { return f.name == r.format; });
    const auto fault =
        std::find_if(c.faults.begin(), c.faults.end(), [&](auto& e) { return e.family == r.fault; });
    return std::tuple(r.keys, format - formats().begin(), r.draw, fault - c.faults.begin());
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const CurveRow& a, const CurveRow& b) { return place(a) < place(b); });
}

}  // namespace assay::power
