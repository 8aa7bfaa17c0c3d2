// SPDX-License-Identifier: Apache-2.0
// Shortening a set of texts without confusing them. Scenario lines begin with what they share (op,
// heads) and often differ in one late field, so several cuts are tried, those keeping the end first.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "harness/base/error.hpp"
#include "harness/report/table.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

// Byte offset of code point n; texts are valid UTF-8 by then (clean_text).
size_t offset(const std::string& s, int n) {
  size_t i = 0;
  for (; n > 0 && i < s.size(); n--) i += std::max<size_t>(utf8_length(std::string_view(s).substr(i)), 1);
  return std::min(i, s.size());
}

std::string cut(const std::string& s, int head, int tail) {
  const int width = display_width(s);
  if (width <= head + 3 + tail) return s;
  return s.substr(0, offset(s, head)) + "..." + s.substr(offset(s, width - tail));
}

}  // namespace

std::vector<std::string> shorten_distinct(std::span<const std::string> texts, int width) {
  ASSAY_CHECK(width >= 16, "width {}", width);
  std::vector<std::string> distinct;
  std::unordered_map<std::string, size_t> index;
  for (const std::string& text : texts)
    if (index.emplace(text, distinct.size()).second) distinct.push_back(text);

  std::vector<std::string> best;
  for (int share : {35, 50, 20, 65, 80, 5}) {  // percent of the kept text that is its beginning
    const int head = std::max(1, (width - 3) * share / 100), tail = width - 3 - head;
    std::vector<std::string> candidate;
    std::unordered_set<std::string> seen;
    for (const std::string& text : distinct) candidate.push_back(cut(text, head, tail));
    for (const std::string& text : candidate) seen.insert(text);
    if (seen.size() == distinct.size()) {
      best = std::move(candidate);
      break;
    }
  }
  if (best.empty()) {  // numbers tell them apart; the order is that of the table
    for (size_t i = 0; i < distinct.size(); i++) {
      const std::string number = fmt::format("#{} ", i + 1);
      const int room = std::max(4, width - display_width(number));
      const int head = std::max(1, (room - 3) * 35 / 100);
      best.push_back(number + cut(distinct[i], head, room - 3 - head));
    }
  }
  std::vector<std::string> result;
  for (const std::string& text : texts) result.push_back(best[index[text]]);
  return result;
}

}  // namespace assay
