// SPDX-License-Identifier: Apache-2.0
// One suite line after its comment is cut and its $names are replaced, which still knows for every
// character where the user typed it: an error in a `let` text points into the let, and says from where
// it was used.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/scenario/text.hpp"

namespace assay {

class SourceText {
 public:
  const std::string& text() const { return text_; }
  Slice slice() const { return {text_, 0}; }
  // Appends characters that stand consecutively from `place` on. `note` says how they came here.
  void append(std::string_view text, const SourcePlace& place, std::string_view note = "");
  // Appends a whole other line, used at `use` under a name.
  void append(const SourceText& other, const std::string& note);
  SourcePlace place(size_t offset) const;
  InputError error(size_t offset, const std::string& message) const;
  InputError error(const TextError& e) const { return error(e.offset(), e.what()); }

 private:
  struct Segment {
    size_t start;
    SourcePlace place;
    std::string note;
  };
  const Segment* segment_at(size_t offset) const;
  std::string text_;
  std::vector<Segment> segments_;
};

// Texts named by `let`.
struct NamedText {
  SourceText text;
  SourcePlace place;  // of the name in its let
  bool own = true;    // by the file itself, not by one it includes
};
using NamedTexts = std::map<std::string, NamedText, std::less<>>;

bool is_name_character(char);
// A name that nothing defines.
class UnknownName : public InputError {
 public:
  UnknownName(const SourcePlace& place, const std::string& message, std::string_view name)
      : InputError(place, message), name_(name) {}
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};
// `raw` is one line that starts at `place`. UnknownName, or InputError for a line that cannot be read or
// grows too long.
SourceText expand_names(std::string_view raw, const SourcePlace& place, const NamedTexts&);
// Cuts a # at the start of a word and everything after it.
std::string_view without_comment(std::string_view raw);

}  // namespace assay
