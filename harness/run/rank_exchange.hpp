// SPDX-License-Identifier: Apache-2.0
// Memory that this process and its children share, and the exchanges of ranks through it: what connects ranks
// whose kernels work on host memory (harness/abi/assay_group.h). Ranks that died or hang are not noticed
// here: the others wait, and whoever started them all ends them (rank_group.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/abi/assay_group.h"

namespace assay {

// Anonymous memory of any size, zero at first, that a child of this process opens by its path.
// InfrastructureError when there is none.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t bytes);
  explicit SharedMemory(const std::string& path);  // somebody else's, who still has it
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  unsigned char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  std::string path() const;  // for children of this process

 private:
  void map(const std::vector<int64_t>& sizes);  // of the files
  void close_all();
  std::vector<int> fds_;
  int64_t bytes_ = 0;
  unsigned char* data_ = nullptr;
};

inline constexpr int32_t kMostRanks = 64;

// Bytes of memory for the exchanges of so many ranks; makes it ready, once, before a rank uses it.
int64_t exchange_bytes(int32_t ranks);
void prepare_exchange(const SharedMemory&, int32_t ranks);
// A rank's end, whose functions work on `memory` as long as that lives.
assay_group exchange_of(const SharedMemory& memory, int32_t rank, int32_t ranks);
// Exchanges that a rank has entered so far.
int64_t exchanges_entered(const SharedMemory&, int32_t rank);

}  // namespace assay
