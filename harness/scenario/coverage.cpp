// SPDX-License-Identifier: Apache-2.0
// See coverage.hpp. A combination can be when the language takes a line with the words of all its values; a
// value that other values decide (a scale needs its format) brings them in its words.
#include "harness/scenario/coverage.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "harness/problem/names.hpp"
#include "harness/scenario/coverage_tables.hpp"

namespace assay {
namespace {

bool cached(std::string_view field) {
  return field == "page" || field == "layout" || field == "table" || field == "storage" || field == "slots";
}

// Whether the language takes all of them in one line of the op.
bool possible(std::string_view op, std::initializer_list<int> values) {
  std::string line(op);
  std::set<std::string_view> said;
  const auto add = [&](std::string_view words) {
    while (!words.empty()) {
      const size_t end = std::min(words.find(' '), words.size());
      const std::string_view word = words.substr(0, end);
      words.remove_prefix(std::min(end + 1, words.size()));
      if (!said.insert(word.substr(0, word.find('='))).second) return false;
      line += fmt::format(" {}", word);
    }
    return true;
  };
  for (const int v : values)
    if (!add(cover_values()[v].words)) return false;
  for (const char* plain : {"h=4/2", "d=64"})
    if (!said.contains(std::string_view(plain).substr(0, 1))) line += fmt::format(" {}", plain);
  try {
    const Scenario s = parse_scenario(line + " batch=2q3s20");
    return std::all_of(values.begin(), values.end(), [&](int v) { return cover_values()[v].in(s); });
  } catch (const InputError&) {
    return false;
  }
}

std::string name_of_value(int v) {
  return fmt::format("{}={}", cover_values()[v].field, cover_values()[v].value);
}

}  // namespace

const std::vector<CoverBoundary>& cover_boundaries() {
  static const std::vector<CoverBoundary> all = [] {
    std::vector<CoverBoundary> both = size_boundaries();
    for (CoverBoundary& b : number_boundaries()) both.push_back(std::move(b));
    return both;
  }();
  return all;
}

Coverage::Coverage() {
  for (const Op* op : all_ops())
    if (op->whole_context) ops_.push_back({op->id, {}, 0});
  for (const CoverBoundary& b : cover_boundaries()) beyond_.emplace_back(b.limits.size(), 0);
}

void Coverage::add(const Scenario& s) {
  const bool whole_context = op_of(s.op).whole_context;
  std::optional<Problem> p;
  const std::vector<CoverBoundary>& boundaries = cover_boundaries();
  for (size_t b = 0; b < boundaries.size(); ++b) {
    if (boundaries[b].op == kWholeContext ? !whole_context : boundaries[b].op != s.op) continue;
    if (!p) p = make_problem(s);
    const int64_t size = boundaries[b].of(s, *p);
    for (size_t l = 0; l < boundaries[b].limits.size(); ++l) beyond_[b][l] += size > boundaries[b].limits[l];
  }
  for (OfOp& of : ops_) {
    if (of.op != s.op) continue;
    ++of.count;
    std::vector<uint16_t> values;
    for (size_t v = 0; v < cover_values().size(); ++v)
      if (cover_values()[v].in(s) && (op_of(s.op).has_cache || !cached(cover_values()[v].field)))
        values.push_back(static_cast<uint16_t>(v));
    of.cases.push_back(std::move(values));
  }
}

CoverageReport Coverage::report() const {
  CoverageReport report;
  const int n = static_cast<int>(cover_values().size());
  for (const OfOp& of : ops_) {
    CoverageOfOp& out = report.ops.emplace_back();
    out.op = std::string(op_of(of.op).name);
    out.cases = of.count;
    std::set<std::vector<uint16_t>> distinct(of.cases.begin(), of.cases.end());
    std::vector<char> one(n, 0), two(n * n, 0), three(static_cast<size_t>(n) * n * n, 0);
    for (const std::vector<uint16_t>& values : distinct)
      for (size_t i = 0; i < values.size(); ++i) {
        one[values[i]] = 1;
        for (size_t j = i + 1; j < values.size(); ++j) {
          two[values[i] * n + values[j]] = 1;
          for (size_t k = j + 1; k < values.size(); ++k)
            three[(static_cast<size_t>(values[i]) * n + values[j]) * n + values[k]] = 1;
        }
      }
    const auto apart = [](int a, int b) { return cover_values()[a].field != cover_values()[b].field; };
    std::vector<char> alone(n, 0), together(n * n, 0);
    for (int a = 0; a < n; ++a) {
      if (!op_of(of.op).has_cache && cached(cover_values()[a].field)) continue;
      alone[a] = possible(out.op, {a});
      if (alone[a] && !one[a]) out.values_missed.push_back(name_of_value(a));
    }
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b) {
        if (!alone[a] || !alone[b] || !apart(a, b) || !possible(out.op, {a, b})) continue;
        together[a * n + b] = 1;
        ++out.pairs, out.pairs_met += two[a * n + b];
        if (!two[a * n + b] && one[a] && one[b])
          out.pairs_missed.push_back(fmt::format("{}, {}", name_of_value(a), name_of_value(b)));
      }
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b)
        for (int c = b + 1; together[a * n + b] && c < n; ++c) {
          if (!together[a * n + c] || !together[b * n + c] || !possible(out.op, {a, b, c})) continue;
          ++out.triples, out.triples_met += three[(static_cast<size_t>(a) * n + b) * n + c];
        }
  }
  for (size_t b = 0; b < cover_boundaries().size(); ++b)
    for (size_t l = 0; l < cover_boundaries()[b].limits.size(); ++l)
      report.boundaries.push_back(
          {cover_boundaries()[b].what, cover_boundaries()[b].limits[l], beyond_[b][l]});
  return report;
}

}  // namespace assay
