// SPDX-License-Identifier: Apache-2.0
// Which keys a cell takes under a hypothesis, beside those that it should have: what sentences about keys are
// read off (other_names.hpp), whichever hook of the rules makes it so. Parts that are left out of a merge are
// keys that are missing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "harness/explain/hypothesis.hpp"

namespace assay {

struct KeysTaken {
  std::vector<int32_t> kept, missing, added, behind;  // positions; behind the request's last key
  int32_t newest_added = -1;                          // where the last of those stands
  int32_t kv_len = 0;
  bool unused = false;  // some of those behind lie where no key does
};

// Empty where a key is anything but taken or not: counted otherwise, read elsewhere.
std::optional<KeysTaken> keys_taken(const Clues&, const Rules&, const Cell&);

// What parts that a merge leaves out amount to: rules that are right but for the keys of these, which are not
// seen. Empty where the hypothesis does anything else to parts in these cells. Other cells are looked at when
// they are asked for, outside of a prediction.
std::optional<Rules> keys_without_parts(const Clues&, const Rules&, const std::vector<Cell>& changed);

// From where keys of the request come that another place is read for. Empty where any is missing or counted
// otherwise.
struct KeysRead {
  std::vector<int32_t> at, k_from, v_from;  // positions; those that are read where they are not among them
};
std::optional<KeysRead> keys_read(const Clues&, const Rules&, const Cell&);

}  // namespace assay
