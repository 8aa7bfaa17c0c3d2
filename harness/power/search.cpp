// SPDX-License-Identifier: Apache-2.0
// Sizes are found by halving, for each detector; one run of a kernel answers all of them but the statistics,
// which cost more than the run.
#include "harness/power/search.hpp"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/input/poison.hpp"
#include "harness/mutants/jobs.hpp"
#include "harness/power/power_case.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay::power {
namespace {

// Multiply-adds up to which the families of a draw are searched together: some seconds of a core. More, and
// points in one part come behind dearer ones in parts of their own.
constexpr double kTogether = 2e9;
// Runs of a search on random inputs: every detector halves by itself, and many meet at the same sizes.
constexpr double kRandomRuns = 14;
// Where what was seen with fewer keys is near: of all detectors, and with a known answer.
constexpr double kRandomGuessedRuns = 9, kGuessedRuns = 2;

// The largest, then halves of the others.
int most_asked(size_t sizes) { return sizes == 0 ? 0 : 1 + std::bit_width(sizes - 1); }

template <class Case>
std::vector<const CatalogueEntry*> taken(const Family& family, const Case& by) {
  std::vector<const CatalogueEntry*> sizes;
  for (const CatalogueEntry* e : family.sizes)
    if (by.takes(*e)) sizes.push_back(e);
  return sizes;
}

CurveRow row_of(const Part& part, const Family& family) {
  CurveRow row{part.format->name, family.name, part.keys, part.draw, {}};
  for (Threshold& t : row.seen) t.kind = Threshold::kNotReached;
  return row;
}

// What a size is asked: a look at every element, or the statistics. No size: the kernel without a fault.
struct Question {
  std::optional<size_t> size;
  bool statistics = false;
  auto operator<=>(const Question&) const = default;
};
using Answers = std::map<Question, nlohmann::json>;

// Answers what has no answer yet: here, or in processes that have the case as it is now.
void ask(const std::vector<Question>& questions, int threads,
         const std::function<nlohmann::json(const Question&)>& answer, Answers& answers) {
  std::vector<Job> jobs;
  for (const Question& q : questions) {
    if (answers.contains(q)) continue;
    answers[q] = nullptr;
    if (threads <= 1) {
      answers[q] = answer(q);
      continue;
    }
    Job job;
    job.work = [q, &answer](const SayLine& say) { say({{"answer", answer(q)}}); };
    job.heard = [q, &answers](const nlohmann::json& message) { answers[q] = message.at("answer"); };
    job.ended = [](const JobEnd& end) -> std::optional<Job> {
      // As if this process had been ended for the memory that it takes.
      if (end.how == JobEnd::How::kDied && end.text == "SIGKILL") std::raise(SIGKILL);
      if (end.how != JobEnd::How::kDone) throw InfrastructureError(end.text);
      return std::nullopt;
    };
    jobs.push_back(std::move(job));
  }
  run_jobs(std::move(jobs), threads, kSilent, nullptr, {});
}

// The sizes that are asked now, and while processes are free what may be asked after these.
std::vector<size_t> wanted(const std::vector<Halving*>& halvings, size_t threads) {
  std::vector<size_t> all;
  for (size_t ahead = 1; ahead <= std::max<size_t>(1, threads); ++ahead)
    for (const Halving* h : halvings)
      for (const size_t size : h->may_ask(ahead))
        if ((ahead == 1 || all.size() < threads) && std::find(all.begin(), all.end(), size) == all.end())
          all.push_back(size);
  return all;
}

void answer_all(Halving& halving, const std::function<std::optional<bool>(size_t)>& rejects) {
  while (const std::optional<size_t> at = halving.asks()) {
    const std::optional<bool> known = rejects(*at);
    if (!known) return;
    halving.answer(*known);
  }
}

Mark mark_of(const nlohmann::json& answer, size_t detector) {
  return static_cast<Mark>(answer.at(detector).get<int>());
}
bool is_rejected(const nlohmann::json& answer) { return answer == static_cast<int>(Mark::kRejects); }

class RandomSearch {
 public:
  RandomSearch(const CatalogueEntry& right, const Part& part, const Family& family, PowerCase& here,
               PowerCase& again)
      : right_(right),
        part_(part),
        family_(family),
        here_(here),
        again_(again),
        sizes_(taken(family, here)) {}

  // `healthy`: of the kernel without a fault, the statistics' left to be asked.
  void walk(Marks& healthy, CurveRow& row) {
    std::map<size_t, Halving> halvings;
    for (size_t d = 0; d < kOurs; ++d) halvings.emplace(d, Halving(sizes_, part_.guess(family_, d)));
    for (size_t d = kFirstPeer; d < kDetectors; ++d)
      halvings.emplace(d, Halving(sizes_, part_.guess(family_, d)));
    for (size_t d = 0; d < kDetectors; ++d) {
      if (d == kIncidence) continue;
      row.seen[d] = {};
      if (healthy[d] == Mark::kRejects) row.seen[d] = {Threshold::kRejectsRight, 0};
      if (d != kAggregates && healthy[d] != Mark::kAccepts) halvings.erase(d);
    }
    const bool known = healthy[kAggregates] != Mark::kNotAsked;
    while (!halvings.empty()) {
      ask_next(halvings, known);
      if (!known)
        healthy[kAggregates] = is_rejected(answers_.at({{}, true})) ? Mark::kRejects : Mark::kAccepts;
      if (healthy[kAggregates] == Mark::kRejects) {
        row.seen[kAggregates] = {Threshold::kRejectsRight, 0};
        halvings.erase(kAggregates);
      }
      for (auto& [d, halving] : halvings) {
        answer_all(halving, [&, d = d](size_t size) -> std::optional<bool> {
          const auto at = answers_.find({size, d == kAggregates});
          if (at == answers_.end()) return std::nullopt;
          return d == kAggregates ? is_rejected(at->second) : mark_of(at->second, d) == Mark::kRejects;
        });
        if (!halving.asks()) row.seen[d] = halving.found();
      }
      std::erase_if(halvings, [](const auto& entry) { return !entry.second.asks(); });
    }
  }

 private:
  void ask_next(std::map<size_t, Halving>& halvings, bool known) {
    std::vector<Halving*> statistics, looks;
    for (auto& [d, halving] : halvings) (d == kAggregates ? statistics : looks).push_back(&halving);
    std::vector<Question> questions;
    // The dearest first.
    if (!known) questions.push_back({{}, true});
    for (const size_t size : wanted(statistics, part_.threads > 1 ? 2 : 1)) questions.push_back({size, true});
    for (const size_t size : wanted(looks, 1)) questions.push_back({size, false});
    ask(
        questions, part_.threads,
        [&](const Question& q) -> nlohmann::json {
          const CatalogueEntry& e = q.size ? *sizes_[*q.size] : right_;
          if (q.statistics) return static_cast<int>(here_.ask_statistics(e, again_));
          nlohmann::json marks;
          for (const Mark m : here_.look(e)) marks.push_back(static_cast<int>(m));
          return marks;
        },
        answers_);
  }

  const CatalogueEntry& right_;
  const Part& part_;
  const Family& family_;
  PowerCase &here_, &again_;
  const std::vector<const CatalogueEntry*> sizes_;
  Answers answers_;
};

void see_ours(CurveRow& row) {
  for (size_t d = 0; d < kOurs; ++d) {
    Threshold& ours = row.seen[kOurs];
    const Threshold& t = row.seen[d];
    if (t.kind == Threshold::kRejectsRight || ours.kind == Threshold::kRejectsRight)
      ours = {Threshold::kRejectsRight, 0};
    else if (t.kind == Threshold::kSize && (ours.kind != Threshold::kSize || t.size < ours.size))
      ours = t;
    else if (ours.kind == Threshold::kNotAsked)
      ours = t;
  }
}

void search_random(const Catalogue& c, const Part& part, const std::function<void(const CurveRow&)>& found) {
  const CatalogueEntry& right = c.variants.front();
  PowerCase here(c, right, part.line());
  Part next = part;
  ++next.seed;
  PowerCase again(c, right, next.line());
  Marks healthy = here.look(right);
  for (const Family* family : part.families) {
    CurveRow row = row_of(part, *family);
    RandomSearch(right, part, *family, here, again).walk(healthy, row);
    see_ours(row);
    found(row);
  }
}

void search_known(const Catalogue& c, const Part& part, const std::function<void(const CurveRow&)>& found) {
  const CatalogueEntry& right = c.variants.front();
  IncidenceCase known(c, right, part.line());
  std::optional<bool> wrong;  // the kernel without a fault
  for (const Family* family : part.families) {
    CurveRow row = row_of(part, *family);
    const std::vector<const CatalogueEntry*> sizes = taken(*family, known);
    Halving halving(sizes, part.guess(*family, kIncidence));
    Answers answers;
    while (!wrong || (!*wrong && halving.asks())) {
      std::vector<Question> questions;
      if (!wrong) questions.push_back({});
      const auto free = static_cast<size_t>(part.threads) - questions.size();
      for (const size_t size : wanted({&halving}, free)) questions.push_back({size, false});
      ask(
          questions, part.threads,
          [&](const Question& q) -> nlohmann::json {
            return known.rejects(q.size ? *sizes[*q.size] : right);
          },
          answers);
      if (!wrong) wrong = answers.at({}).get<bool>();
      answer_all(halving, [&](size_t size) -> std::optional<bool> {
        const auto at = answers.find({size, false});
        return at == answers.end() ? std::nullopt : std::optional<bool>(at->second.get<bool>());
      });
    }
    row.seen[kIncidence] = *wrong ? Threshold{Threshold::kRejectsRight, 0} : halving.found();
    found(row);
  }
}

}  // namespace

Halving::Halving(const std::vector<const CatalogueEntry*>& sizes, std::optional<double> guess)
    : sizes_(&sizes), guess_(guess), accepted_(sizes.size()) {}

// Whether only one side of what is looked for is known.
bool Halving::far() const { return guess_ && (smaller_ ? accepted_ == sizes_->size() : rejected_ == 0); }

std::optional<size_t> Halving::asks() const {
  const size_t size = sizes_->size();
  if (rejected_ >= accepted_) return std::nullopt;
  if (!begun_ && !guess_) return 0;
  if (!begun_) {
    const auto at = std::find_if(sizes_->begin(), sizes_->end(), [&](auto* e) { return e->size <= *guess_; });
    return std::min<size_t>(static_cast<size_t>(at - sizes_->begin()), size - 1);
  }
  if (far())
    return smaller_ ? std::min(rejected_ - 1 + step_, size - 1) : accepted_ - std::min(step_, accepted_);
  return (rejected_ + accepted_) / 2;
}

void Halving::answer(bool rejects) {
  const size_t at = asks().value();
  if (begun_ && far()) step_ *= 2;
  if (rejects)
    rejected_ = at + 1;
  else
    accepted_ = at;
  if (!begun_) begun_ = true, smaller_ = rejects;
}

Threshold Halving::found() const {
  if (sizes_->empty()) return {};
  if (accepted_ == 0) return {Threshold::kNever, 0};
  return {Threshold::kSize, (*sizes_)[rejected_ - 1]->size};
}

std::vector<size_t> Halving::may_ask(size_t count) const {
  std::vector<size_t> all;
  std::deque<Halving> open{*this};
  for (; !open.empty() && all.size() < count; open.pop_front()) {
    const std::optional<size_t> at = open.front().asks();
    if (!at) continue;
    if (std::find(all.begin(), all.end(), *at) == all.end()) all.push_back(*at);
    for (const bool rejects : {false, true}) {
      open.push_back(open.front());
      open.back().answer(rejects);
    }
  }
  return all;
}

std::vector<Family> families_of(const Catalogue& c, const std::vector<std::string>& wanted) {
  std::vector<Family> all;
  for (const CatalogueEntry& e : c.faults) {
    if (e.family.empty()) continue;
    auto at = std::find_if(all.begin(), all.end(), [&](const Family& f) { return f.name == e.family; });
    if (at == all.end()) at = all.insert(all.end(), {e.family, {}, false});
    at->sizes.push_back(&e);
    at->in_keys |= e.cause.starts_with("keys.") || e.cause.starts_with("mask.");
  }
  if (all.empty()) throw InputError("the catalogue has no faults that come in several sizes");
  for (Family& f : all)
    std::sort(f.sizes.begin(), f.sizes.end(), [](auto* a, auto* b) { return a->size > b->size; });
  std::string names;
  for (const Family& f : all) names += (names.empty() ? "" : ", ") + f.name;
  for (const std::string& name : wanted)
    if (std::none_of(all.begin(), all.end(), [&](const Family& f) { return f.name == name; }))
      throw InputError(fmt::format("there is no fault {}; there are: {}", name, names));
  if (!wanted.empty())
    std::erase_if(all, [&](const Family& f) {
      return std::find(wanted.begin(), wanted.end(), f.name) == wanted.end();
    });
  return all;
}

std::string Part::line() const {
  const Asks asks = !known ? Asks::kRandom : families.front()->in_keys ? Asks::kEveryKey : Asks::kSomeKeys;
  return line_of(*format, keys, seed, asks);
}

double Part::cost() const {
  double runs = 0;
  for (const Family* f : families)
    if (known)
      runs += guess(*f, kIncidence) ? kGuessedRuns : most_asked(f->sizes.size());
    else
      runs += guess(*f, kTierD) ? kRandomGuessedRuns : kRandomRuns;
  return (runs + 1) * run_cost(make_problem(parse_scenario(line())));
}

std::optional<double> Part::guess(const Family& family, size_t detector) const {
  const auto at = before.find(family.name);
  const Threshold seen = at == before.end() ? Threshold{} : at->second[detector];
  if (seen.kind == Threshold::kSize) return seen.size;
  if (seen.kind == Threshold::kNever) return std::numeric_limits<double>::infinity();
  return std::nullopt;
}

double Part::bytes() const {
  const Problem p = make_problem(parse_scenario(line()));
  // The operands of the host and the device's copy; where an answer is computed, those of the second look
  // too, a copy on the way, and K, K^T and V of one request and head in double.
  if (known) return 2 * laid_out_bytes(p);
  return 5 * laid_out_bytes(p) + 8.0 * p.max_kv_len() * (2 * p.head_dim_qk + p.head_dim_v);
}

std::vector<Part> parts_of(const Format& format, int64_t keys, int draw, uint64_t seed, bool known,
                           const std::vector<const Family*>& families) {
  std::map<std::string, Part> by_line;
  for (const Family* f : families) {
    Part one{&format, keys, draw, seed, known, {f}};
    by_line.try_emplace(one.line(), Part{&format, keys, draw, seed, known, {}})
        .first->second.families.push_back(f);
  }
  std::vector<Part> all;
  for (const auto& [line, part] : by_line) {
    if (part.cost() <= kTogether) {
      all.push_back(part);
      continue;
    }
    for (const Family* f : part.families) all.push_back({&format, keys, draw, seed, known, {f}});
  }
  return all;
}

void search(const Catalogue& c, const Part& part, const std::function<void(const CurveRow&)>& found) {
  if (part.threads > 1) omp_set_num_threads(part.threads);
  (part.known ? search_known : search_random)(c, part, found);
}

}  // namespace assay::power
