// SPDX-License-Identifier: Apache-2.0
// Messages of broken rules on random lines: they begin with what the line writes, and ask for nothing that it
// has.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <set>

#include "harness/scenario/fields.hpp"
#include "harness/scenario/random_scenario.hpp"

namespace assay {
namespace {

// Whoever wrote window=20 is not told about mask=causal, which he did not write: the first NAME= of a message
// is of a field that does not stand at its default.
TEST(Rules, MessagesNameFirstWhatTheLineWrites) {
  ScenarioGenerator random(11);
  std::map<std::string_view, int> named;
  std::set<std::string> silent;
  for (int i = 0; i < 60000; ++i) {
    Scenario s = random.any();
    if (i % 4 == 0) s.op = ASSAY_OP_STEP, s.mask = (s.seed & 1) != 0 ? s.mask : int32_t{ASSAY_MASK_CAUSAL};
    if (i % 8 == 0) s.positions = i % 16 == 0 ? kDrawnPositions : 17;
    for (const Rule& rule : rules()) {
      if (rule.holds(s)) continue;
      const std::string text = rule.message(s);
      size_t first = std::string::npos;
      int field = -1;
      for (size_t at = text.find('='); at != std::string::npos; at = text.find('=', at + 1)) {
        size_t begin = at;
        while (begin > 0 && std::isalpha(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
        field = field_index(text.substr(begin, at - begin));
        if (field > 0) first = begin;
        if (first != std::string::npos) break;
      }
      if (first == std::string::npos) continue;
      ++named[rule.name];
      if (fields()[static_cast<size_t>(field)].is_default(s))
        silent.insert(std::string(rule.name) + ": " + text);
    }
  }
  for (const std::string& text : silent) ADD_FAILURE() << text;
  EXPECT_GT(named.size(), 30u);
}

// Whether the field of that name, as the line has it, is already what a message asks for.
bool holds_already(const Scenario& s, const Field& field, const std::string& value) {
  if (value.empty()) return !field.is_default(s);
  std::string is;
  field.print(s, is);
  return is == value;
}

// Fields and values that a message asks for or wants left out: NAME=VALUE, VALUE after "or", or NAME= alone,
// behind a verb of advice and before the next clause.
struct Advice {
  bool leave_out;
  int field;
  std::string value;
};
std::vector<Advice> advice_of(const std::string& text) {
  std::vector<Advice> all;
  enum { kNone, kWants, kLeavesOut } mode = kNone;
  int field = -1;
  bool after_or = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    std::string word = text.substr(at, end - at);
    at = end + 1;
    const bool clause_ends = !word.empty() && (word.back() == ';' || word.back() == ':');
    while (!word.empty() && std::string_view(",;:()").find(word.back()) != std::string_view::npos)
      word.pop_back();
    if (word == "write" || word == "needs" || word == "take" || word == "takes" || word == "add")
      mode = kWants, field = -1;
    else if (word == "leave")
      mode = kLeavesOut, field = -1;
    else if (word == "of" || word == "not" || word == "than" || word == "instead" || word == "as")
      mode = kNone;  // "other than exact", "instead of full", "such as 8q1": not asked for
    const size_t equals = word.find('=');
    if (equals != std::string::npos && field_index(word.substr(0, equals)) > 0) {
      field = field_index(word.substr(0, equals));
      const bool described =
          text.substr(std::min(at, text.size())).starts_with("without");  // "kv= without scales"
      if (mode != kNone && !described) all.push_back({mode == kLeavesOut, field, word.substr(equals + 1)});
    } else if (after_or && mode == kWants && field > 0 && !all.empty() && !word.empty()) {
      Scenario read;  // "table=block or token"
      try {
        fields()[static_cast<size_t>(field)].parse({word, 0}, read);
        all.push_back({false, field, word});
      } catch (const std::exception&) {
      }
    }
    after_or = word == "or";
    if (clause_ends) mode = kNone, field = -1;
  }
  return all;
}

// Nobody is asked for what the line has already, nor told to leave out what it does not have: of several
// conditions of a rule the message names those that do not hold.
TEST(Rules, MessagesAskForNothingThatHolds) {
  ScenarioGenerator random(12);
  std::map<std::string_view, int> asked;
  std::map<std::string, std::string> idle;
  for (int i = 0; i < 60000; ++i) {
    Scenario s = random.any();
    // Parts of two lines: rules that few lines break.
    const Scenario other = random.any();
    for (const Field& field : fields()) {
      if (!random.chance(12)) continue;
      std::string text;
      field.print(other, text);
      field.parse({text, 0}, s);
    }
    if (i % 4 == 0) s.op = ASSAY_OP_STEP;
    if (i % 8 == 0) s.ranks = 2;
    if (i % 16 == 1) s.drafted = 2;
    if (i % 16 == 3) s.encoder_tokens = 5;
    for (const Rule& rule : rules()) {
      if (rule.holds(s)) continue;
      const std::string text = rule.message(s);
      for (const Advice& a : advice_of(text)) {
        ++asked[rule.name];
        const Field& field = fields()[static_cast<size_t>(a.field)];
        if (holds_already(s, field, a.value) == !a.leave_out)
          idle.emplace(fmt::format("{}: {}", rule.name, field.name), fmt::format("{}\n  {}", text, print(s)));
      }
    }
  }
  for (const auto& [what, text] : idle) ADD_FAILURE() << what << "\n  " << text;
  EXPECT_GT(asked.size(), 20u);
}

}  // namespace
}  // namespace assay
