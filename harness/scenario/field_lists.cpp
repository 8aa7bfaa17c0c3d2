// SPDX-License-Identifier: Apache-2.0
// Lists joined by +. One reader serves every such field: it knows the word for "nothing", the accepted
// members, and that a member given twice is a typing error.
#include "harness/scenario/field_lists.hpp"

#include <utility>

#include "harness/problem/names.hpp"

namespace assay {
namespace {

struct StridedName {
  std::string_view text;
  bool StridedOperands::*member;
};
constexpr StridedName kStridedNames[] = {
    {"q", &StridedOperands::q},           {"kv", &StridedOperands::kv},
    {"out", &StridedOperands::out},       {"table", &StridedOperands::table},
    {"scales", &StridedOperands::scales}, {"last", &StridedOperands::last}};

// Calls `add(index)` for every member of the list; it returns false when it was there already.
template <class Add>
void parse_list(Slice s, std::string_view field, std::string_view what, std::string_view nothing,
                const std::vector<std::string_view>& members, const Add& add) {
  if (s.text == nothing) return;
  for (const Slice& part : split_outside_brackets(s, '+')) {
    size_t found = 0;
    while (found < members.size() && members[found] != part.text) ++found;
    if (found == members.size()) {
      std::vector<std::string_view> candidates = {nothing};
      candidates.insert(candidates.end(), members.begin(), members.end());
      throw TextError(
          part.offset,
          fmt::format("{}: unknown {} \"{}\"{}; accepted: {}, or any of {} joined by +", field, what,
                      part.text, did_you_mean(part.text, candidates), nothing, join(members)));
    }
    if (!add(found)) throw TextError(part.offset, fmt::format("{}: \"{}\" is given twice", field, part.text));
  }
}

template <class Has>
void print_list(std::string_view nothing, const std::vector<std::string_view>& members, const Has& has,
                std::string& out) {
  const size_t start = out.size();
  for (size_t i = 0; i < members.size(); ++i) {
    if (!has(i)) continue;
    if (out.size() > start) out += '+';
    out += members[i];
  }
  if (out.size() == start) out += nothing;
}

const std::vector<std::string_view>& strided_members() {
  static const std::vector<std::string_view> members = [] {
    std::vector<std::string_view> list;
    for (const StridedName& name : kStridedNames) list.push_back(name.text);
    return list;
  }();
  return members;
}

const std::vector<std::string_view>& relations() {
  static const std::vector<std::string_view> members = [] {
    std::vector<std::string_view> list;
    for (const Name& name : relation_names()) list.push_back(name.text);
    return list;
  }();
  return members;
}

}  // namespace

void parse_strides(Slice s, Scenario& scenario) {
  scenario.strided = {};
  parse_list(s, "strides", "operand", "packed", strided_members(), [&](size_t i) {
    bool& member = scenario.strided.*(kStridedNames[i].member);
    return !std::exchange(member, true);
  });
}

void print_strides(const Scenario& scenario, std::string& out) {
  print_list(
      "packed", strided_members(), [&](size_t i) { return scenario.strided.*(kStridedNames[i].member); },
      out);
}

void parse_relate(Slice s, Scenario& scenario) {
  scenario.relations = 0;
  parse_list(s, "relate", "relation", "none", relations(), [&](size_t i) {
    const auto bit = static_cast<uint32_t>(relation_names()[i].value);
    const bool fresh = (scenario.relations & bit) == 0;
    scenario.relations |= bit;
    return fresh;
  });
}

void print_relate(const Scenario& scenario, std::string& out) {
  print_list(
      "none", relations(),
      [&](size_t i) { return (scenario.relations & static_cast<uint32_t>(relation_names()[i].value)) != 0; },
      out);
}

}  // namespace assay
