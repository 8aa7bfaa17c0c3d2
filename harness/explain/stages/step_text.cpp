// SPDX-License-Identifier: Apache-2.0
// An explanation of a step in words and as JSON. See explain_step.hpp.
#include <fmt/format.h>

#include <algorithm>

#include "harness/check/verdict.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "harness/explain/stages/same_answer.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr std::pair<StepBlame, const char*> kBlames[] = {
    {StepBlame::kNothing, "nothing"}, {StepBlame::kStage, "stage"},       {StepBlame::kWiring, "wiring"},
    {StepBlame::kEnd, "end"},         {StepBlame::kExchange, "exchange"}, {StepBlame::kUnknown, "unknown"}};

std::string blame_name(StepBlame blame) {
  for (const auto& [value, name] : kBlames)
    if (value == blame) return name;
  return "";
}

constexpr size_t kStepSynonyms = 2;  // that are spelled out

}  // namespace

std::string StepExplanation::where() const {
  std::string text = when.empty() ? "" : "replay ";
  for (const int32_t rank : ranks) text += fmt::format("rank {} ", rank);
  if (blame == StepBlame::kStage) return text + place;
  if (blame == StepBlame::kWiring || blame == StepBlame::kEnd || blame == StepBlame::kExchange)
    return text + blame_name(blame) + " " + place;
  return "";
}

bool StepExplanation::sure() const { return !causes.empty() && causes.front().explained >= kSure; }

bool StepExplanation::known(const std::string& cause) const {
  return std::find(without.begin(), without.end(), cause) == without.end();
}

// How many causes the answer names: the first, those joined to it by "or", those that are the same.
static size_t best_of(const StepExplanation& x) {
  size_t n = x.sure() ? 1 : 0;
  while (n > 0 && n < x.causes.size() &&
         (x.causes[n].same_as_first || stands_beside(x.causes[0], x.causes[n])))
    ++n;
  return n;
}

static json ranked_json(const StepRanked& r) {
  return {{"cause", r.cause},
          {"also", ""},
          {"also_called", r.names},
          {"how", r.how},
          {"misfit", 0},
          {"explained", r.explained},
          {"same_as_first", r.same_as_first},
          {"spoilt", r.spoilt},
          {"ways", r.ways},
          {"whole", r.whole},
          {"meaning", r.meaning.empty() ? step_cause_meaning(r.cause) : r.meaning}};
}

static StepRanked ranked_of(const json& r) {
  StepRanked of{r["cause"], r["how"], r["explained"], r["spoilt"], r["meaning"], r["ways"]};
  of.whole = r["whole"], of.names = r["also_called"], of.same_as_first = r["same_as_first"];
  return of;
}

json explanation_json(const StepExplanation& x) {
  json j = {{"scenario", x.line},
            {"kernel", x.kernel},
            {"outcome", outcome_name(x.outcome)},
            {"outcome_id", static_cast<int>(x.outcome)},
            {"reason", x.reason},
            {"when", x.when},
            {"ranks", x.ranks},
            {"stages", x.stages},
            {"blame", blame_name(x.blame)},
            {"place", x.place},
            {"stage_kernel", x.stage_kernel},
            {"stage_reason", x.stage_reason},
            {"entries", x.entries},
            {"sure", x.sure()},
            {"equally_good", best_of(x)},
            {"explained_there", 1},
            {"seconds", x.seconds},
            {"causes", json::array()},
            {"taken", json::array()}};
  for (const StepRanked& r : x.causes) j["causes"].push_back(ranked_json(r));
  for (const StepRanked& r : x.taken) j["taken"].push_back(ranked_json(r));
  return j;
}

StepExplanation step_explanation(const json& j) {
  StepExplanation x;
  x.line = j["scenario"], x.kernel = j["kernel"];
  x.outcome = static_cast<Outcome>(j["outcome_id"].get<int>());
  x.reason = j["reason"], x.stages = j["stages"], x.place = j["place"];
  x.when = j["when"], x.ranks = j["ranks"].get<std::vector<int32_t>>();
  for (const auto& [value, name] : kBlames)
    if (j["blame"] == name) x.blame = value;
  x.stage_kernel = j["stage_kernel"], x.stage_reason = j["stage_reason"], x.entries = j["entries"];
  x.seconds = j["seconds"];
  for (const json& r : j["causes"]) x.causes.push_back(ranked_of(r));
  for (const json& r : j["taken"]) x.taken.push_back(ranked_of(r));
  return x;
}

std::string explanation_text(const StepExplanation& x, size_t top, bool color) {
  const char *bold = color ? "\033[1m" : "", *red = color ? "\033[31m" : "", *off = color ? "\033[0m" : "";
  std::string text = fmt::format("{}{}{}\nkernel    {}\nverdict   {}{}{}{}\n", bold, x.line, off, x.kernel,
                                 x.outcome == Outcome::kPassed ? "" : red, outcome_name(x.outcome), off,
                                 x.reason.empty() ? "" : ": " + x.reason);
  for (size_t i = 0; i < x.stages.size(); ++i)
    text += fmt::format("{:<9} {}\n", i == 0 ? "stages" : "", x.stages[i]);
  if (x.blame == StepBlame::kNothing) {
    text +=
        x.outcome == Outcome::kPassed ? "nothing to explain: O and the cache lie in their intervals\n" : "";
    return text;
  }
  std::string who = x.when.empty() ? "" : ", " + x.when;
  for (size_t i = 0; i < x.ranks.size(); ++i)
    who += fmt::format("{} {}", i > 0 ? "," : x.ranks.size() > 1 ? ", on ranks" : ", on rank", x.ranks[i]);
  const std::string what =
      x.blame == StepBlame::kStage
          ? fmt::format("stage {}, {}, is wrong on its own inputs", x.place, x.stage_kernel)
      : x.blame == StepBlame::kWiring
          ? fmt::format("every stage is right on its inputs; what is wrong is {}",
                        x.stage_kernel.empty() ? "that " + x.place + " is missing"
                                               : "what stage " + x.place + " is given, or when it runs")
      : x.blame == StepBlame::kExchange
          ? fmt::format("every stage is right on its inputs; what is wrong between ranks is {}", x.place)
      : x.blame == StepBlame::kEnd ? fmt::format("no stage is to blame or seen; of the whole: {}", x.place)
                                   : "neither a stage nor what one was given explains it";
  text += fmt::format("where     {}{}{}{}\n", bold, what, who, off);
  if (x.blame == StepBlame::kUnknown && !x.stage_reason.empty()) text += "          " + x.stage_reason + "\n";
  for (const std::string& entry : x.entries) text += "          " + entry + "\n";
  if (!x.causes.empty()) text += fmt::format("causes    {:>8}  {:<24} {}\n", "explains", "cause", "how");
  for (size_t i = 0; i < x.causes.size() && i < top; ++i)
    text += fmt::format("          {:>7.0f}%  {:<24} {}\n", 100 * x.causes[i].explained, x.causes[i].cause,
                        x.causes[i].how);
  if (!x.sure()) return text + "so        none of the known causes\n";
  const auto meaning = [](const StepRanked& r) {
    return r.meaning.empty() ? step_cause_meaning(r.cause) : r.meaning;
  };
  text += fmt::format("so        {}: {}\n", x.place, meaning(x.causes[0]));
  // What is true of it by its sentence, and what only predicts the same: the plainest of these.
  const auto same = [&](const std::string& name) {
    return std::any_of(x.causes.begin(), x.causes.end(),
                       [&](const StepRanked& r) { return r.same_as_first && r.cause == name; });
  };
  for (const std::string& name : x.causes[0].names)
    if (!same(name))
      text += fmt::format("          which is also called: {} ({})\n", step_cause_meaning(name), name);
  size_t count = 0;
  for (const StepRanked& r : x.causes)
    if (r.same_as_first && ++count <= kStepSynonyms)
      text += fmt::format("          which {} the same as: {} ({})\n",
                          x.beside ? "on all lines asked is" : "here is", meaning(r), r.cause);
  if (count > kStepSynonyms)
    text += fmt::format("          and as {} more of the list above\n", count - kStepSynonyms);
  for (size_t i = 1; i < x.causes.size(); ++i)
    if (stands_beside(x.causes[0], x.causes[i])) text += fmt::format("or        {}\n", meaning(x.causes[i]));
  return text;
}

}  // namespace assay
