// SPDX-License-Identifier: Apache-2.0
// Sizes are found by halving, for each detector; one run of a kernel answers all of them but the statistics,
// which cost more than the run.
#include "harness/power/curves.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/power/power_case.hpp"

namespace assay::power {
namespace {

struct Family {
  std::string name;
  std::vector<const CatalogueEntry*> sizes;  // largest first
};

std::vector<Family> families_of(const Catalogue& c, const std::vector<std::string>& wanted) {
  std::vector<Family> all;
  for (const CatalogueEntry& e : c.faults) {
    if (e.family.empty()) continue;
    auto at = std::find_if(all.begin(), all.end(), [&](const Family& f) { return f.name == e.family; });
    if (at == all.end()) at = all.insert(all.end(), {e.family, {}});
    at->sizes.push_back(&e);
  }
  if (all.empty()) throw InputError("the catalogue has no faults that come in several sizes");
  for (Family& f : all)
    std::sort(f.sizes.begin(), f.sizes.end(), [](auto* a, auto* b) { return a->size > b->size; });
  std::string known;
  for (const Family& f : all) known += (known.empty() ? "" : ", ") + f.name;
  for (const std::string& name : wanted)
    if (std::none_of(all.begin(), all.end(), [&](const Family& f) { return f.name == name; }))
      throw InputError(fmt::format("there is no fault {}; there are: {}", name, known));
  if (!wanted.empty())
    std::erase_if(all, [&](const Family& f) {
      return std::find(wanted.begin(), wanted.end(), f.name) == wanted.end();
    });
  return all;
}

// The smallest of `sizes` (largest first) that is rejected, by halving: whoever sees a fault sees a larger
// one. `rejects` may answer that nobody is asked.
Threshold smallest(const std::vector<const CatalogueEntry*>& sizes,
                   const std::function<Mark(size_t)>& rejects) {
  if (sizes.empty()) return {};
  size_t rejected = 0, accepted = sizes.size();  // those before, those from here on
  for (bool first = true; first || rejected < accepted; first = false) {
    const size_t middle = first ? 0 : (rejected + accepted) / 2;
    const Mark mark = rejects(middle);
    if (mark == Mark::kNotAsked)
      return rejected > 0 ? Threshold{Threshold::kSize, sizes[rejected - 1]->size} : Threshold{};
    if (mark == Mark::kRejects)
      rejected = middle + 1;
    else
      accepted = middle;
    if (accepted == 0) return {Threshold::kNever, 0};
  }
  return {Threshold::kSize, sizes[rejected - 1]->size};
}

template <class Case>
std::vector<const CatalogueEntry*> taken(const Family& family, const Case& by) {
  std::vector<const CatalogueEntry*> sizes;
  for (const CatalogueEntry* e : family.sizes)
    if (by.takes(*e)) sizes.push_back(e);
  return sizes;
}

CurveRow walk(const Family& family, PowerCase& here, PowerCase& again, const Marks& healthy) {
  const std::vector<const CatalogueEntry*> sizes = taken(family, here);
  std::map<size_t, Marks> looks;
  const auto look = [&](size_t i) -> const Marks& {
    const auto known = looks.find(i);
    return known != looks.end() ? known->second : looks.emplace(i, here.look(*sizes[i])).first->second;
  };
  CurveRow row;
  row.fault = family.name;
  for (size_t d = 0; d < kDetectors; ++d) {
    if (healthy[d] == Mark::kRejects)
      row.seen[d] = {Threshold::kRejectsRight, 0};
    else if (d == kAggregates)
      row.seen[d] = smallest(sizes, [&](size_t i) { return here.ask_statistics(*sizes[i], again); });
    else if (healthy[d] != Mark::kNotAsked && d != kOurs)
      row.seen[d] = smallest(sizes, [&](size_t i) { return look(i)[d]; });
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
  return row;
}

// Runs stop when `budget` multiply-adds are used up.
Threshold smallest_missed(const Family& family, IncidenceCase& known, double& budget) {
  const std::vector<const CatalogueEntry*> sizes = taken(family, known);
  return smallest(sizes, [&](size_t i) {
    if (known.cost() > budget) return Mark::kNotAsked;
    budget -= known.cost();
    return known.rejects(*sizes[i]) ? Mark::kRejects : Mark::kAccepts;
  });
}

void ask_known_answers(const Catalogue& c, const std::string& line, double budget,
                       const std::vector<const Family*>& families, std::vector<CurveRow>& found) {
  const CatalogueEntry& right = c.variants.front();
  IncidenceCase known(c, right, line);
  const bool wrong = known.rejects(right);
  for (size_t i = 0; i < families.size(); ++i)
    found[i].seen[kIncidence] =
        wrong ? Threshold{Threshold::kRejectsRight, 0} : smallest_missed(*families[i], known, budget);
}

// Cases of neighbouring draws: one is the other's second look.
struct Draws {
  std::map<int, std::unique_ptr<PowerCase>> kept;
  PowerCase& of(int draw, const std::function<std::unique_ptr<PowerCase>(int)>& make) {
    for (auto at = kept.begin(); at != kept.end();) at = at->first < draw - 1 ? kept.erase(at) : ++at;
    auto& slot = kept[draw];
    if (!slot) slot = make(draw);
    return *slot;
  }
};

}  // namespace

int draws_of(const CurveOptions& o, int64_t keys) {
  if (keys <= 4096) return o.draws;
  return std::max(1, keys <= 16384 ? o.draws / 2 : keys <= 65536 ? o.draws * 3 / 10 : o.draws / 10);
}

bool measure(const Catalogue& c, const CurveOptions& o, const std::set<DrawKey>& done,
             const std::atomic<bool>* stop, const std::function<void(const CurveProgress&)>& on,
             const std::function<void(const std::vector<CurveRow>&)>& rows) {
  if (c.variants.empty()) throw InputError("the catalogue has no kernel without a fault");
  const CatalogueEntry& right = c.variants.front();
  const std::vector<Family> families = families_of(c, o.faults);
  std::vector<const Format*> wanted;
  for (const std::string& name : o.formats) wanted.push_back(&format_named(name));
  CurveProgress progress;
  for (const Format* f : wanted)
    for (int64_t keys : o.keys)
      if (keys <= f->most_keys) progress.total += draws_of(o, keys);
  for (int64_t keys : o.keys)
    for (const Format* format : wanted) {
      if (keys > format->most_keys) continue;
      Draws draws;
      const int count = draws_of(o, keys);
      const auto make = [&](int draw) {
        return std::make_unique<PowerCase>(
            c, right, line_of(*format, keys, o.seed + static_cast<uint64_t>(draw), false));
      };
      for (int draw = 0; draw < count; ++draw, ++progress.done) {
        std::vector<const Family*> left;
        for (const Family& f : families)
          if (!done.contains({format->name, keys, draw, f.name})) left.push_back(&f);
        if (left.empty()) continue;
        const auto say = [&](const std::string& what) {
          progress.where =
              fmt::format("{} {} keys, draw {} of {}, {}", format->name, keys, draw + 1, count, what);
          on(progress);
          return stop != nullptr && stop->load();
        };
        if (say("inputs")) return false;
        PowerCase& here = draws.of(draw, make);
        PowerCase& again = draws.of(draw + 1, make);
        Marks healthy = here.look(right);
        healthy[kAggregates] = here.ask_statistics(right, again);
        std::vector<CurveRow> found;
        for (const Family* f : left) {
          if (say(f->name)) return false;
          found.push_back(walk(*f, here, again, healthy));
          found.back().format = format->name, found.back().keys = keys, found.back().draw = draw;
        }
        if (say("incidence")) return false;
        if (o.incidence_cost > 0)
          ask_known_answers(c, line_of(*format, keys, o.seed + static_cast<uint64_t>(draw), true),
                            o.incidence_cost, left, found);
        rows(found);
      }
    }
  return true;
}

}  // namespace assay::power
