// SPDX-License-Identifier: Apache-2.0
// See looseness.hpp. What decides about the looseness of O is read off each row: an error below half a step
// of a 16-bit output cannot be seen, tiers that declined leave worst cases; otherwise rows say which part of
// the bound is the largest.
#include "harness/report/looseness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "harness/report/text.hpp"

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

double upper_median(std::vector<double> values) {
  std::erase_if(values, [](double x) { return std::isnan(x); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool has_word(const Row& r, const std::string& word) {
  return (r.scenario + " ").find(" " + word + " ") != std::string::npos;
}
// Q's format unless the line says otherwise.
bool fp32_output(const Row& r) {
  return has_word(r, "out=fp32") || (has_word(r, "q=fp32") && r.scenario.find(" out=") == std::string::npos);
}
// With most of the interval due to the rounding of O the largest ratio is near 1, whatever is rounded.
bool hidden(const Row& r) { return !fp32_output(r) && r.o_ratio >= 0.5; }

Looseness of(const std::string& kernel, const std::string& feature, const std::vector<const Row*>& rows) {
  Looseness l{kernel, feature, rows.size(), 0, 0};
  std::vector<double> o, lse;
  for (const Row* r : rows) {
    o.push_back(r->o_ratio_unrounded), lse.push_back(r->lse_ratio);
    if (r->lse_ratio < kLooseBelow) ++l.loose_lse[r->lse_mostly];
    if (!(r->o_ratio_unrounded < kLooseBelow)) continue;
    if (hidden(*r) || r->p_declined > 0)
      ++(hidden(*r) ? l.hidden : l.declined);
    else
      ++(r->r_applied == 0 ? l.unreplayed : l.other)[r->o_mostly];
  }
  l.o = upper_median(o), l.lse = upper_median(lse);
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

namespace {
void add(std::string& text, size_t cases, const std::string& why) {
  if (cases > 0) text += fmt::format("{}{} x {}", text.empty() ? "" : "; ", cases, why);
}
}  // namespace

std::string o_reason(const Looseness& l) {
  std::string text;
  if (!(l.o < kLooseBelow)) return text;
  add(text, l.hidden, "O's rounding hides smaller errors");
  add(text, l.declined, "tier P declined in rows");
  const auto part = [](const std::string& mostly) { return mostly.empty() ? "no bound above 0" : mostly; };
  for (const auto& [mostly, cases] : l.unreplayed) add(text, cases, part(mostly) + ", nothing replayed");
  for (const auto& [mostly, cases] : l.other) add(text, cases, part(mostly));
  return text;
}

std::string lse_reason(const Looseness& l) {
  std::string text;
  if (l.lse < kLooseBelow)
    for (const auto& [part, cases] : l.loose_lse)
      add(text, cases, part.empty() ? "no LSE has a bound above 0" : part);
  return text;
}

std::string looseness_section(std::span<const Row> rows) {
  const std::vector<Looseness> all = looseness_of(rows);
  if (all.empty()) return "";
  const auto ratio = [](double x) { return std::isnan(x) ? "-" : fmt::format("{:.3g}", x); };
  std::string text = fmt::format(
      "Median over cases of the largest ratio in a case, of O before its rounding and of the LSE: every "
      "kernel, and its features below {0:g}. Inputs with a known answer are left out. Last: how many cases "
      "are below; by what most of the bound is, of O where its rounding does not hide errors and tier P "
      "holds (nothing replayed: P is not rounded, or its order is not declared).\n\n"
      "| kernel | feature | cases | O | LSE | O below {0:g} | LSE below {0:g} |\n"
      "| :-- | :-- | --: | --: | --: | :-- | :-- |\n",
      kLooseBelow);
  for (const Looseness& l : all)
    if (l.feature == "all" || l.loose())
      text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", markdown_text(l.kernel),
                          markdown_text(l.feature), l.cases, ratio(l.o), ratio(l.lse), o_reason(l),
                          lse_reason(l));
  return text;
}

}  // namespace assay
