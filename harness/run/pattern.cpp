// SPDX-License-Identifier: Apache-2.0
// See pattern.hpp. RE2 names the part of the expression it stumbled over, not its place; for brackets that
// are never closed it names all of it, so their place is looked up here.
#include "harness/run/pattern.hpp"

#include <re2/re2.h>

#include <vector>

#include "harness/base/error.hpp"

namespace assay {
namespace {

// Index of the bracket without a partner: the last '(' or '[' that nothing closes, or the first ')' that
// closes nothing. npos when there is none.
size_t lonely(std::string_view text, char kind) {
  std::vector<size_t> parens;
  size_t bracket = std::string_view::npos;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      ++i;
    } else if (bracket != std::string_view::npos) {
      // The first ']' of a set is an ordinary character.
      const size_t first = bracket + (text[bracket + 1] == '^' ? 2 : 1);
      if (c == ']' && i != first) bracket = std::string_view::npos;
    } else if (c == '[') {
      bracket = i;
    } else if (c == '(') {
      parens.push_back(i);
    } else if (c == ')') {
      if (parens.empty()) return kind == ')' ? i : std::string_view::npos;
      parens.pop_back();
    }
  }
  if (kind == '[') return bracket;
  return parens.empty() ? std::string_view::npos : parens.back();
}

size_t place_of(const std::string& expression, const RE2& re) {
  size_t at = expression.find(re.error_arg());
  if (re.error_code() == RE2::ErrorMissingParen) at = lonely(expression, '(');
  if (re.error_code() == RE2::ErrorUnexpectedParen) at = lonely(expression, ')');
  if (re.error_code() == RE2::ErrorMissingBracket) at = lonely(expression, '[');
  if (re.error_code() == RE2::ErrorTrailingBackslash) at = expression.size() - 1;
  return at == std::string::npos ? 0 : at;
}

}  // namespace

Pattern::Pattern(const std::string& expression, const std::string& option) {
  RE2::Options options;
  options.set_log_errors(false);
  re_ = std::make_unique<RE2>(expression, options);
  if (re_->ok()) return;
  const std::string shown = expression.size() > 80 ? expression.substr(0, 80) + "..." : expression;
  throw InputError({option, 0, static_cast<int>(place_of(expression, *re_)) + 1},
                   fmt::format("'{}' is not a regular expression ({}); expected one in RE2's syntax", shown,
                               re_->error().substr(0, 120)));
}

Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

bool Pattern::found_in(std::string_view text) const {
  return RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *re_);
}

}  // namespace assay
