// SPDX-License-Identifier: Apache-2.0
// Other cases at the same things: every case of a suite with some fields set to what a kernel is compiled
// for ("h=32/8 d=128 page=16"), so that suites serve kernels of one shape. Fields that an op does not have
// stay away from it; cases that contradict what is set are left out, with the rule they break.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/scenario/fields.hpp"

namespace assay {

class ReAim {
 public:
  ReAim() = default;  // leaves every case as it is
  // Fields of a line but for the op, as text; InputError naming `source` and the column.
  explicit ReAim(const std::string& text, const std::string& source = "--set");

  // The case with the fields set, defaults that follow them resolved again; empty when a rule is broken.
  std::optional<Scenario> operator()(const Scenario&);

  // Names of the set fields that the case's op does not have: it stays as it is in these.
  std::string lacking(const Scenario&) const;  // "pad, workers"
  bool sets() const { return !values_.empty(); }
  int64_t contradicted() const { return contradicted_; }
  const std::string& first() const { return first_; }  // of those, with the reason

 private:
  std::vector<std::pair<int, std::string>> values_;  // by index in fields()
  int64_t contradicted_ = 0;
  std::string first_;
};

}  // namespace assay
