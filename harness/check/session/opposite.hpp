// SPDX-License-Identifier: Apache-2.0
// Other visible values in the same buffers. With a known answer and without another reference: every value
// with its sign turned. Scores stay (Q and K turn both), so LSE and scales stay, O and codes turn with V, and
// everything that was kept from before has the wrong sign. Without a known answer: random values turned, to
// be judged against a reference of their own. A cache that a step reads before it writes to it turns with the
// rest, so who uploads the inputs uploads caches_read() too.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "harness/check/session/session.hpp"

namespace assay {

// Operands of the cache that the op attends over and writes to (steps).
std::vector<Operand> caches_read(const Inputs&);

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
// knows the wrong ones then), or (`most_bytes` > 0) of each that comes with the rows of the batch (of the
// first where none does) a stretch of rows, at least one, within its part of so many bytes. On the host only;
// turn_rows() undoes it.
std::vector<TurnedRows> turn_random_rows(Inputs&, std::mt19937_64&, int64_t most_bytes);
// Of K and of V that the op attends over a few rows here and there: for each request one for each KV head and
// 4,096 of its keys, at most 1,024 in all. Enough to show in what sees them, too few to be met by who looks
// at a sample of K and V. Nothing where there is neither.
std::vector<TurnedRows> turn_random_keys(Inputs&, std::mt19937_64&);
void turn_rows(Inputs&, const std::vector<TurnedRows>&);

}  // namespace assay
