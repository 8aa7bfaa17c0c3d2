// SPDX-License-Identifier: Apache-2.0
// One scenario line of a suite and its cases, drawn one at a time. Only the words whose axis moved are
// read again, which is what makes a million cases cheap; nothing is stored per case, except the rows of a
// covering array. Inside harness/scenario only.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/scenario/axes.hpp"
#include "harness/scenario/line_check.hpp"
#include "harness/scenario/source_text.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {

// NAME=VALUE of a line, or the op.
struct LineWord {
  int field = 0;
  size_t offset = 0;
  std::vector<Part> parts;
  bool moves_with(int axis) const;  // one of its parts belongs to this axis or a faster one
  bool uses(int axis) const;
  bool constant() const;
};

// except(NAME=VALUE[,VALUE...] ...): leaves out cases for which every condition holds.
struct Exception {
  struct Condition {
    int field = 0;
    std::vector<std::string> values;  // canonical text, or a pattern with *
    bool holds(const Scenario&) const;
  };
  std::vector<Condition> conditions;
  bool matches(const Scenario&) const;
};

class LineCases {
 public:
  // InputErrors for the words that are wrong, or InputError for what the line is as such. `line` holds at
  // least one word.
  explicit LineCases(SourceText line);
  LineCases(const LineCases&) = delete;
  LineCases& operator=(const LineCases&) = delete;
  // The next valid case; InputError when the line has none at all.
  std::optional<Scenario> next(SuiteCounts&);
  const SourcePlace& place() const { return place_; }

 private:
  friend class CoverLine;
  void read(Slice);
  void read_word(Slice, const std::vector<int32_t>& ops);
  void read_exception(Slice word);
  void try_values(const LineWord&) const;
  template <class Call>
  void keep(const Call&);
  void raise_wrong();
  void set_word(const LineWord&, std::span<const int64_t> index, Scenario&) const;
  void check_constant_rules() const;
  bool advance();  // to the next combination, or false
  std::optional<Scenario> current(SuiteCounts&);
  bool available(const Scenario&, SuiteCounts&);
  Scenario resolved(const Scenario& raw) const;
  // Axes that the values of these fields depend on, through defaults as well.
  std::set<int> axes_of(const std::vector<std::string_view>& names) const;

  SourceText source_;
  std::vector<TextError> wrong_;  // of its words
  SourcePlace place_;
  size_t op_offset_ = 0;
  bool optional_ = false;
  int strength_ = 0;  // cover=, or 0
  size_t cover_offset_ = 0;
  std::vector<LineWord> words_;
  GivenFields given_;
  Axes axes_;
  std::vector<Exception> exceptions_;

  Scenario raw_;
  std::vector<int64_t> index_;
  std::vector<std::vector<int>> rows_;
  size_t row_ = 0;
  bool started_ = false;
  int64_t produced_ = 0, skipped_ = 0;
  std::string why_left_out_;
  std::set<std::string> missing_, found_;  // trace files looked for
};

// The covering array of the line's axes: value indices, only combinations that break no rule.
std::vector<std::vector<int>> cover_rows(const LineCases&);

}  // namespace assay
