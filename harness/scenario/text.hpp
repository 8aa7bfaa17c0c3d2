// SPDX-License-Identifier: Apache-2.0
// Small tools for reading scenario text: slices that remember where they stand, numbers with k/m
// suffixes, splitting that respects brackets, and "did you mean". Errors carry an offset only
// (TextError); whoever knows the file turns it into an InputError with line and column. This is what
// lets a value that an axis put together still point at the character the user typed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"

namespace assay {

// A message that quotes what somebody typed, with the middle left out when that was very long.
std::string brief(std::string message);

// Wrong text at `offset` characters from the start of the outermost slice.
class TextError : public std::runtime_error {
 public:
  TextError(size_t offset, const std::string& message)
      : std::runtime_error(brief(message)), offset_(offset) {}
  size_t offset() const { return offset_; }

 private:
  size_t offset_;
};

// A part of a longer text, with its offset there.
struct Slice {
  std::string_view text;
  size_t offset = 0;
  Slice sub(size_t from, size_t count = std::string_view::npos) const {
    return {text.substr(from, count), offset + from};
  }
};

bool is_space(char);
Slice trim(Slice);
// Pieces between `separator` where no (), [] or {} is open. Always at least one piece.
std::vector<Slice> split_outside_brackets(Slice, char separator);
// Words between white space outside brackets. TextError for a bracket without its partner.
std::vector<Slice> words_outside_brackets(Slice);

// Whole slice as a number; `what` opens the message ("page"). Counts take the suffixes k and m.
int64_t parse_integer(Slice, std::string_view what, int64_t low, int64_t high);
int64_t parse_count(Slice, std::string_view what, int64_t low, int64_t high);
uint64_t parse_unsigned(Slice, std::string_view what);
double parse_real(Slice, std::string_view what);

void append_integer(std::string&, int64_t);
void append_count(std::string&, int64_t);  // multiples of 1024 as k
void append_real(std::string&, double);    // shortest text that reads back as the same double

// ` (did you mean "page"?)` for the nearest candidate, or nothing when none is near.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);
std::string join(std::span<const std::string_view> words, std::string_view separator = ", ");
// Shell-style pattern with `*` only.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace assay
