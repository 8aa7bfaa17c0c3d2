// SPDX-License-Identifier: Apache-2.0
// See tally.hpp.
#include "harness/report/tally.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

size_t index_of(std::string_view outcome) {
  return static_cast<size_t>(std::find(kOutcomes.begin(), kOutcomes.end(), outcome) - kOutcomes.begin());
}

// "$(printf 'a\\033b')": POSIX has no other spelling of a control character in one printable line. Line
// breaks at the very end are lost ($() drops them); no name here ends in one.
std::string printf_word(std::string_view text) {
  std::string word = "\"$(printf '";
  for (const char c : text) {
    const auto b = static_cast<unsigned char>(c);
    if (b < 0x20 || b >= 0x7F || c == '\'' || c == '\\')
      word += fmt::format("\\{:03o}", b);
    else if (c == '%')
      word += "%%";
    else
      word += c;
  }
  return word + "')\"";
}

}  // namespace

void Tally::add(std::string_view outcome) {
  const size_t i = index_of(outcome);
  (i < counts.size() ? counts[i] : unknown)++;
}

int64_t Tally::of(std::string_view outcome) const {
  const size_t i = index_of(outcome);
  ASSAY_CHECK(i < counts.size(), "no outcome '{}'", outcome);
  return counts[i];
}

int64_t Tally::total() const {
  int64_t sum = unknown;
  for (int64_t count : counts) sum += count;
  return sum;
}

Tally tally_of(std::span<const Row> rows) {
  Tally tally;
  for (const Row& row : rows) {
    tally.add(row.outcome);
    tally.useless += row.outcome == "passed" && !row.class_note.empty();
  }
  return tally;
}

// Behind those that every run has.
constexpr size_t kOfTimedRows = 7;

std::string tally_line(const Tally& tally) {
  std::string line;
  for (size_t i = 0; i < kOutcomes.size(); i++) {
    if (i >= kOfTimedRows && tally.counts[i] == 0) continue;
    std::string name(kOutcomes[i]);
    std::replace(name.begin(), name.end(), '_', ' ');
    line += fmt::format("{}{} {}", i == 0 ? "" : ", ", tally.counts[i], name);
  }
  if (tally.unknown > 0) line += fmt::format(", {} of an unknown outcome", tally.unknown);
  if (tally.useless > 0)
    line += fmt::format("; {} of the passed correct but useless (class gate)", tally.useless);
  return line;
}

bool is_failure(const Row& row) {
  return row.outcome != "passed" && row.outcome != "unsupported" && row.outcome != "noisy";
}

std::string shell_quote(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  if (clean_text(text) != text) return printf_word(text);
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string failures_text(std::span<const Row> rows, size_t most) {
  const auto failing = static_cast<size_t>(std::count_if(rows.begin(), rows.end(), is_failure));
  if (failing == 0) return "";
  std::string text = failing > most ? fmt::format("{} of {} failing rows:\n", most, failing)
                                    : fmt::format("{} failing row{}:\n", failing, failing == 1 ? "" : "s");
  size_t listed = 0;
  for (const Row& row : rows) {
    if (!is_failure(row)) continue;
    if (listed++ == most) break;
    text += clean_text(fmt::format("{:<9} {}  {}", row.outcome, row.kernel, row.scenario)) + "\n";
    text += clean_text("          " + (row.reason.empty() ? "no reason given" : row.reason)) + "\n";
    if (!row.repeat.empty()) text += clean_text("          repeat: " + row.repeat) + "\n";
  }
  if (failing > most) text += fmt::format("{} more are in rows.csv\n", failing - most);
  return text;
}

}  // namespace assay
