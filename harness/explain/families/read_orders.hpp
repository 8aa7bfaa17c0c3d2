// SPDX-License-Identifier: Apache-2.0
// Hypotheses that other families call: orders of dimensions that the results show, factors that grow with the
// row's place, and blocks of rows that work with what the block before left.
#pragma once

#include "harness/explain/families/merges.hpp"
#include "harness/explain/hypothesis.hpp"

namespace assay {

// O's dimensions in an order that is read off the results.
void read_dims(const Clues&, Hypotheses&);
// Scores times a number that grows with the row's position or the number of keys.
void temperatures(const Clues&, Hypotheses&);
// Query rows of a block that hold those of the block before.
void query_blocks(const Clues&, Hypotheses&);
// The rescaling of a row by the factors of another one of its block.
void rescales_of_others(const Clues&, const Layout&, Hypotheses&);
// Partial results in a table of parts and rows whose axes are exchanged.
void transposed_slots(const Clues&, Merges&);

// Rows, or pairs of a row and a head of the group, that one block of a kernel has, by their numbers.
struct UnitsOfBlock {
  int32_t size = 0;
  bool packed = false;  // pairs

  std::string words() const {
    return packed ? std::to_string(size) + " rows and heads" : std::to_string(size) + " rows";
  }
  int32_t number(const Problem& p, const Cell& c) const {
    return packed ? c.row * p.group() + c.head % p.group() : c.row;
  }
  int32_t count(const Problem& p, const Cell& c) const {  // of the request under one KV head
    return p.requests[c.request].q_len * (packed ? p.group() : 1);
  }
  Cell at(const Problem& p, Cell c, int32_t number) const {
    if (!packed) {
      c.row = number;
      return c;
    }
    const int32_t g = p.group();
    c.row = number / g, c.head = c.head / g * g + number % g;
    return c;
  }
};
std::vector<UnitsOfBlock> blocks_of_units(const Problem&);

// A number with two of its bits exchanged, as the fragments of matrix instructions have keys and dimensions.
inline int32_t with_bits_exchanged(int32_t number, int32_t a, int32_t b) {
  return ((number & a) != 0) == ((number & b) != 0) ? number : number ^ a ^ b;
}

}  // namespace assay
