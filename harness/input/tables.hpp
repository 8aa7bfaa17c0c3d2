// SPDX-License-Identifier: Apache-2.0
// The small operands of a problem: lengths, page tables in every form, slopes, sinks and tree masks. They
// hold no random data but the sinks, and no poison: the tails of the tables are written by poison.cpp.
#pragma once

#include "harness/input/inputs.hpp"

namespace assay {

// Slopes of `heads` heads as the ALiBi paper (Press et al., 2022) defines them: a geometric sequence for a
// power of two, else that of the next lower power completed by every other slope of the next higher one.
std::vector<float> alibi_slopes(int32_t heads);
// What a problem's heads have: those, each larger by a twentieth to a third, as the seed draws it.
std::vector<float> drawn_slopes(const Problem&);

// Seeded logits near the log-sum-exp of the widest row, or empty where the problem has no sinks.
std::vector<float> sink_logits(const Problem&);

// A block of the cache that no request's table names, as far as there is one, else 0.
int32_t spare_block(const Problem&);

// One of them, which the problem uses. CheckError for an operand that is none.
void write_table(Inputs&, Operand, const std::vector<float>& sinks);

}  // namespace assay
