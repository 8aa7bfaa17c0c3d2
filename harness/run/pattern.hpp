// SPDX-License-Identifier: Apache-2.0
// A regular expression a user typed (--filter, --only): RE2, whose time and memory are bounded by the length
// of text and expression. Syntax: https://github.com/google/re2/wiki/Syntax (no look-around, no
// back-references).
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace re2 {
class RE2;
}

namespace assay {

class Pattern {
 public:
  // InputError naming `option` and the column of the mistake (from 1).
  Pattern(const std::string& expression, const std::string& option);
  Pattern(Pattern&&) noexcept;
  ~Pattern();
  bool found_in(std::string_view text) const;  // anywhere in it; thread-safe

 private:
  std::unique_ptr<re2::RE2> re_;
};

}  // namespace assay
