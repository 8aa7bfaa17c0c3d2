// SPDX-License-Identifier: Apache-2.0
// Sizes are found by halving, for each detector; one run of a kernel answers all of them but the statistics,
// which cost more than the run.
#include "harness/power/curves.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/power/power_case.hpp"
#include "harness/scenario/scenario.hpp"

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
// one. Asks most_asked() times at most.
Threshold smallest(const std::vector<const CatalogueEntry*>& sizes,
                   const std::function<bool(size_t)>& rejects) {
  if (sizes.empty()) return {};
  size_t rejected = 0, accepted = sizes.size();  // those before, those from here on
  for (bool first = true; first || rejected < accepted; first = false) {
    const size_t middle = first ? 0 : (rejected + accepted) / 2;
    if (rejects(middle))
      rejected = middle + 1;
    else
      accepted = middle;
    if (accepted == 0) return {Threshold::kNever, 0};
  }
  return {Threshold::kSize, sizes[rejected - 1]->size};
}

// The largest, then halves of the others.
int most_asked(size_t sizes) { return sizes == 0 ? 0 : 1 + std::bit_width(sizes - 1); }

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
      row.seen[d] =
          smallest(sizes, [&](size_t i) { return here.ask_statistics(*sizes[i], again) == Mark::kRejects; });
    else if (healthy[d] != Mark::kNotAsked && d != kOurs)
      row.seen[d] = smallest(sizes, [&](size_t i) { return look(i)[d] == Mark::kRejects; });
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

// What inputs with a known answer say of families, one after the other. The case is built when it is first
// needed, and again for no draw.
class KnownAnswers {
 public:
  KnownAnswers(const Catalogue& c, std::string line, double budget)
      : catalogue_(c), line_(std::move(line)), budget_(budget) {}

  Threshold ask(const Family& family) {
    if (budget_ <= 0) return {};
    const CatalogueEntry& right = catalogue_.variants.front();
    if (!known_) {
      // Before the inputs are made, which takes a while where it costs too much.
      if (known_answer_cost(make_problem(parse_scenario(line_))) > budget_) return {};
      known_ = std::make_unique<IncidenceCase>(catalogue_, right, line_);
    }
    const std::vector<const CatalogueEntry*> sizes = taken(family, *known_);
    if (known_->cost() * most_asked(sizes.size()) > budget_) return {};
    if (!wrong_) wrong_ = known_->rejects(right);
    if (*wrong_) return {Threshold::kRejectsRight, 0};
    return smallest(sizes, [&](size_t i) { return known_->rejects(*sizes[i]); });
  }

 private:
  const Catalogue& catalogue_;
  const std::string line_;
  const double budget_;
  std::unique_ptr<IncidenceCase> known_;
  std::optional<bool> wrong_;  // of the kernel without a fault
};

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

DrawKey key_of(const CurveRow& r) { return {r.format, r.keys, r.draw, r.fault}; }

bool measure(const Catalogue& c, const CurveOptions& o, const std::vector<CurveRow>& done,
             const std::atomic<bool>* stop, const std::function<void(const CurveProgress&)>& on,
             const std::function<void(const std::vector<CurveRow>&)>& rows) {
  if (c.variants.empty()) throw InputError("the catalogue has no kernel without a fault");
  const CatalogueEntry& right = c.variants.front();
  const std::vector<Family> families = families_of(c, o.faults);
  std::map<DrawKey, const CurveRow*> there;
  for (const CurveRow& r : done) there[key_of(r)] = &r;
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
      const auto seed = [&](int draw) { return o.seed + static_cast<uint64_t>(draw); };
      const auto make = [&](int draw) {
        return std::make_unique<PowerCase>(c, right, line_of(*format, keys, seed(draw), false));
      };
      for (int draw = 0; draw < count; ++draw, ++progress.done) {
        const auto say = [&](const std::string& what) {
          progress.where =
              fmt::format("{} {} keys, draw {} of {}, {}", format->name, keys, draw + 1, count, what);
          on(progress);
          return stop != nullptr && stop->load();
        };
        std::vector<CurveRow> found;
        std::vector<const Family*> asked;  // those of `found`
        std::optional<Marks> healthy;
        for (const Family& f : families) {
          const auto at = there.find({format->name, keys, draw, f.name});
          if (at != there.end()) {
            if (o.incidence_cost <= 0 || at->second->seen[kIncidence].kind != Threshold::kNotAsked) continue;
            found.push_back(*at->second);
          } else {
            if (say(healthy ? f.name : "inputs")) return false;
            PowerCase& here = draws.of(draw, make);
            PowerCase& again = draws.of(draw + 1, make);
            if (!healthy) {
              healthy = here.look(right);
              (*healthy)[kAggregates] = here.ask_statistics(right, again);
            }
            found.push_back(walk(f, here, again, *healthy));
            found.back().format = format->name, found.back().keys = keys, found.back().draw = draw;
          }
          asked.push_back(&f);
        }
        KnownAnswers known(c, line_of(*format, keys, seed(draw), true), o.incidence_cost);
        for (size_t i = 0; i < found.size(); ++i) {
          if (say(asked[i]->name + ", known answers")) return false;
          found[i].seen[kIncidence] = known.ask(*asked[i]);
        }
        std::erase_if(found, [&](const CurveRow& r) {
          return there.contains(key_of(r)) && r.seen[kIncidence].kind == Threshold::kNotAsked;
        });
        if (!found.empty()) rows(found);
      }
    }
  return true;
}

}  // namespace assay::power
