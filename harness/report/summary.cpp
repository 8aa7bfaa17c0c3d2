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

}  // namespace

std::string summary_markdown(std::span<const Row> rows, const SummaryOptions& options) {
  const Tally tally = tally_of(rows);
  std::string text = fmt::format("## {}\n\n{}\n\n| outcome | rows |\n| :-- | --: |\n",
                                 markdown_text(options.title), tally_line(tally));
  for (size_t i = 0; i < kOutcomes.size(); i++)
    if (tally.counts[i] > 0)
      text += fmt::format("| {} | {} |\n", markdown_text(kOutcomes[i]), tally.counts[i]);
  if (tally.unknown > 0) text += fmt::format("| unknown | {} |\n", tally.unknown);

  for (const std::string& line : slow_devices(rows)) text += "\nSlow device: " + markdown_text(line) + "\n";

  std::vector<const Row*> failing;
  for (const Row& row : rows)
    if (is_failure(row)) failing.push_back(&row);
  if (!failing.empty()) {
    const std::string more = "\nThe rest is in rows.csv.\n";
    std::string list;
    size_t shown = 0;
    for (const Row* row : failing) {
      std::string entry =
          fmt::format("**{}** {}: {}\n\n", markdown_text(row->outcome), markdown_text(row->kernel),
                      row->reason.empty() ? "no reason given" : markdown_text(row->reason)) +
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

  std::string looseness = looseness_section(rows);
  if (!looseness.empty()) looseness = "\n### How near kernels come to their bounds\n\n" + looseness;
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
