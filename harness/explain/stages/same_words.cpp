// SPDX-License-Identifier: Apache-2.0
// See same_words.hpp.
#include "harness/explain/stages/same_words.hpp"

#include <algorithm>
#include <cctype>

namespace assay {
namespace {

constexpr std::string_view kIn = ", in ", kAlone = " alone";
constexpr std::string_view kManyNumbers[] = {"lengths_other", "table_other", "keys.head_dropped"};

struct Way {
  std::string what, part;  // "every length #", "decodes"
};

std::string without_numbers(const std::string& text) {
  std::string plain;
  bool number = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    const bool sign = (text[i] == '-' || text[i] == '+') && digit(i + 1);
    const bool in = digit(i) || (number && text[i] == '.' && digit(i + 1)) || (!number && sign);
    if (!in) plain += text[i];
    if (in && !number) plain += '#';
    number = in;
  }
  return plain;
}

Way way_of(const std::string& how) {
  if (!how.ends_with(kAlone)) return {how, ""};
  const size_t at = how.rfind(kIn);
  if (at == std::string::npos) return {how, ""};
  return {how.substr(0, at), how.substr(at + kIn.size())};
}

std::vector<std::string> ways_of(const StepRanked& r) {
  std::vector<std::string> all = {r.how};
  for (const std::string& way : r.ways)
    if (std::find(all.begin(), all.end(), way) == all.end()) all.push_back(way);
  return all;
}

}  // namespace

bool of_many_numbers(const StepRanked& r) {
  return std::find(std::begin(kManyNumbers), std::end(kManyNumbers), r.cause) != std::end(kManyNumbers) &&
         without_numbers(r.how) != r.how;
}

bool of_some_rows(const StepRanked& r) { return !way_of(r.how).part.empty(); }

std::string way_of_both(const StepRanked& here, const StepRanked& there, bool own_sizes) {
  const bool numbers = !own_sizes && of_many_numbers(here);
  if (!numbers && here.how.find(kIn) == std::string::npos) return here.how;
  for (const std::string& own : ways_of(here))
    for (const std::string& other : ways_of(there)) {
      const Way a = way_of(own), b = way_of(other);
      if (a.part != b.part && !b.part.empty()) continue;  // empty: nothing there speaks against it
      if (numbers ? a.what == b.what : without_numbers(a.what) == without_numbers(b.what)) return own;
    }
  return {};
}

bool same_words(const StepRanked& here, const StepRanked& there, bool own_sizes) {
  return here.cause == there.cause && !way_of_both(here, there, own_sizes).empty();
}

}  // namespace assay
