// SPDX-License-Identifier: Apache-2.0
// Random legal scenario lines over the whole language. Values are proposed field by field (draw_value.hpp)
// and kept when the language's own rules still hold, so nothing here knows which fields may stand together.
// Sizes are uniform in their logarithm up to a cost that keeps a campaign fast.
#pragma once

#include <cstdint>
#include <optional>

#include "harness/scenario/re_aim.hpp"

namespace assay::campaign {

// What judging a case costs, in multiply-adds or what takes as long: arithmetic, and memory that is filled,
// compared and poisoned several times.
double cost_of(const Problem&);

struct Line {
  Scenario scenario;
  Problem problem;
};

// Lines of one corner of the language.
struct Corner {
  int64_t most_keys = 1 << 14;  // of a request
  ReAim set;                    // fields that every line has
};

// Line `index` of the campaign with this seed, of cost_of() at most `largest`: the same on every machine.
// InputError when no line has the fields of the corner, or none of them costs so little.
Line draw_line(uint64_t seed, uint64_t index, double largest, const Corner& = {});

// The case, its batch halved until it is legal and costs no more than that; a page or a pool that is too
// large by itself is given up.
std::optional<Line> affordable(Scenario, double most);

// The same case with about half the work of the largest part of its batch; false when there is nothing left
// to halve. The result may break a rule.
bool halve(BatchSpec&);

}  // namespace assay::campaign
