// SPDX-License-Identifier: Apache-2.0
// See table.hpp. How a column shows its numbers follows from its unit: times and rates with four
// significant digits, errors as powers of ten, counts whole. Times and token rates move to a larger
// unit when all their values allow it.
#include "harness/report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "harness/base/error.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

constexpr int kNarrowestScenario = 24;
constexpr std::string_view kColumnGap = "  ";

struct Unit {
  std::string_view from;
  double at_least;  // every value of the column reaches this
  double divisor;
  std::string_view shown;
};
constexpr Unit kUnits[] = {{"us", 1e6, 1e6, "s"},
                           {"us", 1e3, 1e3, "ms"},
                           {"tokens/s", 1e6, 1e6, "Mtok/s"},
                           {"tokens/s", 1e4, 1e3, "ktok/s"}};

struct Column {
  const RowField* field;
  double divisor = 1;
  std::string unit;
  std::vector<std::string> cells;
  int width = 0;
  bool text() const { return std::holds_alternative<std::string Row::*>(field->member); }
};

// Four significant digits (three below 1), without an exponent in the range people read at a glance.
std::string significant(double x) {
  const double magnitude = std::fabs(x);
  if (magnitude == 0) return "0";
  if (magnitude >= 1e9 || magnitude < 1e-3) return fmt::format("{:.2e}", x);
  const int exponent = static_cast<int>(std::floor(std::log10(magnitude)));
  return fmt::format("{:.{}f}", x, exponent >= 0 ? std::max(3 - exponent, 0) : 2 - exponent);
}

std::string show(const Column& column, const Row& row) {
  const RowField& field = *column.field;
  if (auto text = std::get_if<std::string Row::*>(&field.member)) return clean_text(row.**text);
  if (auto integer = std::get_if<int64_t Row::*>(&field.member))
    return row.**integer == -1 ? "-" : std::to_string(row.**integer);
  const double x = row.*std::get<double Row::*>(field.member) / column.divisor;
  if (std::isnan(x)) return "-";
  if (std::isinf(x)) return shortest(x);
  if (field.unit == "%") return fmt::format("{:.1f}", x);
  if (field.name.ends_with("max_error")) return x == 0 ? "0" : fmt::format("{:.1e}", x);
  return significant(x);
}

void choose_unit(Column& column, std::span<const Row> rows) {
  column.unit = column.field->unit;
  auto number = std::get_if<double Row::*>(&column.field->member);
  if (!number) return;
  double least = INFINITY;
  for (const Row& row : rows)
    if (std::isfinite(row.**number)) least = std::min(least, std::fabs(row.**number));
  if (std::isinf(least)) return;
  for (const Unit& unit : kUnits) {
    if (column.unit != unit.from || least < unit.at_least) continue;
    column.divisor = unit.divisor;
    column.unit = unit.shown;
    return;
  }
}

// The unit stands below, and may be ms where the column's name says us.
std::string heading(const RowField& field) {
  if (field.name == "limit_percent") return "of_limit";
  std::string name(field.name);
  for (std::string_view suffix : {"_us", "_per_s", "_s"})
    if (name.ends_with(suffix)) {
      name.resize(name.size() - suffix.size());
      break;
    }
  return name;
}

const RowField& field_named(std::string_view name) {
  const auto fields = row_fields();
  const auto field = std::find_if(fields.begin(), fields.end(), [&](auto& f) { return f.name == name; });
  if (field != fields.end()) return *field;
  std::string known;
  for (const RowField& f : fields) known += (known.empty() ? "" : ", ") + std::string(f.name);
  throw InputError(fmt::format("no column '{}'; expected some of {}", name, known));
}

std::vector<Column> find_columns(const std::vector<std::string>& names) {
  std::vector<Column> columns;
  for (const std::string& name : names) {
    columns.push_back(Column{&field_named(name)});
  }
  return columns;
}

// Rows of one scenario together, in the order in which scenarios first appear.
std::vector<const Row*> grouped(std::span<const Row> rows) {
  std::unordered_map<std::string_view, size_t> rank;
  std::vector<const Row*> order;
  for (const Row& row : rows) {
    rank.emplace(row.scenario, rank.size());
    order.push_back(&row);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](auto* a, auto* b) { return rank[a->scenario] < rank[b->scenario]; });
  return order;
}

// NaN where the row has no value; of the column itself where more is worse, else its negative.
double badness(const Row& row, const RowField& field) {
  if (field.name == "outcome") {
    constexpr std::string_view kWorstLast[] = {"passed",    "noisy",     "unsupported", "invalid",
                                               "untrusted", "timed_out", "crashed",     "implausible"};
    return static_cast<double>(std::find(std::begin(kWorstLast), std::end(kWorstLast), row.outcome) -
                               kWorstLast);
  }
  if (auto integer = std::get_if<int64_t Row::*>(&field.member))
    return row.**integer == -1 ? NAN : static_cast<double>(row.**integer);
  const double x = row.*std::get<double Row::*>(field.member);
  const bool more_is_better = field.name == "tflops" || field.name.ends_with("_per_s") ||
                              field.name == "limit_percent" || field.name == "sm_clock_mhz";
  return more_is_better ? -x : x;
}

void sort_rows(std::vector<const Row*>& rows, std::string_view by) {
  const bool turned = by.starts_with('-');
  const RowField& field = field_named(by.substr(turned));
  const auto text = std::get_if<std::string Row::*>(&field.member);
  std::stable_sort(rows.begin(), rows.end(), [&](const Row* a, const Row* b) {
    if (text && field.name != "outcome") {
      const std::string &x = a->**text, &y = b->**text;
      if (x.empty() || y.empty()) return !x.empty() && y.empty();
      return turned ? y < x : x < y;
    }
    const double x = badness(*a, field), y = badness(*b, field);
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return turned ? x < y : x > y;
  });
}

int total_width(const std::vector<Column>& columns) {
  int width = -static_cast<int>(kColumnGap.size());
  for (const Column& column : columns) width += column.width + static_cast<int>(kColumnGap.size());
  return width;
}

void measure(Column& column) {
  column.width = std::max(display_width(heading(*column.field)), display_width(column.unit));
  for (const std::string& cell : column.cells) column.width = std::max(column.width, display_width(cell));
}

bool never_dropped(std::string_view name) {
  return name == "scenario" || name == "kernel" || name == "outcome";
}

// Makes the table fit; returns the names of columns left out.
std::vector<std::string> fit(std::vector<Column>& columns, int width) {
  std::vector<std::string> dropped;
  auto scenario =
      std::find_if(columns.begin(), columns.end(), [](auto& c) { return c.field->name == "scenario"; });
  const int wide = scenario == columns.end() ? 0 : scenario->width;
  const int narrow = std::min(wide, kNarrowestScenario);
  for (size_t i = columns.size(); i-- > 0 && total_width(columns) - wide + narrow > width;) {
    if (never_dropped(columns[i].field->name)) continue;
    dropped.insert(dropped.begin(), std::string(columns[i].field->name));
    columns.erase(columns.begin() + static_cast<long>(i));
  }
  scenario =
      std::find_if(columns.begin(), columns.end(), [](auto& c) { return c.field->name == "scenario"; });
  const int excess = total_width(columns) - width;
  if (scenario != columns.end() && excess > 0) {
    scenario->cells = shorten_distinct(scenario->cells, std::max(narrow, wide - excess));
    measure(*scenario);
  }
  return dropped;
}

std::string_view color_of(std::string_view outcome) {
  if (outcome == "passed") return "\033[32m";
  if (outcome == "unsupported") return "\033[2m";
  return outcome == "untrusted" || outcome == "noisy" ? "\033[33m" : "\033[31m";
}

void append_cell(std::string& line, const std::string& cell, int width, bool left,
                 std::string_view color = "") {
  const std::string pad(static_cast<size_t>(std::max(0, width - display_width(cell))), ' ');
  if (!left) line += pad;
  if (!color.empty()) line += color;
  line += cell;
  if (!color.empty()) line += "\033[0m";
  if (left) line += pad;
}

void append_line(std::string& text, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
}

}  // namespace

std::vector<std::string> default_columns(std::span<const Row> rows) {
  const bool timed =
      std::any_of(rows.begin(), rows.end(), [](const Row& r) { return !std::isnan(r.time_us); });
  std::vector<std::string> columns;
  if (timed)
    columns = {"scenario",      "kernel",     "outcome", "cache",        "time_us",
               "time_q1_us",    "time_q3_us", "tflops",  "gbytes_per_s", "tokens_per_s",
               "limit_percent", "limit",      "o_ratio", "lse_ratio"};
  else
    columns = {"scenario",  "kernel",  "outcome",      "o_ratio",    "o_max_error",
               "lse_ratio", "o_where", "rows_checked", "rows_total", "case_s"};
  // Columns that are empty in most runs appear when they have something to say.
  const auto any = [&](auto says) { return std::any_of(rows.begin(), rows.end(), says); };
  if (any([](const Row& r) { return !r.batch_invariant.empty(); })) columns.push_back("batch_invariant");
  if (any([](const Row& r) { return !r.contract.empty(); })) columns.push_back("contract");
  if (any([](const Row& r) { return !std::isnan(r.o_ratio_unrounded); }))
    columns.insert(std::find(columns.begin(), columns.end(), "o_ratio") + 1, "o_ratio_unrounded");
  if (any([](const Row& r) { return !r.class_note.empty(); }))
    columns.insert(columns.begin() + 3, "class_note");
  // A plan costs time too.
  if (any([](const Row& r) { return r.total_us > r.time_us; }))
    columns.insert(std::find(columns.begin(), columns.end(), "time_us") + 1, "total_us");
  return columns;
}

std::string format_table(std::span<const Row> rows, const TableOptions& options) {
  if (rows.empty()) return "";
  std::vector<std::string> chosen = options.columns.empty() ? default_columns(rows) : options.columns;
  const std::string sorted_by = options.sort.substr(options.sort.starts_with('-'));
  if (!sorted_by.empty() && std::find(chosen.begin(), chosen.end(), sorted_by) == chosen.end())
    chosen.insert(chosen.begin() + std::min<long>(3, static_cast<long>(chosen.size())), sorted_by);
  std::vector<Column> columns = find_columns(chosen);
  std::vector<const Row*> order = grouped(rows);
  if (!options.sort.empty()) sort_rows(order, options.sort);
  for (Column& column : columns) {
    choose_unit(column, rows);
    for (const Row* row : order) column.cells.push_back(show(column, *row));
    measure(column);
  }
  std::vector<std::string> dropped;
  if (options.width > 0) dropped = fit(columns, options.width);

  std::string text, names, units, rule;
  for (const Column& column : columns) {
    for (std::string* line : {&names, &units, &rule})
      if (&column != &columns.front()) *line += kColumnGap;
    append_cell(names, heading(*column.field), column.width, column.text());
    append_cell(units, column.unit, column.width, column.text());
    rule += std::string(static_cast<size_t>(column.width), '-');
  }
  for (std::string* line : {&names, &units, &rule})
    if (line->find_first_not_of(' ') != std::string::npos) append_line(text, *line);
  for (size_t i = 0; i < order.size(); i++) {
    std::string line;
    for (const Column& column : columns) {
      if (&column != &columns.front()) line += kColumnGap;
      const bool repeated =
          column.field->name == "scenario" && i > 0 && order[i - 1]->scenario == order[i]->scenario;
      const bool colored = options.color && column.field->name == "outcome";
      append_cell(line, repeated ? "" : column.cells[i], column.width, column.text(),
                  colored ? color_of(order[i]->outcome) : "");
    }
    append_line(text, line);
  }
  if (!dropped.empty()) {
    std::string list;
    for (const std::string& name : dropped) list += (list.empty() ? "" : ", ") + name;
    text += fmt::format("left out to fit {} columns, see rows.csv: {}\n", options.width, list);
  }
  return text;
}

}  // namespace assay
