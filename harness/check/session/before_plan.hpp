// SPDX-License-Identifier: Apache-2.0
// What the operands of a case hold while a kernel makes its plan: other contents of the same shapes than
// every run finds, so that what a plan has read of them (values, scales, sinks, slopes, tables) shows in the
// run. A plan may keep what follows from the problem, and nothing else of what lies in memory
// (harness/abi/README.md).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "harness/input/inputs.hpp"

namespace assay {

// How the reason of a verdict ends where that is what is wrong.
inline constexpr std::string_view kKeptFromPlan = "it keeps what it read then";

class OtherContents {
 public:
  // On the host: values get other signs; scales, sinks, slopes and LSEs that are read are twice as large; in
  // tables of pages the first and the last page of each request change places.
  explicit OtherContents(Inputs&);
  ~OtherContents() { put_back(); }
  OtherContents(const OtherContents&) = delete;
  OtherContents& operator=(const OtherContents&) = delete;
  // Every byte as it was, on the host. Who holds a copy on a device brings it there again.
  void put_back();

 private:
  struct Kept {
    Operand operand;
    std::vector<std::byte> bytes;
  };
  void keep(Operand);
  void twice(Operand);
  void exchange_pages();

  Inputs* inputs_;  // null once all is as it was
  bool turned_ = false;
  std::vector<Kept> kept_;
};

}  // namespace assay
