// SPDX-License-Identifier: Apache-2.0
// Values with axes: "64,128", "{1,8}q1s[1k:16k:*2]", "[0:1000000]". A value becomes literal parts and
// choices; every choice belongs to an axis of the line. Choices are never spelled out: the n-th text is
// computed, so an axis of a billion values takes no memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/scenario/text.hpp"

namespace assay {

// Text put together from several places; offset(i) is where character i stands in the line.
class MappedText {
 public:
  void clear();
  // `fixed`: all characters were computed from what stands at `source` (a range).
  void append(std::string_view text, size_t source, bool fixed = false);
  const std::string& text() const { return text_; }
  size_t source(size_t offset) const;

 private:
  struct Run {
    size_t start, source;
    bool fixed;
  };
  std::string text_;
  std::vector<Run> runs_;
};

// What stands between the brackets of [a:b:s], [a:b:*m] or [a,b], or a literal (count 1).
struct Piece {
  std::vector<Slice> list;      // literals and lists; empty for ranges
  int64_t first = 0, step = 1;  // ranges
  bool powers = false;
  int64_t count = 1;
  size_t source = 0;
  void write(int64_t index, MappedText&) const;
};

// Alternatives, each a sequence of pieces (their product), one after the other.
class AxisChoice {
 public:
  explicit AxisChoice(std::vector<std::vector<Piece>> alternatives, size_t source);
  int64_t size() const { return start_.back(); }
  void write(int64_t index, MappedText&) const;

 private:
  std::vector<std::vector<Piece>> alternatives_;
  std::vector<int64_t> start_;  // first index of each alternative, then the total
};

// The axes of one line. Zips ({}) of a line are one axis.
struct Axes {
  std::vector<int64_t> size;
  int zip = -1;  // its index, or -1
};

struct Part {
  int axis = -1;  // -1: always the one text of the choice
  AxisChoice choice;
};

// Splits a value into parts, adding its axes. TextError with the place in the line.
std::vector<Part> parse_value(Slice value, Axes&);
// Texts of a comma list with [] expanded, for except(): at most `limit`.
std::vector<MappedText> list_values(Slice value, int64_t limit);

}  // namespace assay
