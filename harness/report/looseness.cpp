// SPDX-License-Identifier: Apache-2.0
// See looseness.hpp. What decides about looseness is read off the rows: tiers that declined leave worst
// cases, and without a replay the rounding of P is taken at its largest.
#include "harness/report/looseness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>

namespace assay {
namespace {

// Lengths, places and seeds are no features: they say where the data lies, and which.
bool is_feature(const std::string& word) {
  static const std::set<std::string> places = {"batch", "seed",   "page", "table", "strides", "relate",
                                               "index", "blocks", "d",    "h",     "storage"};
  const size_t equals = word.find('=');
  return equals != std::string::npos && !places.contains(word.substr(0, equals));
}

bool answer_known(const Row& r) {
  for (const char* recipe : {"input=exact", "input=incidence", "input=dyadic"})
    if ((r.scenario + " ").find(std::string(recipe) + " ") != std::string::npos) return true;
  return false;
}

std::vector<std::string> features_of(const Row& r) {
  std::vector<std::string> all;
  std::istringstream words(r.scenario);
  for (std::string word; words >> word;)
    if (is_feature(word)) all.push_back(word);
  return all;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double x) { return std::isnan(x); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Looseness of(const std::string& kernel, const std::string& feature, const std::vector<const Row*>& rows) {
  Looseness l{kernel, feature, rows.size(), 0, 0};
  std::vector<double> o, lse;
  for (const Row* r : rows) {
    o.push_back(r->o_ratio_unrounded), lse.push_back(r->lse_ratio);
    l.declined += r->p_declined > 0;
    l.unreplayed += r->r_applied == 0;
    l.hidden += r->scenario.find(" out=fp32") == std::string::npos;
  }
  l.o = median(o), l.lse = median(lse);
  return l;
}

}  // namespace

std::vector<Looseness> looseness_of(std::span<const Row> rows, size_t least) {
  std::map<std::string, std::map<std::string, std::vector<const Row*>>> groups;
  for (const Row& r : rows) {
    if (r.outcome != "passed" || (r.op != "paged" && r.op != "prefill") || answer_known(r)) continue;
    groups[r.kernel][""].push_back(&r);
    for (const std::string& feature : features_of(r)) groups[r.kernel][feature].push_back(&r);
  }
  std::vector<Looseness> all;
  for (const auto& [kernel, features] : groups)
    for (const auto& [feature, of_feature] : features)
      if (of_feature.size() >= least)
        all.push_back(of(kernel, feature.empty() ? "all" : feature, of_feature));
  return all;
}

std::string reason_of(const Looseness& l) {
  if (!l.loose()) return "";
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  if (l.o < kLooseBelow && 2 * l.hidden >= l.cases)
    add(fmt::format("O in 16 bits in {} cases: its rounding hides errors below half a step", l.hidden));
  if (2 * l.declined >= l.cases)
    add(fmt::format("tier P declined in rows of {} cases, which leaves worst cases", l.declined));
  if (2 * l.unreplayed >= l.cases) add(fmt::format("nothing is replayed in {} cases", l.unreplayed));
  if (l.lse < kLooseBelow)
    add("LSE: declared errors of exponential and logarithm count whole, the kernel's are smaller");
  return text.empty() ? "systematic terms count whole" : text;
}

}  // namespace assay
