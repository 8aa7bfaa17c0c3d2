// SPDX-License-Identifier: Apache-2.0
// See summary.hpp. The order is the order of interest: did it pass, what failed, then everything.
#include "harness/report/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/report/devices.hpp"
#include "harness/report/looseness.hpp"
#include "harness/report/table.hpp"
#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

// Text inside a table cell or a paragraph, never markup.
std::string inline_text(std::string_view s) {
  std::string out;
  for (char c : clean_text(s)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (std::string_view("|*_`[]\\#").find(c) != std::string_view::npos)
      (out += '\\') += c;
    else
      out += c;
  }
  return out;
}

// A fence longer than any run of backticks inside, so that the text cannot end its own block.
std::string code_block(const std::string& text) {
  size_t longest = 2, run = 0;
  for (char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fence + "text\n" + text + (text.ends_with('\n') ? "" : "\n") + fence + "\n";
}

// Every kernel, and its features whose bounds are loose.
std::string looseness_section(std::span<const Row> rows) {
  const std::vector<Looseness> all = looseness_of(rows);
  if (all.empty()) return "";
  const auto ratio = [](double x) { return std::isnan(x) ? "-" : fmt::format("{:.3g}", x); };
  std::string text = fmt::format(
      "\n### How near kernels come to their bounds\n\nMedian over cases of the largest ratio in a case, of O "
      "before its rounding and of the LSE: every kernel, and its features below {0:g}. Inputs with a known "
      "answer are left out. Last: how many cases are below, by the first cause that holds.\n\n"
      "| kernel | feature | cases | O | LSE | why below {0:g} |\n"
      "| :-- | :-- | --: | --: | --: | :-- |\n",
      kLooseBelow);
  for (const Looseness& l : all)
    if (l.feature == "all" || l.loose())
      text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", inline_text(l.kernel), inline_text(l.feature),
                          l.cases, ratio(l.o), ratio(l.lse), reason_of(l));
  return text;
}

}  // namespace

std::string summary_markdown(std::span<const Row> rows, const SummaryOptions& options) {
  const Tally tally = tally_of(rows);
  std::string text = fmt::format("## {}\n\n{}\n\n| outcome | rows |\n| :-- | --: |\n",
                                 inline_text(options.title), tally_line(tally));
  for (size_t i = 0; i < kOutcomes.size(); i++)
    if (tally.counts[i] > 0) text += fmt::format("| {} | {} |\n", inline_text(kOutcomes[i]), tally.counts[i]);
  if (tally.unknown > 0) text += fmt::format("| unknown | {} |\n", tally.unknown);

  for (const std::string& line : slow_devices(rows)) text += "\nSlow device: " + inline_text(line) + "\n";

  std::vector<const Row*> failing;
  for (const Row& row : rows)
    if (is_failure(row)) failing.push_back(&row);
  if (!failing.empty()) {
    const std::string more = "\nThe rest is in rows.csv.\n";
    std::string list;
    size_t shown = 0;
    for (const Row* row : failing) {
      std::string entry =
          fmt::format("**{}** {}: {}\n\n", inline_text(row->outcome), inline_text(row->kernel),
                      row->reason.empty() ? "no reason given" : inline_text(row->reason)) +
          code_block(clean_text(row->repeat.empty() ? row->scenario : row->repeat));
      if (shown > 0) entry = "\n" + entry;
      if (shown == options.max_failures || text.size() + list.size() + entry.size() + 200 > options.max_bytes)
        break;
      list += entry;
      shown++;
    }
    text += fmt::format("\n### Failing rows: {} of {} shown\n\n", shown, failing.size()) + list;
    if (shown < failing.size()) text += more;
  }

  const std::string looseness = looseness_section(rows);
  if (text.size() + looseness.size() <= options.max_bytes) text += looseness;

  // All rows, or as many as fit; halving keeps this a handful of tables.
  for (size_t n = rows.size(); n > 0; n /= 2) {
    const std::string block =
        fmt::format("\n<details><summary>{}</summary>\n\n",
                    n == rows.size()
                        ? fmt::format("All {} rows", n)
                        : fmt::format("The first {} of {} rows; the rest is in rows.csv", n, rows.size())) +
        code_block(format_table(rows.subspan(0, n))) + "\n</details>\n";
    if (text.size() + block.size() > options.max_bytes) continue;
    text += block;
    break;
  }
  return text;
}

}  // namespace assay
