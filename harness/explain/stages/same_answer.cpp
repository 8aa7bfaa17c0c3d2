// SPDX-License-Identifier: Apache-2.0
// See same_answer.hpp.
#include "harness/explain/stages/same_answer.hpp"

#include <algorithm>

#include "harness/explain/stages/same_words.hpp"

namespace assay {
namespace {

bool says_all(const StepRanked& r) { return r.whole && r.explained >= StepExplanation::kSure; }

void add_name(std::vector<std::string>& names, const std::string& name, const std::string& own) {
  if (name != own && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

}  // namespace

bool stands_beside(const StepRanked& first, const StepRanked& r) {
  return !r.same_as_first && r.explained >= first.explained && r.spoilt <= first.spoilt;
}

void join_same(StepExplanation& x) {
  if (!x.sure()) return;
  StepRanked& first = x.causes.front();
  std::vector<std::string> names = std::move(first.names);
  first.names.clear();
  if (says_all(first))
    for (size_t i = 1; i < x.causes.size(); ++i) {
      StepRanked& r = x.causes[i];
      r.same_as_first = says_all(r) && of_some_rows(r) == of_some_rows(first);
      if (!r.same_as_first || !x.beside) continue;
      names.push_back(r.cause);
      names.insert(names.end(), r.names.begin(), r.names.end());
    }
  names.insert(names.begin(), first.cause);
  for (size_t i = 0; i < names.size(); ++i) {
    for (const std::string& more : said_as_well(names[i])) add_name(names, more, first.cause);
    add_name(first.names, names[i], first.cause);
  }
  // An "or" stands behind the first, then what is the same.
  const auto is_or = [&](const StepRanked& r) { return stands_beside(first, r); };
  const auto behind = std::stable_partition(x.causes.begin() + 1, x.causes.end(), is_or);
  std::stable_partition(behind, x.causes.end(), [](const StepRanked& r) { return r.same_as_first; });
}

std::vector<std::string> same_as_taken(const StepExplanation& x) {
  std::vector<std::string> go;
  if (!x.sure()) return go;
  const StepRanked& first = x.causes.front();
  const bool named = std::any_of(first.names.begin(), first.names.end(),
                                 [&](const std::string& name) { return !x.known(name); });
  if (!named && (x.taken.empty() || !says_all(first))) return go;
  go.push_back(first.cause);
  for (const StepRanked& r : x.causes)
    if (r.same_as_first) go.push_back(r.cause);
  return go;
}

void keep_taken(StepExplanation& x, const StepExplanation& there, bool own_sizes) {
  std::erase_if(x.taken, [&](const StepRanked& r) {
    return std::none_of(there.taken.begin(), there.taken.end(), [&](const StepRanked& t) {
      return t.cause == r.cause && !way_of_both(r, t, own_sizes).empty();
    });
  });
}

}  // namespace assay
