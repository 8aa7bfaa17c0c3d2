// SPDX-License-Identifier: Apache-2.0
// Text that comes from kernels and files can hold anything; what the report writes must stay one line
// per row and valid UTF-8 for every reader (pandas, XML parsers, browsers). Numbers print so that
// reading them back gives the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace assay {

// Length of the UTF-8 sequence at the start of `s`, 0 when it is not valid (overlong, surrogate, cut).
size_t utf8_length(std::string_view s);
// Control characters (line breaks and C1 too) and those that turn the direction of text become blanks, bytes
// that are not UTF-8 become '?'.
std::string clean_text(std::string_view);
// As text inside a table cell or a paragraph of Markdown, never markup.
std::string markdown_text(std::string_view);
// Spreadsheets run a cell that begins with = + - or @ as a formula, and the texts here come from kernels.
// Such a text gets an apostrophe in front (so does one that begins with an apostrophe and one of these, or
// another apostrophe), which unguard_formula() takes away again: every text survives.
std::string guard_formula(std::string text);
std::string unguard_formula(std::string text);
// Terminal columns, one per code point.
int display_width(std::string_view);
// Shortest decimal text that reads back as the same double; "inf", "-inf"; "" for NaN.
std::string shortest(double);

}  // namespace assay
