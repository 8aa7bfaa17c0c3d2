// SPDX-License-Identifier: Apache-2.0
// Readers of the two public trace formats. The text is held in memory: traces are a few megabytes, and a
// message can then point at the exact column of the row the CSV or JSON library stumbled over.
// Rows must be in order of arrival, because the replay's queue is first come, first served; a trace that
// is not would silently replay as something else. All broken rows of a file are said at once.
#include "harness/trace/trace.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>

#include "harness/base/files.hpp"
#include "harness/base/input_errors.hpp"
#include "harness/base/json_fields.hpp"

// One thread reads faster than starting a second for files this small, and needs no -pthread.
#define CSV_IO_NO_THREAD
// The header's strncpy of file names cuts on purpose; the compiler warns when it inlines it here.
#pragma GCC diagnostic push
#ifndef __clang__  // knows no such warning
#  pragma GCC diagnostic ignored "-Wstringop-truncation"
#endif
#include <libfccp/csv.h>
#pragma GCC diagnostic pop

namespace assay {
namespace {

constexpr const char* kTime = "TIMESTAMP";
constexpr const char* kContext = "ContextTokens";
constexpr const char* kGenerated = "GeneratedTokens";
constexpr const char* kColumns = "TIMESTAMP, ContextTokens and GeneratedTokens";
constexpr const char* kFields = "timestamp (ms), input_length, output_length and hash_ids";
// The CSV library reads lines of at most 2^24 bytes; a row has 60.
constexpr size_t kLongestLine = 1 << 20;

std::string shown(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 40)) out += (c >= 32 && c < 127) ? c : '?';
  return text.size() > 40 ? out + "..." : out;
}

// Lines by number (from 1), each no earlier than the one asked for before: a file of broken rows is walked
// once.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  std::string_view at(int line) {
    for (; line_ < line; ++line_) {
      const size_t end = rest_.find('\n');
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    }
    return rest_.substr(0, rest_.find('\n'));
  }

 private:
  std::string_view rest_;
  int line_ = 1;
};

// Column (from 1) where the `index`-th comma separated cell of a line starts.
int cell_column(std::string_view line, int index) {
  size_t at = 0;
  for (int i = 0; i < index; ++i) {
    const size_t comma = line.find(',', at);
    if (comma == std::string_view::npos) return static_cast<int>(line.size()) + 1;
    at = comma + 1;
  }
  return static_cast<int>(at) + 1;
}

// Index of a named column in the header; the library has checked that it is there.
int header_index(std::string_view header, std::string_view name) {
  for (int i = 0;; ++i) {
    const size_t comma = header.find(',');
    std::string_view cell = header.substr(0, comma);
    while (!cell.empty() && std::strchr(" \t\r", cell.back())) cell.remove_suffix(1);
    while (!cell.empty() && std::strchr(" \t", cell.front())) cell.remove_prefix(1);
    if (cell == name) return i;
    if (comma == std::string_view::npos) return 0;
    header.remove_prefix(comma + 1);
  }
}

// Fixed-width decimal number inside a timestamp.
std::optional<int> digits(std::string_view& text, int count) {
  if (static_cast<int>(text.size()) < count) return std::nullopt;
  int value = 0;
  for (int i = 0; i < count; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(count);
  return value;
}

bool eat(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

int64_t days_since_epoch(int year, int month, int day) {
  using namespace std::chrono;
  return sys_days{std::chrono::year{year} / month / day}.time_since_epoch().count();
}

// "2023-11-16 18:15:46.6805900", optionally with a UTC offset as in the 2024 traces, in nanoseconds.
// Nanoseconds, not double seconds: seven decimals of a date do not fit a double's 53 bits.
std::optional<int64_t> parse_timestamp(std::string_view text) {
  const auto year = digits(text, 4);
  if (!year || !eat(text, '-')) return std::nullopt;
  const auto month = digits(text, 2);
  if (!month || !eat(text, '-')) return std::nullopt;
  const auto day = digits(text, 2);
  if (!day || !(eat(text, ' ') || eat(text, 'T'))) return std::nullopt;
  const auto hour = digits(text, 2);
  if (!hour || !eat(text, ':')) return std::nullopt;
  const auto minute = digits(text, 2);
  if (!minute || !eat(text, ':')) return std::nullopt;
  const auto second = digits(text, 2);
  if (!second) return std::nullopt;
  int64_t nanos = 0;
  if (eat(text, '.')) {
    int count = 0;
    for (; count < 9 && !text.empty() && text.front() >= '0' && text.front() <= '9'; ++count)
      nanos = nanos * 10 + *digits(text, 1);
    if (count == 0) return std::nullopt;
    for (; count < 9; ++count) nanos *= 10;
  }
  int64_t offset_s = 0;
  const bool plus = eat(text, '+'), minus = !plus && eat(text, '-');
  if (plus || minus) {
    const auto h = digits(text, 2);
    if (!h || !eat(text, ':')) return std::nullopt;
    const auto m = digits(text, 2);
    if (!m || *h > 14 || *m > 59) return std::nullopt;
    offset_s = (*h * 60 + *m) * 60 * (plus ? 1 : -1);
  } else {
    eat(text, 'Z');
  }
  const std::chrono::year_month_day date{std::chrono::year{*year}, std::chrono::month(*month),
                                         std::chrono::day(*day)};
  // 1970..2200 keeps the nanoseconds inside int64.
  if (!text.empty() || !date.ok() || *year < 1970 || *year > 2200 || *hour > 23 || *minute > 59 ||
      *second > 60)
    return std::nullopt;
  const int64_t seconds =
      days_since_epoch(*year, *month, *day) * 86400 + *hour * 3600 + *minute * 60 + *second;
  return (seconds - offset_s) * 1'000'000'000 + nanos;
}

std::optional<int32_t> parse_count(std::string_view text) {
  int64_t value = 0;
  if (text.empty()) return std::nullopt;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
    if (value > kTraceMaxTokens) return std::nullopt;
  }
  if (value < 1) return std::nullopt;
  return static_cast<int32_t>(value);
}

std::string expected_count() { return fmt::format("expected a whole number from 1 to {}", kTraceMaxTokens); }

void check_line_lengths(std::string_view text, const std::string& name, size_t longest) {
  Mistakes all;
  int line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end - at > longest)
      all.add({{name, line, 1}, fmt::format("line of {} bytes; at most {} are accepted", end - at, longest)});
    at = end + 1;
  }
  all.raise();
}

// The message for an unordered row, the same for both formats.
std::string unordered(const char* what) {
  return fmt::format("{} is before the previous row's; expected rows in order of arrival", what);
}

}  // namespace

std::vector<TraceRequest> read_trace_csv(std::string_view text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw InputError({name, 1, 1}, fmt::format("empty; expected a header with {}", kColumns));
  check_line_lengths(text, name, kLongestLine);
  Lines lines(text);
  const std::string_view header = lines.at(1);
  io::CSVReader<3, io::trim_chars<' ', '\t'>, io::no_quote_escape<','>, io::throw_on_overflow,
                io::empty_line_comment>
      rows(name, text.data(), text.data() + text.size());
  try {
    rows.read_header(io::ignore_extra_column, kTime, kContext, kGenerated);
  } catch (const io::error::base& e) {
    throw InputError({name, 1, 1},
                     fmt::format("bad header '{}'; expected the columns {}", shown(header), kColumns));
  }
  std::vector<TraceRequest> out;
  Mistakes wrong;
  std::optional<int64_t> first, previous;
  while (true) {
    char *time = nullptr, *context = nullptr, *generated = nullptr;
    const auto fail = [&](const char* column, const std::string& message) {
      const int line = static_cast<int>(rows.get_file_line());
      wrong.add({{name, line, cell_column(lines.at(line), header_index(header, column))}, message});
    };
    try {
      if (!rows.read_row(time, context, generated)) break;
    } catch (const io::error::base& e) {
      const int line = static_cast<int>(rows.get_file_line());
      const std::string_view row = lines.at(line);
      const auto count = [](std::string_view s) { return 1 + std::count(s.begin(), s.end(), ','); };
      const bool last = row.data() + row.size() == text.data() + text.size();
      wrong.add({{name, line, static_cast<int>(row.size()) + 1},
                 fmt::format("row with {} columns; expected {} as in the header{}", count(row), count(header),
                             last ? " (is the file cut short?)" : "")});
      continue;
    }
    const auto stamp = parse_timestamp(time);
    if (!stamp)
      fail(kTime,
           fmt::format("bad {} '{}'; expected a time like 2023-11-16 18:15:46.6805900", kTime, shown(time)));
    const auto input = parse_count(context);
    if (!input) fail(kContext, fmt::format("bad {} '{}'; {}", kContext, shown(context), expected_count()));
    const auto output = parse_count(generated);
    if (!output)
      fail(kGenerated, fmt::format("bad {} '{}'; {}", kGenerated, shown(generated), expected_count()));
    if (stamp && previous && *stamp < *previous) fail(kTime, unordered(kTime));
    if (stamp) previous = stamp;
    if (!first) first = stamp;
    if (!stamp || !input || !output || !wrong.empty()) continue;
    out.push_back({static_cast<double>(*stamp - *first) * 1e-9, *input, *output, {}});
  }
  wrong.raise();
  if (out.empty()) throw InputError({name, 1, 1}, "no rows after the header; expected at least one request");
  return out;
}

namespace {

// Where a field's name stands in its line, so that the message points at it.
int field_column(std::string_view line, const char* field) {
  const size_t at = line.find(fmt::format("\"{}\"", field));
  return at == std::string_view::npos ? 1 : static_cast<int>(at) + 1;
}

// A whole number in [low, high]; nullopt for any other type, so that 1.5 or "7" is an error, not a cast.
std::optional<int64_t> whole(const nlohmann::json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  const int64_t number = value.get<int64_t>();
  if (number < low || number > high) return std::nullopt;
  return number;
}

struct JsonRow {
  std::optional<int64_t> stamp_ms;  // also of a row that is wrong elsewhere: the next one is held against it
  TraceRequest request;
};

JsonRow parse_json_row(std::string_view line, const SourcePlace& start, Mistakes& wrong) {
  const nlohmann::json row =
      parse_json(line, start, fmt::format("one JSON object per line with {}", kFields));
  if (!row.is_object())
    throw InputError(start, fmt::format("not a JSON object; expected one with {}", kFields));
  const auto fail = [&](const char* field, const std::string& message) {
    SourcePlace at = start;
    at.column = field_column(line, field);
    wrong.add({at, message});
  };
  const auto number = [&](const char* field, int64_t low, int64_t high) -> std::optional<int64_t> {
    const auto found = row.find(field);
    if (found == row.end())
      return fail(field, fmt::format("field {} is missing; expected {}", field, kFields)), std::nullopt;
    const auto value = whole(*found, low, high);
    if (!value)
      fail(field, fmt::format("bad {} {}; expected a whole number from {} to {}", field, json_shown(*found),
                              low, high));
    return value;
  };
  JsonRow out{number("timestamp", 0, 1ll << 50), {}};
  TraceRequest& r = out.request;
  const std::optional<int64_t> input = number("input_length", 1, kTraceMaxTokens);
  r.input_tokens = static_cast<int32_t>(input.value_or(0));
  r.output_tokens = static_cast<int32_t>(number("output_length", 1, kTraceMaxTokens).value_or(0));
  const auto ids = row.find("hash_ids");
  if (ids == row.end()) return out;  // the field is what makes sharing; a trace may have none
  if (!ids->is_array()) return fail("hash_ids", "bad hash_ids; expected an array of whole numbers"), out;
  const int64_t expected = (int64_t{r.input_tokens} + kTraceBlockTokens - 1) / kTraceBlockTokens;
  if (input && static_cast<int64_t>(ids->size()) != expected)
    fail("hash_ids", fmt::format("{} hash_ids for input_length {}; expected {}, one for each {} tokens begun",
                                 ids->size(), r.input_tokens, expected, kTraceBlockTokens));
  r.blocks.reserve(ids->size());
  for (const auto& id : *ids) {
    const auto value = whole(id, INT64_MIN, INT64_MAX);
    if (!value) {
      fail("hash_ids", fmt::format("bad id {} of hash_ids, {}; expected a whole number", r.blocks.size(),
                                   json_shown(id)));
      break;
    }
    r.blocks.push_back(*value);
  }
  return out;
}

}  // namespace

std::vector<TraceRequest> read_trace_jsonl(std::string_view text, const std::string& name) {
  std::vector<TraceRequest> out;
  Mistakes wrong;
  std::optional<int64_t> first, previous;
  int line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    JsonRow row;
    try {
      row = parse_json_row(line, {name, line_number, 1}, wrong);
    } catch (const InputError& e) {
      wrong.add(e);
      continue;
    }
    if (row.stamp_ms && previous && *row.stamp_ms < *previous)
      wrong.add({{name, line_number, field_column(line, "timestamp")}, unordered("timestamp")});
    if (row.stamp_ms) previous = row.stamp_ms;
    if (!first) first = row.stamp_ms;
    if (!wrong.empty()) continue;
    row.request.arrival_s = static_cast<double>(*row.stamp_ms - *first) * 1e-3;
    out.push_back(std::move(row.request));
  }
  wrong.raise();
  if (out.empty())
    throw InputError({name, 1, 1}, fmt::format("empty; expected one JSON object per line with {}", kFields));
  return out;
}

std::vector<TraceRequest> read_trace(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension != ".csv" && extension != ".jsonl")
    throw InputError(
        {path},
        "unknown trace format; expected a file named *.csv (Azure columns) or *.jsonl (Mooncake fields)");
  const std::string text =
      read_text_file({path}, path, kTraceMaxFileBytes, "a trace file (a larger trace has to be cut)");
  return extension == ".csv" ? read_trace_csv(text, path) : read_trace_jsonl(text, path);
}

}  // namespace assay
