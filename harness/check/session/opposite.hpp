// SPDX-License-Identifier: Apache-2.0
// Other visible values in the same buffers. With a known answer and without another reference: every value
// with its sign turned. Scores stay (Q and K turn both), so LSE and scales stay, O and codes turn with V, and
// everything that was kept from before has the wrong sign. Without a known answer: random values turned, to
// be judged against a reference of their own.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "harness/check/session/session.hpp"

namespace assay {

// On the host only; done twice it is undone. False, and nothing done, where no operand has signs.
bool turn_values(Inputs&);

// Why the outputs of `after` are not those of `before`, with signs turned if `opposite`; "" when they are, as
// far as two calls of one kernel on such values agree (to a 16th and a step of a short format: what is kept
// is off by twice its value). Only what `before` had written is looked at.
std::string not_as_turned(const Inputs& inputs, const Snapshot& before, const Snapshot& after, bool opposite);

// Rows (all but the last axis) of an operand, about half of their values with turned signs.
struct TurnedRows {
  Operand operand{};
  int64_t first = 0, last = 0;  // bytes of the operand's buffer, from its payload on, that hold them
  int64_t from = 0, to = 0;     // rows, counted in the order of the axes
  uint64_t seed = 0;            // of the draw
};
// A fresh draw of the operands that turn_values() turns: all but the first one (Q; who knows results by it
// knows the wrong ones then), or (`most_bytes` > 0) a stretch of rows of the first within so many bytes, at
// least a row. On the host only; turn_rows() undoes it.
std::vector<TurnedRows> turn_random_rows(Inputs&, std::mt19937_64&, int64_t most_bytes);
void turn_rows(Inputs&, const std::vector<TurnedRows>&);

}  // namespace assay
