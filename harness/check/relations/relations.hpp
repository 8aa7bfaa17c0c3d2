// SPDX-License-Identifier: Apache-2.0
// Metamorphic relations: results of a kernel compared with its own results on other problems that hold the
// same values (other pages, another batch, the context in two calls, ...). They need no reference to be
// right, so they also catch a rule that kernel and reference have wrong in common, and they measure batch
// invariance. Which relations a case checks is Problem::relations (relate= of a scenario). To add one: a bit
// in harness/problem, its problems in relations_derive.cpp, how to compare in relations.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

struct RelationResult {
  uint32_t relation = 0;  // one bit of enum Relation
  bool checked = false;   // false: `note` says why nothing was compared
  bool same_bits = true;  // all elements of O and LSE that two calls have in common (split: never compared)
  int64_t calls = 0, rows = 0;
  // Largest |difference| / (half-widths of both bounds + both roundings) where bits differ, O and LSE.
  double max_ratio = 0;
  std::string note;
};

struct RelationReport {
  std::vector<RelationResult> results;
  // Whether requests gave the same bits in another order and alone; empty when neither was checked.
  std::optional<bool> batch_invariant() const;
};

// Checks the relations of the problem, in the order of the enum, up to the first that does not hold; the
// reason in one line, or empty. Bits must be equal where the relation moves bytes only and the kernel
// promises it: pages and strides with REPEATABLE, order and alone with BATCH_INVARIANT. Otherwise every
// result must lie in the bounds of its own problem, and two results of one answer may differ by the sum of
// their half-widths at most. A derived problem that the kernel refuses is noted and skipped.
// InfrastructureError as DeviceCase.
std::string check_relations(const Backend&, const assay_kernel&, const assay_device&, const Problem&,
                            const assay_arithmetic&, double row_key_budget, RelationReport*);

}  // namespace assay
