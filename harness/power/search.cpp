// SPDX-License-Identifier: Apache-2.0
// Sizes are found by halving, for each detector; one run of a kernel answers all of them but the statistics,
// which cost more than the run.
#include "harness/power/search.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/input/poison.hpp"
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

void walk(const Part& part, const Family& family, PowerCase& here, PowerCase& again, const Marks& healthy,
          CurveRow& row) {
  const std::vector<const CatalogueEntry*> sizes = taken(family, here);
  std::map<size_t, Marks> looks;
  const auto look = [&](size_t i) -> const Marks& {
    const auto known = looks.find(i);
    return known != looks.end() ? known->second : looks.emplace(i, here.look(*sizes[i])).first->second;
  };
  for (size_t d = 0; d < kDetectors; ++d) {
    if (d == kIncidence) continue;
    row.seen[d] = {};
    if (healthy[d] == Mark::kRejects)
      row.seen[d] = {Threshold::kRejectsRight, 0};
    else if (d == kAggregates)
      row.seen[d] = smallest(
          sizes, [&](size_t i) { return here.ask_statistics(*sizes[i], again) == Mark::kRejects; },
          part.guess(family, d));
    else if (healthy[d] != Mark::kNotAsked && d != kOurs)
      row.seen[d] = smallest(
          sizes, [&](size_t i) { return look(i)[d] == Mark::kRejects; }, part.guess(family, d));
  }
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
  healthy[kAggregates] = here.ask_statistics(right, again);
  for (const Family* family : part.families) {
    CurveRow row = row_of(part, *family);
    walk(part, *family, here, again, healthy, row);
    found(row);
  }
}

void search_known(const Catalogue& c, const Part& part, const std::function<void(const CurveRow&)>& found) {
  const CatalogueEntry& right = c.variants.front();
  IncidenceCase known(c, right, part.line());
  const bool wrong = known.rejects(right);
  for (const Family* family : part.families) {
    CurveRow row = row_of(part, *family);
    const std::vector<const CatalogueEntry*> sizes = taken(*family, known);
    row.seen[kIncidence] = wrong ? Threshold{Threshold::kRejectsRight, 0}
                                 : smallest(
                                       sizes, [&](size_t i) { return known.rejects(*sizes[i]); },
                                       part.guess(*family, kIncidence));
    found(row);
  }
}

}  // namespace

Threshold smallest(const std::vector<const CatalogueEntry*>& sizes,
                   const std::function<bool(size_t)>& rejects, std::optional<double> guess) {
  if (sizes.empty()) return {};
  size_t rejected = 0, accepted = sizes.size();  // those before, those from here on
  const auto ask = [&](size_t at) {
    if (rejects(at))
      rejected = at + 1;
    else
      accepted = at;
  };
  if (!guess) {
    ask(0);
  } else {
    const auto at = std::find_if(sizes.begin(), sizes.end(), [&](auto* e) { return e->size <= *guess; });
    ask(std::min<size_t>(static_cast<size_t>(at - sizes.begin()), sizes.size() - 1));
    const bool smaller = rejected > 0;  // where the other side is looked for, in steps that double
    for (size_t step = 1; rejected < accepted && (smaller ? accepted == sizes.size() : rejected == 0);
         step *= 2)
      ask(smaller ? std::min(rejected - 1 + step, sizes.size() - 1) : accepted - std::min(step, accepted));
  }
  while (rejected < accepted) ask((rejected + accepted) / 2);
  if (accepted == 0) return {Threshold::kNever, 0};
  return {Threshold::kSize, sizes[rejected - 1]->size};
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
  (part.known ? search_known : search_random)(c, part, found);
}

}  // namespace assay::power
