// SPDX-License-Identifier: Apache-2.0
// See read_twice.hpp.
#include "harness/check/session/read_twice.hpp"

#include <chrono>
#include <cmath>
#include <thread>

namespace assay {
namespace {

Snapshot timed(const std::function<Snapshot()>& read, double* seconds) {
  const auto start = std::chrono::steady_clock::now();
  Snapshot is = read();
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return is;
}

}  // namespace

ReadTwice read_twice(const std::function<Snapshot()>& read, double pause_s) {
  double once = 0, again = 0, later = 0;
  const Snapshot first = timed(read, &once);
  std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  const Snapshot second = timed(read, &again);
  ReadTwice is{first.changed_in(second), once - again};
  if (is.longer_s > 0) {
    timed(read, &later);
    is.longer_s -= std::abs(later - again);
  }
  return is;
}

}  // namespace assay
