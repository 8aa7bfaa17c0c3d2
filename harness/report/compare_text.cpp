// SPDX-License-Identifier: Apache-2.0
// See compare_text.hpp.
#include "harness/report/compare_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/report/table.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

constexpr int kNarrowest = 24;
constexpr std::string_view kGap = "  ";

std::string ratio_text(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  return ratio >= 100  ? fmt::format("{:.0f}", ratio)
         : ratio >= 10 ? fmt::format("{:.1f}", ratio)
                       : fmt::format("{:.3f}", ratio);
}

std::string time_text(double us) { return us >= 1e4 ? fmt::format("{:.0f}", us) : fmt::format("{:.4g}", us); }

std::string interval_text(const ComparedRow& r) {
  return std::isnan(r.low) ? "-" : fmt::format("{} .. {}", ratio_text(r.low), ratio_text(r.high));
}

std::string verdict_text(const ComparedRow& r) {
  if (r.noisy) return "noisy";
  std::string text = r.verdict() < 0 ? "faster" : r.verdict() > 0 ? "slower" : "";
  if (r.plans() && r.verdict() != 0 && (r.with_plan > 1) != (r.verdict() > 0))
    text += r.with_plan > 1 ? ", slower with its plan" : ", faster with its plan";
  return text;
}

struct Line {
  const Row* base;
  std::vector<const ComparedRow*> cells;  // by column, null where it has no such case
  double worst = 0;
};

std::vector<Line> lines_of(std::span<const CompareColumn> columns) {
  // Rows of the baseline are one array, so their addresses are their order.
  std::map<const Row*, Line> by_row;
  for (size_t i = 0; i < columns.size(); ++i)
    for (const ComparedRow& r : columns[i].comparison->rows) {
      Line& line = by_row[r.base];
      line.base = r.base;
      line.cells.resize(columns.size());
      line.cells[i] = &r;
      line.worst = std::max(line.worst, r.ratio);
    }
  std::vector<Line> lines;
  for (auto& [row, line] : by_row) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

std::string aligned(std::span<const std::vector<std::string>> given, std::span<const size_t> left,
                    int width) {
  std::vector<std::vector<std::string>> lines(given.begin(), given.end());
  if (lines.empty()) return "";
  std::vector<int> widths(lines[0].size());
  const auto measure = [&](size_t c) {
    widths[c] = 0;
    for (const auto& line : lines) widths[c] = std::max(widths[c], display_width(line[c]));
  };
  int total = -static_cast<int>(kGap.size());
  for (size_t c = 0; c < widths.size(); ++c) {
    measure(c);
    total += widths[c] + static_cast<int>(kGap.size());
  }
  if (width > 0 && total > width && widths[0] > kNarrowest) {
    std::vector<std::string> texts;
    for (size_t i = 1; i < lines.size(); ++i) texts.push_back(lines[i][0]);
    texts = shorten_distinct(texts, std::max(kNarrowest, widths[0] - (total - width)));
    for (size_t i = 1; i < lines.size(); ++i) lines[i][0] = texts[i - 1];
    measure(0);
  }
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string pad(static_cast<size_t>(widths[c] - display_width(lines[i][c])), ' ');
      const bool text_column = std::find(left.begin(), left.end(), c) != left.end();
      if (c > 0) line += kGap;
      line += text_column ? lines[i][c] + pad : pad + lines[i][c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    if (i > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c)
      text += (c > 0 ? std::string(kGap) : "") + std::string(static_cast<size_t>(widths[c]), '-');
    text += "\n";
  }
  return text;
}

std::string compare_table(const std::string& baseline, std::span<const CompareColumn> columns,
                          const CompareTextOptions& options) {
  std::vector<Line> lines = lines_of(columns);
  if (lines.empty()) return "";
  if (options.sort_by_ratio)
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Line& a, const Line& b) { return a.worst > b.worst; });
  std::set<std::string> kernels, modes;
  for (const Line& line : lines) {
    kernels.insert(line.base->kernel);
    modes.insert(line.base->mode());
  }
  std::vector<size_t> left = {0};
  std::vector<std::string> heading = {"scenario"};
  const auto text_column = [&](const char* name) {
    left.push_back(heading.size());
    heading.push_back(name);
  };
  if (kernels.size() > 1) text_column("kernel");
  if (modes.size() > 1) text_column("cache");
  const bool single = columns.size() == 1;
  const bool plans = std::any_of(lines.begin(), lines.end(), [](const Line& l) {
    return std::any_of(l.cells.begin(), l.cells.end(),
                       [](const ComparedRow* r) { return r != nullptr && r->plans(); });
  });
  heading.push_back(single ? "baseline us" : clean_text(baseline) + " us");
  if (single) heading.push_back("time us");
  for (const CompareColumn& c : columns) {
    heading.push_back(single ? "ratio" : clean_text(c.name));
    heading.push_back("interval");
    if (plans) heading.push_back("with plan");
    if (single) text_column("");
  }
  std::vector<std::vector<std::string>> cells = {heading};
  for (const Line& line : lines) {
    if (options.limit >= 0 && static_cast<int64_t>(cells.size()) > options.limit) break;
    std::vector<std::string> row = {clean_text(line.base->scenario)};
    if (kernels.size() > 1) row.push_back(clean_text(line.base->kernel));
    if (modes.size() > 1) row.push_back(clean_text(line.base->mode()));
    row.push_back(time_text(line.base->time_us));
    if (single) row.push_back(time_text(line.cells[0]->other->time_us));
    for (const ComparedRow* r : line.cells) {
      row.push_back(r ? ratio_text(r->ratio) : "-");
      row.push_back(r ? interval_text(*r) : "");
      if (plans) row.push_back(r ? ratio_text(r->with_plan) : "");
      if (single) row.push_back(verdict_text(*r));
    }
    cells.push_back(row);
  }
  std::string text = aligned(cells, left, options.width);
  const auto without = [](const ComparedRow* r) { return r != nullptr && std::isnan(r->low); };
  if (std::any_of(lines.begin(), lines.end(),
                  [&](const Line& l) { return std::any_of(l.cells.begin(), l.cells.end(), without); }))
    text += "no interval: one of the two has too few samples for its own\n";
  const auto noisy = [](const ComparedRow* r) { return r != nullptr && r->noisy; };
  const auto noise = std::count_if(lines.begin(), lines.end(), [&](const Line& l) {
    return std::any_of(l.cells.begin(), l.cells.end(), noisy);
  });
  if (noise > 0)
    text += fmt::format("{} case{} too noisy to say which is faster (outcome noisy on a side)\n", noise,
                        noise == 1 ? " is" : "s are");
  if (plans) text += "with plan: ratio of a call whose batch shape is new, plan and refresh included\n";
  if (cells.size() - 1 < lines.size())
    text += fmt::format("{} of {} cases shown (--limit)\n", cells.size() - 1, lines.size());
  return text;
}

std::string group_table(const RowComparison& c, int width) {
  if (c.groups.empty()) return "";
  const bool noisy =
      std::any_of(c.groups.begin(), c.groups.end(), [](const ComparedGroup& g) { return g.noisy > 0; });
  const bool plans =
      std::any_of(c.rows.begin(), c.rows.end(), [](const ComparedRow& r) { return r.plans(); });
  std::vector<std::vector<std::string>> lines = {{"group", "cases", "geometric mean"}};
  if (plans) lines[0].push_back("with plan");
  lines[0].insert(lines[0].end(), {"faster", "slower"});
  if (noisy) lines[0].push_back("noisy");
  lines[0].insert(lines[0].end(), {"best", "worst"});
  for (const ComparedGroup& g : c.groups) {
    lines.push_back({clean_text(g.name), fmt::format("{}", g.rows), ratio_text(g.geomean)});
    std::vector<std::string>& line = lines.back();
    if (plans) line.push_back(ratio_text(g.with_plan));
    line.insert(line.end(), {fmt::format("{}", g.faster), fmt::format("{}", g.slower)});
    if (noisy) line.push_back(fmt::format("{}", g.noisy));
    line.insert(line.end(), {ratio_text(g.best->ratio), ratio_text(g.worst->ratio)});
  }
  const size_t left[] = {0};
  std::string text = aligned(lines, left, width);
  for (const ComparedGroup& g : c.groups) {
    if (g.rows < 2) continue;
    const std::string group = c.groups.size() > 1 ? clean_text(g.name) + ": " : "";
    const auto line = [&](const char* what, const ComparedRow& r) {
      text += fmt::format("{}{} {}  {}  {}\n", group, what, ratio_text(r.ratio), clean_text(r.other->kernel),
                          clean_text(r.base->scenario));
    };
    line("best ", *g.best);
    line("worst", *g.worst);
  }
  return text;
}

}  // namespace assay
