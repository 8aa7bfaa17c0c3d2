// SPDX-License-Identifier: Apache-2.0
// How much of the language a set of cases reaches: which two and three values of its fields occur together
// in some case, of those that can, and which boundaries are crossed that a kernel may hide behind. To add a
// value or a boundary: one row of a table in coverage.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/scenario.hpp"

namespace assay {

// A value of a field as coverage counts it, and the words of a line that make a case of it.
struct CoverValue {
  std::string_view field, value, words;
  bool (*in)(const Scenario&);
};
std::span<const CoverValue> cover_values();

// A number of a case that code may be made for up to some size.
inline constexpr int32_t kWholeContext = -1;
struct CoverBoundary {
  std::string what;
  std::vector<int64_t> limits;
  std::function<int64_t(const Scenario&, const Problem&)> of;  // -1: the case has none
  int32_t op = kWholeContext;                                  // whose cases are counted; prefill and paged
};
const std::vector<CoverBoundary>& cover_boundaries();

struct CoverageOfOp {
  std::string op;
  int64_t cases = 0;
  int64_t pairs = 0, pairs_met = 0;        // of values of two fields that go together
  int64_t triples = 0, triples_met = 0;    // of three
  std::vector<std::string> values_missed;  // "mask=tree"
  std::vector<std::string> pairs_missed;   // "mask=tree, table=csr"; of values that are met by themselves
};
struct BoundaryMet {
  std::string_view what;
  int64_t limit = 0, cases = 0;  // beyond it
};
struct CoverageReport {
  std::vector<CoverageOfOp> ops;  // prefill and paged
  std::vector<BoundaryMet> boundaries;
};

// Cases of other ops are counted by the boundaries that name them. What goes together is asked of the
// language itself.
class Coverage {
 public:
  Coverage();
  void add(const Scenario&);  // InputError as make_problem()
  CoverageReport report() const;

 private:
  struct OfOp {
    int32_t op;
    std::vector<std::vector<uint16_t>> cases;  // distinct sets of values, by index
    int64_t count = 0;
  };
  std::vector<OfOp> ops_;
  std::vector<std::vector<int64_t>> beyond_;  // by boundary and limit
};

}  // namespace assay
