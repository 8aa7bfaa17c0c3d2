// SPDX-License-Identifier: Apache-2.0
// See source_text.hpp.
#include "harness/scenario/source_text.hpp"

#include <algorithm>

namespace assay {
namespace {

// Texts named in texts multiply: ten lets of ten uses each are 10^10 characters.
constexpr size_t kMaxLineCharacters = 1 << 20;

}  // namespace

void SourceText::append(std::string_view text, const SourcePlace& place, std::string_view note) {
  segments_.push_back({text_.size(), place, std::string(note)});
  text_ += text;
}

void SourceText::append(const SourceText& other, const std::string& note) {
  for (const Segment& segment : other.segments_)
    segments_.push_back({text_.size() + segment.start, segment.place,
                         segment.note.empty() ? note : segment.note + ", " + note});
  text_ += other.text_;
}

const SourceText::Segment* SourceText::segment_at(size_t offset) const {
  auto after = std::upper_bound(segments_.begin(), segments_.end(), offset,
                                [](size_t o, const Segment& s) { return o < s.start; });
  // Several segments may start at one offset (an empty let); the last one holds the character.
  return after == segments_.begin() ? nullptr : &*std::prev(after);
}

SourcePlace SourceText::place(size_t offset) const {
  const Segment* segment = segment_at(offset);
  if (!segment) return {};
  SourcePlace at = segment->place;
  at.column += static_cast<int>(offset - segment->start);
  return at;
}

InputError SourceText::error(size_t offset, const std::string& message) const {
  const Segment* segment = segment_at(offset);
  if (!segment || segment->note.empty()) return InputError(place(offset), message);
  return InputError(place(offset), fmt::format("{} ({})", message, segment->note));
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

SourceText expand_names(std::string_view raw, const SourcePlace& place, const NamedTexts& names) {
  if (raw.size() > kMaxLineCharacters)
    throw InputError(place, fmt::format("a line of {} characters; at most {} are accepted", raw.size(),
                                        kMaxLineCharacters));
  SourceText out;
  auto at = [&](size_t i) {
    SourcePlace p = place;
    p.column += static_cast<int>(i);
    return p;
  };
  size_t start = 0;
  while (true) {
    const size_t dollar = std::min(raw.find('$', start), raw.size());
    out.append(raw.substr(start, dollar - start), at(start));
    if (dollar == raw.size()) return out;
    // $name, or ${name} where a letter, digit or _ follows.
    const bool braces = raw.substr(dollar + 1).starts_with('{');
    const size_t begin = dollar + (braces ? 2 : 1);
    size_t end = begin;
    while (end < raw.size() && is_name_character(raw[end])) ++end;
    const std::string_view name = raw.substr(begin, end - begin);
    if (braces && (end == raw.size() || raw[end++] != '}'))
      throw InputError(at(dollar), brief(fmt::format("\"${{{}\" is never closed; expected ${{NAME}}", name)));
    const auto found = names.find(name);
    if (found == names.end()) {
      std::vector<std::string_view> known;
      for (const auto& [known_name, text] : names) known.push_back(known_name);
      throw UnknownName(
          at(dollar),
          brief(fmt::format("\"${}\" is not defined{}; names defined before this line: {}", name,
                            did_you_mean(name, known), known.empty() ? "none" : join(known))),
          name);
    }
    const SourcePlace use = at(dollar);
    out.append(found->second.text,
               fmt::format("in ${}, used at {}:{}:{}", name, use.file, use.line, use.column));
    if (out.text().size() > kMaxLineCharacters)
      throw InputError(
          use, fmt::format("the line grows past {} characters with \"${}\"", kMaxLineCharacters, name));
    start = end;
  }
}

std::string_view without_comment(std::string_view raw) {
  for (size_t i = 0; i < raw.size(); ++i)
    if (raw[i] == '#' && (i == 0 || is_space(raw[i - 1]))) return raw.substr(0, i);
  return raw;
}

}  // namespace assay
