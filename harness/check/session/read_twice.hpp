// SPDX-License-Identifier: Apache-2.0
// Outputs read twice after a call has ended: what somebody still wrote, and whether the first reading had to
// wait.
#pragma once

#include <functional>
#include <string>

#include "harness/check/session/session.hpp"

namespace assay {

struct ReadTwice {
  std::string changed;  // what differs between the readings, or ""
  // Seconds by which the first reading took longer than the second, less what two later ones differ by:
  // readings of megabytes differ by themselves, most on a busy host. Work of a kernel's that waits to be
  // looked at is more.
  double longer_s = 0;
};
// `pause_s` seconds apart. A third reading is made only where the first took longer.
ReadTwice read_twice(const std::function<Snapshot()>& read, double pause_s);

}  // namespace assay
