// SPDX-License-Identifier: Apache-2.0
// See axes.hpp.
#include "harness/scenario/axes.hpp"

#include <algorithm>
#include <limits>

namespace assay {
namespace {

// Sizes beyond this are typing errors; staying below 2^62 keeps sums and counters exact.
constexpr int64_t kMaxAxis = int64_t{1} << 62;
constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();

int64_t product(int64_t a, int64_t b, size_t source) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out) || out > kMaxAxis)
    throw TextError(source, "the axis has more than 2^62 values");
  return out;
}

Piece literal(Slice s) {
  Piece piece;
  piece.list = {s};
  piece.source = s.offset;
  return piece;
}

Piece parse_range(Slice inside, const std::vector<Slice>& parts) {
  Piece piece;
  piece.source = inside.offset - 1;
  if (parts.size() > 3)
    throw TextError(parts[3].offset, "a range is [FIRST:LAST], [FIRST:LAST:STEP] or [FIRST:LAST:*FACTOR]");
  piece.first = parse_count(trim(parts[0]), "range: first", -kMaxNumber, kMaxNumber);
  const int64_t last = parse_count(trim(parts[1]), "range: last", -kMaxNumber, kMaxNumber);
  if (last < piece.first)
    throw TextError(inside.offset,
                    fmt::format("the range [{}] runs backwards; write [LOW:HIGH]", inside.text));
  if (parts.size() == 3) {
    Slice step = trim(parts[2]);
    piece.powers = step.text.starts_with('*');
    if (piece.powers) step = step.sub(1);
    piece.step =
        parse_count(step, piece.powers ? "range: factor" : "range: step", piece.powers ? 2 : 1, kMaxNumber);
  }
  if (piece.powers) {
    if (piece.first < 1)
      throw TextError(parts[0].offset, fmt::format("powers start at 1 or more, not at {}", piece.first));
    for (int64_t value = piece.first; value <= last / piece.step; value *= piece.step) ++piece.count;
    return piece;
  }
  uint64_t distance = static_cast<uint64_t>(last) - static_cast<uint64_t>(piece.first);
  distance /= static_cast<uint64_t>(piece.step);
  if (distance >= static_cast<uint64_t>(kMaxAxis))
    throw TextError(piece.source, "the axis has more than 2^62 values");
  piece.count = static_cast<int64_t>(distance) + 1;
  return piece;
}

// `inside` is the text between [ and ].
Piece parse_bracket(Slice inside) {
  if (inside.text.find_first_of("[{") != std::string_view::npos)
    throw TextError(inside.offset + inside.text.find_first_of("[{"), "axes cannot stand inside [ ]");
  const std::vector<Slice> list = split_outside_brackets(inside, ',');
  const std::vector<Slice> range = split_outside_brackets(inside, ':');
  if (list.size() == 1 && range.size() > 1) return parse_range(inside, range);
  Piece piece;
  piece.source = inside.offset - 1;
  for (const Slice& element : list) {
    const Slice text = trim(element);
    if (text.text.empty())
      throw TextError(
          text.offset,
          "empty element; expected [a,b], [FIRST:LAST], [FIRST:LAST:STEP] or [FIRST:LAST:*FACTOR]");
    piece.list.push_back(text);
  }
  piece.count = static_cast<int64_t>(piece.list.size());
  return piece;
}

// Position after the bracket that closes the one at `open`. The line was checked to pair up.
size_t matching_end(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ')' || text[i] == ']' || text[i] == '}')
      if (--depth == 0) return i + 1;
  }
  return text.size();
}

// Pieces of an alternative: literals and [ ].
std::vector<Piece> parse_alternative(Slice s) {
  if (s.text.empty())
    throw TextError(s.offset, "empty value in a list; leave out the comma or write the value");
  std::vector<Piece> pieces;
  size_t start = 0;
  while (start < s.text.size()) {
    const size_t open = std::min(s.text.find_first_of("[{", start), s.text.size());
    if (open > start) pieces.push_back(literal(s.sub(start, open - start)));
    if (open == s.text.size()) break;
    if (s.text[open] == '{')
      throw TextError(s.offset + open,
                      "a { } list cannot stand inside another list; write it alone or use [ ]");
    const size_t end = matching_end(s.text, open);
    pieces.push_back(parse_bracket(s.sub(open + 1, end - open - 2)));
    start = end;
  }
  return pieces;
}

AxisChoice parse_list(Slice s) {
  std::vector<std::vector<Piece>> alternatives;
  for (const Slice& element : split_outside_brackets(s, ','))
    alternatives.push_back(parse_alternative(trim(element)));
  return AxisChoice(std::move(alternatives), s.offset);
}

int add_axis(Axes& axes, int64_t size) {
  axes.size.push_back(size);
  return static_cast<int>(axes.size.size()) - 1;
}

}  // namespace

void MappedText::clear() {
  text_.clear();
  runs_.clear();
}

void MappedText::append(std::string_view text, size_t source, bool fixed) {
  runs_.push_back({text_.size(), source, fixed});
  text_ += text;
}

size_t MappedText::source(size_t offset) const {
  const Run* found = nullptr;
  for (const Run& run : runs_)
    if (run.start <= offset) found = &run;
  if (!found) return 0;
  return found->fixed ? found->source : found->source + (offset - found->start);
}

void Piece::write(int64_t index, MappedText& out) const {
  if (!list.empty()) {
    out.append(list[index].text, list[index].offset);
    return;
  }
  int64_t value = first;
  if (powers) {
    for (; index > 0; --index) value *= step;
  } else {
    value = static_cast<int64_t>(static_cast<uint64_t>(first) +
                                 static_cast<uint64_t>(index) * static_cast<uint64_t>(step));
  }
  std::string text;
  append_integer(text, value);
  out.append(text, source, true);
}

AxisChoice::AxisChoice(std::vector<std::vector<Piece>> alternatives, size_t source)
    : alternatives_(std::move(alternatives)) {
  int64_t total = 0;
  for (const std::vector<Piece>& pieces : alternatives_) {
    start_.push_back(total);
    int64_t count = 1;
    for (const Piece& piece : pieces) count = product(count, piece.count, source);
    total += count;
    if (total > kMaxAxis) throw TextError(source, "the axis has more than 2^62 values");
  }
  start_.push_back(total);
}

void AxisChoice::write(int64_t index, MappedText& out) const {
  const size_t a =
      static_cast<size_t>(std::upper_bound(start_.begin(), start_.end() - 1, index) - start_.begin()) - 1;
  const std::vector<Piece>& pieces = alternatives_[a];
  index -= start_[a];
  int64_t rest = 1;  // combinations of the pieces after the current one; the last varies fastest
  for (const Piece& piece : pieces) rest *= piece.count;
  for (const Piece& piece : pieces) {
    rest /= piece.count;
    piece.write(index / rest, out);
    index %= rest;
  }
}

std::vector<Part> parse_value(Slice value, Axes& axes) {
  std::vector<Part> parts;
  if (split_outside_brackets(value, ',').size() > 1) {
    AxisChoice choice = parse_list(value);
    const int axis = add_axis(axes, choice.size());
    parts.push_back({axis, std::move(choice)});
    return parts;
  }
  size_t start = 0;
  while (start < value.text.size()) {
    const size_t open = std::min(value.text.find_first_of("[{", start), value.text.size());
    if (open > start)
      parts.push_back({-1, AxisChoice({{literal(value.sub(start, open - start))}}, value.offset)});
    if (open == value.text.size()) break;
    const size_t end = matching_end(value.text, open);
    const Slice inside = value.sub(open + 1, end - open - 2);
    if (value.text[open] == '[') {
      AxisChoice choice({{parse_bracket(inside)}}, value.offset + open);
      const int axis = add_axis(axes, choice.size());
      parts.push_back({axis, std::move(choice)});
    } else {
      AxisChoice choice = parse_list(inside);
      if (axes.zip < 0) {
        axes.zip = add_axis(axes, choice.size());
      } else if (axes.size[axes.zip] != choice.size()) {
        throw TextError(value.offset + open,
                        fmt::format("the {{ }} lists of a line advance together and must be equally "
                                    "long; this one has {} values, the first one {}",
                                    choice.size(), axes.size[axes.zip]));
      }
      parts.push_back({axes.zip, std::move(choice)});
    }
    start = end;
  }
  return parts;
}

std::vector<MappedText> list_values(Slice value, int64_t limit) {
  const AxisChoice choice = parse_list(value);
  if (choice.size() > limit) throw TextError(value.offset, fmt::format("more than {} values", limit));
  std::vector<MappedText> out(static_cast<size_t>(choice.size()));
  for (int64_t i = 0; i < choice.size(); ++i) choice.write(i, out[static_cast<size_t>(i)]);
  return out;
}

}  // namespace assay
