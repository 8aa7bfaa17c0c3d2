// SPDX-License-Identifier: Apache-2.0
// See text.hpp. Numbers go through std::from_chars / std::to_chars: no locale, and doubles print with
// as many digits as they need to read back unchanged.
#include "harness/scenario/text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace assay {

std::string brief(std::string message) {
  // Longer than any list of accepted words, which stands at the end.
  constexpr size_t kMost = 2000, kStart = 200;
  if (message.size() <= kMost) return message;
  return message.substr(0, kStart) + " ... " + message.substr(message.size() - (kMost - kStart));
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

Slice trim(Slice s) {
  while (!s.text.empty() && is_space(s.text.front())) s = s.sub(1);
  while (!s.text.empty() && is_space(s.text.back())) s.text.remove_suffix(1);
  return s;
}

namespace {

char closing_of(char open) { return open == '(' ? ')' : open == '[' ? ']' : open == '{' ? '}' : '\0'; }
bool is_closing(char c) { return c == ')' || c == ']' || c == '}'; }

// Calls visit(i) for every character outside brackets; checks that brackets pair up.
template <typename Visit>
void scan_outside(Slice s, Visit visit) {
  std::vector<std::pair<char, size_t>> open;  // expected closing, position
  for (size_t i = 0; i < s.text.size(); ++i) {
    const char c = s.text[i];
    if (closing_of(c)) {
      open.push_back({closing_of(c), i});
    } else if (is_closing(c)) {
      if (open.empty()) throw TextError(s.offset + i, fmt::format("\"{}\" closes nothing", c));
      if (open.back().first != c)
        throw TextError(s.offset + i, fmt::format("\"{}\" where \"{}\" is expected", c, open.back().first));
      open.pop_back();
    } else if (open.empty()) {
      visit(i);
    }
  }
  if (!open.empty())
    throw TextError(s.offset + open.back().second,
                    fmt::format("\"{}\" is never closed; expected \"{}\"", s.text[open.back().second],
                                open.back().first));
}

// Insertions, deletions, replacements and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// Digits with an optional sign at the front of the text; `rest` is what follows.
int64_t read_number(Slice s, std::string_view what, std::string_view expected, std::string_view* rest) {
  int64_t value = 0;
  const char* begin = s.text.data();
  const char* end = begin + s.text.size();
  const auto [stop, status] = std::from_chars(begin, end, value);
  if (status == std::errc::result_out_of_range)
    throw TextError(s.offset, fmt::format("{}: \"{}\" is too large; expected {}", what, s.text, expected));
  if (status != std::errc())
    throw TextError(s.offset, fmt::format("{}: \"{}\" is not a number; expected {}", what, s.text, expected));
  *rest = std::string_view(stop, static_cast<size_t>(end - stop));
  return value;
}

std::string range_text(int64_t low, int64_t high) {
  return fmt::format("a whole number from {} to {}", low, high);
}

void check_range(Slice s, std::string_view what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw TextError(s.offset, fmt::format("{}: {} is {}; expected {}", what, s.text,
                                        value < 0 && low >= 0 ? "negative"
                                        : value < low         ? "too small"
                                                              : "too large",
                                        range_text(low, high)));
}

}  // namespace

std::vector<Slice> split_outside_brackets(Slice s, char separator) {
  std::vector<Slice> pieces;
  size_t start = 0;
  scan_outside(s, [&](size_t i) {
    if (s.text[i] != separator) return;
    pieces.push_back(s.sub(start, i - start));
    start = i + 1;
  });
  pieces.push_back(s.sub(start));
  return pieces;
}

std::vector<Slice> words_outside_brackets(Slice s) {
  std::vector<Slice> words;
  size_t start = 0;
  auto finish = [&](size_t end) {
    if (end > start) words.push_back(s.sub(start, end - start));
    start = end + 1;
  };
  scan_outside(s, [&](size_t i) {
    if (is_space(s.text[i])) finish(i);
  });
  finish(s.text.size());
  return words;
}

int64_t parse_integer(Slice s, std::string_view what, int64_t low, int64_t high) {
  std::string_view rest;
  const int64_t value = read_number(s, what, range_text(low, high), &rest);
  if (!rest.empty())
    throw TextError(s.offset + s.text.size() - rest.size(),
                    fmt::format("{}: unexpected \"{}\" after the number; expected {}", what, rest,
                                range_text(low, high)));
  check_range(s, what, value, low, high);
  return value;
}

int64_t parse_count(Slice s, std::string_view what, int64_t low, int64_t high) {
  std::string_view rest;
  const std::string_view expected = "a whole number, k = 1024 and m = 1024^2 as suffix";
  int64_t value = read_number(s, what, expected, &rest);
  if (!rest.empty()) {
    int64_t unit = 0;
    if (rest == "k") unit = 1024;
    if (rest == "m") unit = 1024 * 1024;
    if (unit == 0)
      throw TextError(
          s.offset + s.text.size() - rest.size(),
          fmt::format("{}: unexpected \"{}\" after the number; expected {}", what, rest, expected));
    if (__builtin_mul_overflow(value, unit, &value))
      throw TextError(
          s.offset, fmt::format("{}: \"{}\" is too large; expected {}", what, s.text, range_text(low, high)));
  }
  check_range(s, what, value, low, high);
  return value;
}

uint64_t parse_unsigned(Slice s, std::string_view what) {
  uint64_t value = 0;
  const char* end = s.text.data() + s.text.size();
  const auto [stop, status] = std::from_chars(s.text.data(), end, value);
  if (status != std::errc() || stop != end)
    throw TextError(
        s.offset,
        fmt::format("{}: \"{}\" is not accepted; expected a whole number from 0 to 2^64-1", what, s.text));
  return value;
}

double parse_real(Slice s, std::string_view what) {
  double value = 0;
  const char* end = s.text.data() + s.text.size();
  const auto [stop, status] = std::from_chars(s.text.data(), end, value);
  if (status != std::errc() || stop != end || !std::isfinite(value))
    throw TextError(s.offset, fmt::format("{}: \"{}\" is not a finite number", what, s.text));
  return value == 0 ? 0.0 : value;  // -0 would print as another text for the same case
}

void append_integer(std::string& out, int64_t value) {
  char buffer[24];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  out.append(buffer, result.ptr);
}

void append_count(std::string& out, int64_t value) {
  if (value != 0 && value % 1024 == 0) {
    append_integer(out, value / 1024);
    out += 'k';
  } else {
    append_integer(out, value);
  }
}

void append_real(std::string& out, double value) {
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  out.append(buffer, result.ptr);
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = SIZE_MAX;
  if (word.size() > 40) return "";
  for (const std::string_view candidate : candidates) {
    size_t distance = edit_distance(word, candidate);
    // A word that starts like the candidate ("pagesize", "win") is a near miss however long it is.
    if (word.size() >= 2 && candidate.size() >= 2 &&
        (word.starts_with(candidate) || candidate.starts_with(word)))
      distance = std::min<size_t>(distance, 1);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  const size_t allowed = word.size() <= 2 ? 1 : word.size() <= 5 ? 2 : 3;
  if (best_distance > allowed || best_distance >= std::max(best.size(), word.size())) return "";
  return fmt::format(" (did you mean \"{}\"?)", best);
}

std::string join(std::span<const std::string_view> words, std::string_view separator) {
  std::string out;
  for (const std::string_view word : words) {
    if (!out.empty()) out += separator;
    out += word;
  }
  return out;
}

bool matches_pattern(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace assay
