// SPDX-License-Identifier: Apache-2.0
// See compare_rows.hpp.
#include "harness/report/compare_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "harness/report/tally.hpp"

namespace assay {
namespace {

using nlohmann::json;

enum class Level { kSameDevice, kSameBackend, kAnyBackend };
constexpr Level kLevels[] = {Level::kSameDevice, Level::kSameBackend, Level::kAnyBackend};

std::string key(const Row& row, Level level, bool across_kernels, bool with_mode) {
  std::string k = row.scenario;
  const auto add = [&](const std::string& part) { (k += '\x1f') += part; };
  if (!across_kernels) add(row.kernel);
  if (with_mode) add(row.mode());
  if (level != Level::kAnyBackend) add(row.backend);
  if (level == Level::kSameDevice) add(row.device + '\x1f' + row.device_uuid);
  return k;
}

using Pairs = std::vector<std::pair<const Row*, const Row*>>;

// Partners, level by level; what is left of either side goes to the two lists.
Pairs match(const std::vector<const Row*>& base, const std::vector<const Row*>& other, bool across_kernels,
            bool with_mode, std::vector<const Row*>& only_base, std::vector<const Row*>& only_other) {
  std::unordered_map<const Row*, const Row*> partner;
  std::unordered_set<const Row*> taken;
  for (const Level level : kLevels) {
    std::unordered_map<std::string, std::vector<const Row*>> left, right;
    for (const Row* row : base)
      if (!partner.contains(row)) left[key(*row, level, across_kernels, with_mode)].push_back(row);
    for (const Row* row : other)
      if (!taken.contains(row)) right[key(*row, level, across_kernels, with_mode)].push_back(row);
    for (const auto& [k, rows] : left) {
      const auto found = right.find(k);
      if (found == right.end() || rows.size() != 1 || found->second.size() != 1) continue;
      partner[rows[0]] = found->second[0];
      taken.insert(found->second[0]);
    }
  }
  Pairs pairs;
  for (const Row* row : base) {
    if (const auto at = partner.find(row); at != partner.end())
      pairs.emplace_back(row, at->second);
    else
      only_base.push_back(row);
  }
  for (const Row* row : other)
    if (!taken.contains(row)) only_other.push_back(row);
  return pairs;
}

bool timed(const Row& row) {
  return std::isfinite(row.time_us) && row.time_us > 0 && row.outcome != "implausible";
}

// The row that speaks for a case, kernel and device, whose modes have a row each: one that fails, else one
// that was refused, else the first.
std::vector<const Row*> one_per_kernel(std::span<const Row> rows, bool across_kernels) {
  const auto rank = [](const Row& row) { return is_failure(row) ? 2 : row.outcome == "unsupported" ? 1 : 0; };
  std::unordered_map<std::string, size_t> at;
  std::vector<const Row*> chosen;
  for (const Row& row : rows) {
    const auto [found, fresh] =
        at.emplace(key(row, Level::kSameDevice, across_kernels, false), chosen.size());
    if (fresh)
      chosen.push_back(&row);
    else if (rank(row) > rank(*chosen[found->second]))
      chosen[found->second] = &row;
  }
  return chosen;
}

ComparedRow ratio_of(const Row& base, const Row& other) {
  ComparedRow r{&base,
                &other,
                other.time_us / base.time_us,
                other.time_low_us / base.time_high_us,
                other.time_high_us / base.time_low_us,
                other.total_us / base.total_us,
                base.outcome == "noisy" || other.outcome == "noisy"};
  if (std::isfinite(r.low) && std::isfinite(r.high) && r.low > 0) return r;
  r.low = r.high = std::numeric_limits<double>::quiet_NaN();
  return r;
}

json number(double x) { return std::isfinite(x) ? json(x) : json(nullptr); }

json place_of(const Row& row) {
  return {{"scenario", row.scenario}, {"kernel", row.kernel}, {"backend", row.backend},
          {"device", row.device},     {"mode", row.mode()},   {"outcome", row.outcome}};
}

}  // namespace

bool ComparedRow::plans() const {
  return std::isfinite(with_plan) && (base->total_us > base->time_us || other->total_us > other->time_us);
}

RowComparison compare_rows(std::span<const Row> base, std::span<const Row> other,
                           const CompareOptions& options) {
  RowComparison c;
  std::vector<const Row*> base_timed, other_timed, ignored;
  for (const Row& row : base)
    if (timed(row)) base_timed.push_back(&row);
  for (const Row& row : other)
    if (timed(row)) other_timed.push_back(&row);
  for (const auto& [b, o] : match(base_timed, other_timed, options.across_kernels, true, ignored, ignored))
    c.rows.push_back(ratio_of(*b, *o));

  std::unordered_map<std::string, size_t> at;
  std::vector<double> logs, logs_with_plan;
  for (const ComparedRow& r : c.rows) {
    const std::string name = options.group(*r.base);
    const auto [found, fresh] = at.emplace(name, c.groups.size());
    if (fresh) {
      c.groups.push_back({.name = name});
      logs.push_back(0), logs_with_plan.push_back(0);
    }
    ComparedGroup& g = c.groups[found->second];
    ++g.rows;
    g.faster += r.verdict() < 0;
    g.slower += r.verdict() > 0;
    g.noisy += r.noisy;
    logs[found->second] += std::log(r.ratio);
    logs_with_plan[found->second] += std::log(std::isfinite(r.with_plan) ? r.with_plan : r.ratio);
    if (!g.best || r.ratio < g.best->ratio) g.best = &r;
    if (!g.worst || r.ratio > g.worst->ratio) g.worst = &r;
  }
  for (size_t i = 0; i < c.groups.size(); ++i) {
    const auto rows = static_cast<double>(c.groups[i].rows);
    c.groups[i].geomean = std::exp(logs[i] / rows);
    c.groups[i].with_plan = std::exp(logs_with_plan[i] / rows);
  }

  for (const auto& [b, o] :
       match(one_per_kernel(base, options.across_kernels), one_per_kernel(other, options.across_kernels),
             options.across_kernels, false, c.only_base, c.only_other))
    if (b->outcome != o->outcome) c.changes.push_back({b, o});
  return c;
}

json json_of(const RowComparison& c, bool by_ratio) {
  std::vector<ComparedRow> compared = c.rows;
  if (by_ratio)
    std::stable_sort(compared.begin(), compared.end(),
                     [](const auto& a, const auto& b) { return a.ratio > b.ratio; });
  json rows = json::array(), groups = json::array(), changes = json::array(), only_base = json::array(),
       only_other = json::array();
  for (const ComparedRow& r : compared) {
    json row = place_of(*r.base);
    row["baseline_us"] = r.base->time_us;
    row["time_us"] = r.other->time_us;
    row["ratio"] = r.ratio;
    row["ratio_low"] = number(r.low);
    row["ratio_high"] = number(r.high);
    row["ratio_with_plan"] = number(r.with_plan);
    row["noisy"] = r.noisy;
    row["other"] = place_of(*r.other);
    rows.push_back(row);
  }
  for (const ComparedGroup& g : c.groups)
    groups.push_back({{"group", g.name},
                      {"rows", g.rows},
                      {"geometric_mean", g.geomean},
                      {"geometric_mean_with_plan", number(g.with_plan)},
                      {"noisy", g.noisy},
                      {"faster", g.faster},
                      {"slower", g.slower},
                      {"best", {{"ratio", g.best->ratio}, {"row", place_of(*g.best->base)}}},
                      {"worst", {{"ratio", g.worst->ratio}, {"row", place_of(*g.worst->base)}}}});
  for (const OutcomeChange& change : c.changes)
    changes.push_back({{"baseline", place_of(*change.base)},
                       {"other", place_of(*change.other)},
                       {"reason", change.other->reason}});
  for (const Row* row : c.only_base) only_base.push_back(place_of(*row));
  for (const Row* row : c.only_other) only_other.push_back(place_of(*row));
  return {{"rows", rows},
          {"groups", groups},
          {"outcome_changes", changes},
          {"only_in_baseline", only_base},
          {"only_in_other", only_other}};
}

}  // namespace assay
