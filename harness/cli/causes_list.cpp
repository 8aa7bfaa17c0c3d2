// SPDX-License-Identifier: Apache-2.0
// See causes_list.hpp. The tables of causes are explain's; here stands only which of them are symptoms, and
// which are said of stages, replays or ranks alone. A cause that stands in none of these lists is one of any
// kernel or step.
#include "harness/cli/causes_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/explain/causes.hpp"
#include "harness/explain/stages/step_causes.hpp"

namespace assay {
namespace {

// What is seen, whatever makes it so.
constexpr std::string_view kSymptoms[] = {
    "output.unwritten",     "output.zeros",         "output.nan",         "output.row_dropped",
    "state.previous_call",  "batch.dependent",      "memory.unused_slot", "memory.out_of_range",
    "memory.guard_written", "memory.input_written", "race.unstable",      "row_missing",
    "rows_beyond",          "beside_rows",          "scale_unwritten",    "list_unwritten",
    "capture_keeps",
};
// Of lists that stages hand on, and of who gets what: nothing that one kernel shows from outside.
constexpr std::string_view kOfStages[] = {
    "last_request_missing", "list_off_by_one", "list_units", "list_order",      "list_base",
    "list_unwritten",       "budget_other",    "left_out",   "threshold_other", "other_operand",
};
constexpr std::string_view kOfReplays[] = {
    "captured_lengths", "captured_starts", "captured_table", "captured_slots", "captured_tree",
    "captured_values",  "captured_extent", "replay_before",  "capture_keeps",
};
constexpr std::string_view kOfRanks[] = {
    "turns_other",       "keys_of_other_rank", "keys_of_all_ranks", "keys_of_longest", "foreign_rows",
    "heads_of_one_rank", "heads_turned",       "total_of_one_rank", "exchange_other",  "sum_scaled",
};

struct Known {
  std::string_view name, meaning;
  bool step = false, symptom = false;
  const char* said = "any";
};

template <size_t N>
bool stands_in(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

std::vector<Known> all_known() {
  std::vector<Known> all;
  for (const Cause& c : causes())
    all.push_back({c.name, c.meaning, false, stands_in(kSymptoms, c.name), "any"});
  for (const StepCause& c : step_causes())
    all.push_back({c.name, c.meaning, true, stands_in(kSymptoms, c.name),
                   stands_in(kOfStages, c.name)    ? "stage"
                   : stands_in(kOfReplays, c.name) ? "replay"
                   : stands_in(kOfRanks, c.name)   ? "ranks"
                                                   : "any"});
  // A name of the lists above that explain no longer has would be said of nothing.
  const auto known = [&](const auto& list) {
    return std::all_of(std::begin(list), std::end(list), [&](std::string_view name) {
      return std::any_of(all.begin(), all.end(), [&](const Known& k) { return k.name == name; });
    });
  };
  ASSAY_CHECK(known(kSymptoms) && known(kOfStages) && known(kOfReplays) && known(kOfRanks),
              "causes_list.cpp names a cause that there is not");
  return all;
}

std::vector<std::string> others_of(std::string_view name) {
  std::vector<std::string> names = with_other_names({std::string(name)});
  names.erase(names.begin());
  return names;
}

struct CauseGroup {
  const char* heading;
  bool step, symptom;
  std::string_view said;
};
constexpr CauseGroup kGroups[] = {
    {"What a kernel of prefill or paged does, and the attention of a step, as a stage or within one kernel:",
     false, false, "any"},
    {"Symptoms: what is seen of these, whatever makes it so:", false, true, "any"},
    {"What a step does, by a stage or as one kernel; \"=\" names the same of a kernel, either is said:", true,
     false, "any"},
    {"Symptoms of a step:", true, true, "any"},
    {"What stages of a step do, or are given; not said of a step that is one kernel:", true, false, "stage"},
    {"Symptoms of stages:", true, true, "stage"},
    {"What a step does when it is replayed:", true, false, "replay"},
    {"Symptoms of replays:", true, true, "replay"},
    {"What a step on several ranks does:", true, false, "ranks"},
};

template <class Take>
void in_order(const Take& take) {
  const std::vector<Known> all = all_known();
  size_t taken = 0;
  for (const CauseGroup& g : kGroups)
    for (bool first = true; const Known& k : all)
      if (k.step == g.step && k.symptom == g.symptom && k.said == g.said)
        take(first ? g.heading : nullptr, k), first = false, ++taken;
  ASSAY_CHECK(taken == all.size(), "{} of {} causes stand in a group", taken, all.size());
}

}  // namespace

std::string causes_text() {
  std::string text;
  in_order([&](const char* heading, const Known& k) {
    if (heading != nullptr) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", heading);
    text += fmt::format("  {:<34} {}", k.name, k.meaning);
    for (const std::string& other : others_of(k.name))
      if (k.step) text += " = " + other;
    text += "\n";
  });
  return text;
}

nlohmann::json causes_json() {
  nlohmann::json list = nlohmann::json::array();
  in_order([&](const char*, const Known& k) {
    list.push_back({{"cause", k.name},
                    {"meaning", k.meaning},
                    {"kind", k.symptom ? "symptom" : "cause"},
                    {"of", k.step ? "step" : "kernel"},
                    {"said", k.said},
                    {"same", others_of(k.name)}});
  });
  return list;
}

}  // namespace assay
