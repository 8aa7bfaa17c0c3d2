// SPDX-License-Identifier: Apache-2.0
// In which tiles, running states and parts a kernel takes the keys of a row, found by calls on the shapes of
// the line and from nothing that it declares. One key, the spike, scores so far above all others that no
// lazy rescale lags behind it. Whoever shares its running maximum from its tile on is weighed by it at once;
// all others are weighed by a maximum of their own and rescaled later, which rounds otherwise. Two keys of
// equal score with values +x and -x leave exactly zero where both are weighed alike, so every dimension of V
// asks about one key.
#pragma once

#include <string>
#include <vector>

#include "harness/device/backend.hpp"
#include "harness/explain/evidence.hpp"
#include "harness/explain/layouts.hpp"

namespace assay {

// Which keys a row weighs as it weighs those beside a spike.
struct SpikeSeen {
  Cell cell;
  KeyRange keys;            // that the row sees
  int32_t spike = 0;        // its number in the request
  int32_t beside = 0;       // the key that others are held against
  std::vector<char> alike;  // of keys.begin + i
};

struct OrderSeen {
  bool known = false;
  Layout layout;  // tile_keys 0: no tile ends in the lengths that were asked about
  std::string words = "not observed";
  int32_t calls = 0;  // 0: nobody asked
};

struct OrderLimits {
  double seconds = 8;    // of the processor, for all calls on a line
  int32_t requests = 4;  // of different lengths
  int32_t keys = 4096;   // of the longest one
};

// In the process it is asked for in, like Caller; what the kernel does wrong makes the order unknown at most.
std::vector<SpikeSeen> spikes_by_calls(const Problem&, const Backend&, const assay_kernel&,
                                       const OrderLimits&, int32_t* calls);
// The plainest rule that gives what was seen.
OrderSeen order_rule(const Problem&, const std::vector<SpikeSeen>&);
OrderSeen order_by_calls(const Problem&, const Backend&, const assay_kernel&, const OrderLimits& = {});

// What capture() observed of its kernel.
inline const OrderSeen& order_of(const Evidence& e) {
  static const OrderSeen nobody;
  return e.order ? *e.order : nobody;
}

}  // namespace assay
