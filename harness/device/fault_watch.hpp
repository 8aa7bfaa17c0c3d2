// SPDX-License-Identifier: Apache-2.0
// Says what a kernel of the host touched when an access ends the process: which operand, which side of it,
// how far. The line goes to stderr, from where whoever watches the process takes it into the kernel's row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/device/backend.hpp"

namespace assay {

// In front of what is said, so that it is told from what kernels print.
inline constexpr std::string_view kFaultMark = "assay: ";

struct WatchedMemory {
  std::string name;
  const std::byte* payload = nullptr;
  int64_t bytes = 0;
  // Addresses that belong to it and to nothing else, unreadable pages included; those of the payload where
  // there is no fence.
  const std::byte *begin = nullptr, *end = nullptr;
  // How its addresses are counted: "block", "row", "request", "entry", so many bytes apart from `first` on;
  // null where that says nothing.
  const char* unit = nullptr;
  int64_t unit_bytes = 0, units = 0, first = 0;
  int64_t absurd = -1;  // the unit that the table names behind the last page of a request
};

// Sets how addresses of the operand are counted.
void count_units(WatchedMemory&, const Problem&, Operand);

// Operands and workspace of a call as they lie in the memory of this process; empty where the backend's
// kernels take other memory.
std::vector<WatchedMemory> watched_operands(const Backend&, const Inputs&, const assay_tensors& of_call);

// SIGSEGV and SIGBUS while it lives, which is while the list does; one inside of another counts. Without a
// list nothing happens.
class FaultWatch {
 public:
  explicit FaultWatch(const std::vector<WatchedMemory>&);
  ~FaultWatch();
  FaultWatch(const FaultWatch&) = delete;
  FaultWatch& operator=(const FaultWatch&) = delete;

 private:
  struct Before;
  const std::vector<WatchedMemory>* outer_;
  std::unique_ptr<Before> before_;
};

}  // namespace assay
