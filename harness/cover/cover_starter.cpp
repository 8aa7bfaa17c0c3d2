// SPDX-License-Identifier: Apache-2.0
// Covering arrays from starter rows. A group acting on the symbols sorts the tuples of a column set into
// orbits; developing a starter row through the group covers the whole orbit of each of its tuples. So it
// is enough that every column set shows every orbit, a much smaller problem, solved here by annealing.
// With the sharply 3-transitive group PGL(2, v-1) and strength 3 there are only the orbits "all different",
// three of "two equal" and "all equal"; a row of only two symbols has a short orbit. Sources: Chateauneuf,
// Colbourn, Kreher, "Covering arrays of strength three" (1999); Meagher, Stevens, "Group construction of
// covering arrays" (2005). To try a further group: one line in groups_for().
#include <algorithm>
#include <climits>
#include <set>

#include "harness/base/error.hpp"
#include "harness/cover/cover_parts.hpp"

namespace assay::cover {
namespace {

struct Group {
  std::vector<Row> maps;
  // Symbols whose constant row is added to the array, so that starters need not show it.
  std::vector<int> constants;
};

std::vector<Row> with_fixed_point(std::vector<Row> maps) {
  for (Row& map : maps) map.push_back(static_cast<int>(map.size()));
  return maps;
}

std::vector<Row> rotations(int n) {
  std::vector<Row> out(n, Row(n));
  for (int g = 0; g < n; ++g)
    for (int x = 0; x < n; ++x) out[g][x] = (x + g) % n;
  return out;
}

std::vector<Group> groups_for(int v, int strength) {
  std::vector<int> all(v);
  for (int x = 0; x < v; ++x) all[x] = x;
  std::vector<Group> out;
  if (strength >= 3 && is_prime_power(v - 1)) out.push_back({projective_group(make_field(v - 1)), all});
  if (strength >= 3 && v >= 4 && is_prime_power(v - 1))
    out.push_back({with_fixed_point(affine_group(make_field(v - 1))), all});
  if (strength >= 3 && v >= 3 && is_prime_power(v)) out.push_back({affine_group(make_field(v)), all});
  out.push_back({rotations(v), {}});
  if (v >= 3) out.push_back({with_fixed_point(rotations(v - 1)), {v - 1}});
  return out;
}

class StarterSearch {
 public:
  StarterSearch(const TupleSpace& space, const Group& group)
      : space_(space), group_(group), v_(space.levels[0]) {
    number_orbits();
    // Rows of two symbols only have the orbit of a pair, which is short in large groups.
    pair_ = {v_ - 1, 0};
    std::set<std::pair<int, int>> images;
    for (const Row& map : group_.maps) images.emplace(map[pair_[0]], map[pair_[1]]);
    full_rows_ = static_cast<int>(group_.maps.size());
    pair_rows_ = static_cast<int>(images.size());
    for (int c = 0; c < space_.columns(); ++c) {
      neighbours_.emplace_back();
      for (const int s : space_.sets_of[c]) {
        const auto& set = space_.sets[s];
        Neighbour n;
        n.counters = s * orbits_;
        for (int i = 0, at = 0; i < space_.strength; ++i)
          if (set.columns[i] == c) {
            n.own_stride = set.strides[i];
          } else {
            n.columns[at] = set.columns[i];
            n.strides[at++] = set.strides[i];
          }
        neighbours_.back().push_back(n);
      }
    }
  }

  // Fewest rows below `best` within the effort; the found starters are kept. The number of full rows that
  // leaves the least to repair is chosen by short runs, then a long run decides. After a success the
  // neighbouring mixes of full and short rows are tried with fewer developed rows, after a failure all
  // mixes again from fresh rows, until the effort is spent.
  bool run(int best, int64_t effort) {
    moves_left_ = effort / static_cast<int64_t>(neighbours_[0].size());
    const int64_t long_run = moves_left_ / kLongRuns, short_run = long_run / 12;
    const int fixed = static_cast<int>(group_.constants.size());
    const bool pairs = pair_rows_ < full_rows_;
    const int most_shorts = pairs ? space_.columns() : 0;
    const auto shorts_for = [&](int full) {
      return pairs ? std::min(most_shorts, (best - 1 - fixed - full * full_rows_) / pair_rows_) : 0;
    };
    bool found = false;
    int low = 1, high = INT_MAX;
    while (moves_left_ > 0) {
      high = std::min(high, (best - 1 - fixed) / full_rows_);
      // Fewer full rows than this and the short ones could not use up the rows allowed.
      low = std::max({low, 1, (best - 1 - fixed - most_shorts * pair_rows_) / full_rows_});
      if (low > high) break;
      int full = high;
      int64_t least = INT64_MAX;
      const int stride = std::max(1, (high - low + 1) / 6);
      for (int f = high; f >= low && high > low; f -= stride) {
        start(f, shorts_for(f));
        anneal(short_run, kShortRunStage);
        if (cost_ >= least) continue;
        least = cost_;
        full = f;
        probed_ = rows_;
      }
      if (high > low) rows_ = probed_;
      const int shorts = shorts_for(full);
      start(full, shorts);
      if (cost_ > 0 && !anneal(long_run, 0)) {
        rows_.clear();  // another attempt, from fresh rows
        low = 1;
        high = INT_MAX;
        continue;
      }
      found = true;
      kept_ = rows_;
      best = fixed + full * full_rows_ + shorts * pair_rows_;
      low = full - 1;
      high = full + 1;
    }
    return found;
  }

  Rows develop() const {
    std::set<Row> out;  // short orbits give a row several times
    for (const int x : group_.constants) out.insert(Row(space_.columns(), x));
    for (const auto& starter : kept_)
      for (const Row& map : group_.maps) {
        Row row;
        for (const int x : starter.symbols) row.push_back(map[x]);
        out.insert(std::move(row));
      }
    return {out.begin(), out.end()};
  }

 private:
  // Measured on 6^14 and 5^7 at strength 3, 3^8 at strength 4: many attempts beat few long ones.
  static constexpr int kLongRuns = 16;
  static constexpr int kShortRunStage = 6;  // short runs start cooler

  struct Starter {
    Row symbols;
    bool pair = false;  // only the two symbols of pair_
  };
  struct Neighbour {
    std::array<int, kMaxStrength> columns{}, strides{};
    int own_stride = 0, counters = 0;
  };

  int64_t counters() const { return static_cast<int64_t>(space_.sets.size()) * orbits_; }

  void number_orbits() {
    const int tuples = space_.sets[0].tuples;
    orbit_.assign(tuples, -1);
    for (int tuple = 0; tuple < tuples; ++tuple) {
      if (orbit_[tuple] >= 0) continue;
      for (const Row& map : group_.maps) {
        int image = 0;
        for (int i = 0; i < space_.strength; ++i) {
          const int stride = space_.sets[0].strides[i];
          image += stride * map[tuple / stride % v_];
        }
        orbit_[image] = orbits_;
      }
      ++orbits_;
    }
    given_.assign(orbits_, 0);
    for (const int x : group_.constants) {
      int tuple = 0;
      for (int i = 0; i < space_.strength; ++i) tuple += space_.sets[0].strides[i] * x;
      given_[orbit_[tuple]] = 1;
    }
  }

  // Keeps rows that are already good: fewer short rows start from the last solution.
  void start(int full, int shorts) {
    std::vector<Starter> fulls, pairs;
    for (auto& row : rows_) (row.pair ? pairs : fulls).push_back(row);
    const auto resize = [&](std::vector<Starter>* list, int n, bool pair) {
      while (static_cast<int>(list->size()) > n)
        list->erase(list->begin() + random_.below(static_cast<int>(list->size())));
      while (static_cast<int>(list->size()) < n) {
        Starter s{Row(space_.columns()), pair};
        for (int& x : s.symbols) x = pair ? pair_[random_.below(2)] : random_.below(v_);
        list->push_back(std::move(s));
      }
    };
    resize(&fulls, full, false);
    resize(&pairs, shorts, true);
    rows_ = std::move(fulls);
    rows_.insert(rows_.end(), pairs.begin(), pairs.end());
    count_.assign(counters(), 0);
    for (size_t s = 0; s < space_.sets.size(); ++s) {
      for (int o = 0; o < orbits_; ++o) count_[s * orbits_ + o] = given_[o];
      for (const Starter& row : rows_) {
        int tuple = 0;
        for (int i = 0; i < space_.strength; ++i)
          tuple += space_.sets[s].strides[i] * row.symbols[space_.sets[s].columns[i]];
        ++count_[s * orbits_ + orbit_[tuple]];
      }
    }
    cost_ = std::count(count_.begin(), count_.end(), 0);
  }

  // Calls use(counter losing one, counter gaining one) for every column set whose orbit changes.
  template <typename Use>
  void changes(const Row& row, int column, int value, Use use) {
    const int before = row[column];
    for (const Neighbour& n : neighbours_[column]) {
      int base = n.strides[0] * row[n.columns[0]];
      for (int i = 1; i + 1 < space_.strength; ++i) base += n.strides[i] * row[n.columns[i]];
      const int from = orbit_[base + n.own_stride * before], to = orbit_[base + n.own_stride * value];
      if (from != to) use(count_[n.counters + from], count_[n.counters + to]);
    }
  }

  // Simulated annealing until every counter is above 0. Acceptance probabilities of one step up fall
  // geometrically from stage to stage; k steps up are accepted with their k-th power.
  bool anneal(int64_t moves, int first_stage) {
    constexpr int kStages = 48;
    double accept_one = 0.35;
    for (int stage = 0; stage < kStages; ++stage, accept_one *= 0.89) {
      if (stage < first_stage) continue;
      uint64_t limit[16];
      double p = 1;
      for (uint64_t& l : limit) {
        l = static_cast<uint64_t>(p * 4294967295.0);
        p *= accept_one;
      }
      for (int64_t i = 0; i < moves / kStages; ++i) {
        if (cost_ == 0) return true;
        --moves_left_;
        Starter& row = rows_[random_.below(static_cast<int>(rows_.size()))];
        const int column = random_.below(space_.columns());
        int value;
        if (row.pair)
          value = row.symbols[column] == pair_[0] ? pair_[1] : pair_[0];
        else
          value = (row.symbols[column] + 1 + random_.below(v_ - 1)) % v_;
        int delta = 0;
        changes(row.symbols, column, value, [&](int& from, int& to) { delta += (from == 1) - (to == 0); });
        if (delta > 0 && (delta > 15 || (random_.bits() >> 32) > limit[delta])) continue;
        changes(row.symbols, column, value, [](int& from, int& to) { --from, ++to; });
        row.symbols[column] = value;
        cost_ += delta;
      }
    }
    return cost_ == 0;
  }

  const TupleSpace& space_;
  Group group_;
  int v_;
  std::vector<int> orbit_;  // per tuple of a column set
  int orbits_ = 0;
  std::vector<int> given_;  // per orbit, 1 = a constant row covers it
  std::array<int, 2> pair_{};
  int full_rows_ = 0, pair_rows_ = 0;  // developed rows per starter
  std::vector<std::vector<Neighbour>> neighbours_;
  std::vector<Starter> rows_, probed_, kept_;
  std::vector<int> count_;  // per column set and orbit
  int64_t cost_ = 0;        // counters at 0
  int64_t moves_left_ = 0;
  Random random_{11};
};

}  // namespace

Rows starter_array(const TupleSpace& space, int rows_below, int64_t effort) {
  const int v = space.levels[0];
  if (v < 2 || space.strength < 2) return {};
  const std::vector<Group> groups = groups_for(v, space.strength);
  Rows best;
  for (const Group& group : groups) {
    if (group.maps.size() * static_cast<size_t>(space.sets[0].tuples) > 20'000'000) continue;
    StarterSearch search(space, group);
    if (!search.run(rows_below, effort / static_cast<int64_t>(groups.size()))) continue;
    best = search.develop();
    rows_below = static_cast<int>(best.size());
  }
  return best;
}

}  // namespace assay::cover
