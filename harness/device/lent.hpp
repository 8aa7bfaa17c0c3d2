// SPDX-License-Identifier: Apache-2.0
// What kernels get to read through pointers to const and nobody guards: structs and lists of the host. Kept,
// compared, and put back, so that what one kernel wrote there meets no other.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/device/backend.hpp"

namespace assay {

class Lent {
 public:
  void lend(std::string name, const void* data, size_t bytes);
  void lend(const assay_problem&);  // with the lists it points to
  void lend(const Backend&);        // the entry of each of its kernels
  // What is not as it was lent, in words, "" when all is; afterwards it is.
  std::string restore();

 private:
  struct Piece {
    std::string name;
    std::byte* data;
    std::vector<std::byte> bytes;
  };
  std::vector<Piece> pieces_;
};

}  // namespace assay
