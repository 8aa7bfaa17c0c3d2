// SPDX-License-Identifier: Apache-2.0
// What a run came to: counts per outcome, and the failing cases with the commands that repeat them.
// Used for the last lines of every command, for summary.md and for run.json.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "harness/report/row.hpp"

namespace assay {

// Spelled as outcome_name() does, in the order of the tally.
inline constexpr std::array<std::string_view, 9> kOutcomes = {
    "passed", "wrong", "unsupported", "untrusted", "crashed", "timed_out", "invalid", "implausible", "noisy"};

struct Tally {
  std::array<int64_t, kOutcomes.size()> counts{};  // as kOutcomes
  int64_t unknown = 0;                             // rows whose outcome is none of these
  int64_t useless = 0;                             // passed rows with class_note set
  void add(std::string_view outcome);
  int64_t of(std::string_view outcome) const;  // CheckError for a name not in kOutcomes
  int64_t total() const;
};
Tally tally_of(std::span<const Row>);
// "4 passed, 1 wrong, 0 unsupported, 0 untrusted, 0 crashed, 0 timed out, 0 invalid"; the outcomes of timed
// rows alone only where there are some; where passed rows are of an arithmetic too coarse to be useful, their
// number follows.
std::string tally_line(const Tally&);

// Everything but passed, noisy and unsupported; an unknown outcome fails too.
bool is_failure(const Row&);

// Unchanged when no character is special. Control characters and bytes that are not UTF-8 are spelled with
// the shell's printf, so that the command shows and pastes as one clean line.
std::string shell_quote(std::string_view);

// Failing rows, three lines each (what, why, how to repeat). At most `most` are listed, and the text
// says how many of how many; "" when nothing failed.
std::string failures_text(std::span<const Row>, size_t most = 50);

}  // namespace assay
