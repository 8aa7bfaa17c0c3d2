// SPDX-License-Identifier: Apache-2.0
// See text.hpp. The UTF-8 ranges are table 3-7 of the Unicode standard (well-formed byte sequences).
#include "harness/report/text.hpp"

#include <charconv>
#include <cmath>

namespace assay {

size_t utf8_length(std::string_view s) {
  if (s.empty()) return 0;
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  auto tail = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return i < s.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF)
    return tail(1, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF) && tail(2) ? 3 : 0;
  if (b >= 0xF0 && b <= 0xF4)
    return tail(1, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF) && tail(2) && tail(3) ? 4 : 0;
  return 0;
}

namespace {

// Characters that a terminal or a reader takes for an order: C1 controls (U+0080 to U+009F; 9B begins an
// escape), and those that turn the direction of what is behind them (U+061C, 200E, 200F, 202A to 202E, 2066
// to 2069).
bool gives_orders(std::string_view c) {
  if (c.size() == 2) return (c[0] == '\xC2' && c[1] <= '\x9F') || c == "\xD8\x9C";
  if (c.size() != 3 || c[0] != '\xE2') return false;
  const std::string_view rest = c.substr(1);
  return rest == "\x80\x8E" || rest == "\x80\x8F" || (rest >= "\x80\xAA" && rest <= "\x80\xAE") ||
         (rest >= "\x81\xA6" && rest <= "\x81\xA9");
}

}  // namespace

std::string clean_text(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  while (!s.empty()) {
    const size_t n = utf8_length(s);
    const auto b = static_cast<unsigned char>(s[0]);
    if (n == 0)
      out += '?';
    else if (gives_orders(s.substr(0, n)))
      out += ' ';
    else if (n == 1 && (b < 0x20 || b == 0x7F))
      out += ' ';
    else
      out += s.substr(0, n);
    s.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

namespace {

bool in_set(std::string_view text, size_t i, std::string_view set) {
  return i < text.size() && set.find(text[i]) != std::string_view::npos;
}

}  // namespace

std::string markdown_text(std::string_view s) {
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

std::string guard_formula(std::string text) {
  if (in_set(text, 0, "=+-@") || (in_set(text, 0, "'") && in_set(text, 1, "=+-@'"))) text.insert(0, 1, '\'');
  return text;
}

std::string unguard_formula(std::string text) {
  if (in_set(text, 0, "'") && in_set(text, 1, "=+-@'")) text.erase(0, 1);
  return text;
}

int display_width(std::string_view s) {
  int width = 0;
  for (char c : s) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return width;
}

std::string shortest(double x) {
  if (std::isnan(x)) return "";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  return std::string(buffer, end);
}

}  // namespace assay
