// SPDX-License-Identifier: Apache-2.0
// The operands of one rank of a step, made from those of the whole step (harness/abi/assay_group.h says what
// a rank gets), in memory that both processes see; and what the rank wrote, put back where it belongs. The
// one statement of who owns which key and where it lies; kernels have their own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/run/rank_exchange.hpp"

namespace assay {

// Inverse of the turns: who holds key `key` of a request, and as which of its keys.
struct KeyOwner {
  int32_t rank = 0, index = 0;
  bool operator==(const KeyOwner&) const = default;
};
KeyOwner owner_of(int32_t key, int32_t ranks, int32_t interleave);

// What lies in the shared memory: this, then lengths and operands. Pointers are offsets in there.
struct RankCall {
  assay_problem problem;
  assay_tensors tensors;
  int64_t q_len, kv_len;
};
// Turns the offsets into addresses of this process.
void place(RankCall&, unsigned char* memory);
// Bytes from the first element to the last one's end; 0 where there is none.
int64_t extent_bytes(const assay_tensor&);
inline constexpr size_t kTensorFields =
    (sizeof(assay_tensors) - offsetof(assay_tensors, q)) / sizeof(assay_tensor);
inline assay_tensor* fields_of(assay_tensors& t) { return &t.q; }

// Blocks of the cache that hold new keys of the whole step, each once.
std::vector<int64_t> written_blocks(const assay_problem&, const assay_tensors&);

class RankOperands {
 public:
  // Of the whole step, on the host. `unused`: what every byte holds that the rank may not read.
  RankOperands(const assay_problem&, const assay_tensors&, int32_t rank, unsigned char unused);
  // The same of another call; false where its operands take other room, and nothing was done.
  bool refill(const assay_problem&, const assay_tensors&, unsigned char unused);
  std::string path() const { return memory_.path(); }
  // O and the new keys of this rank, as it left them, into the whole step's. Why that cannot be, or "". Once
  // after every run.
  std::string put_back(const assay_problem&, const assay_tensors&);

 private:
  const RankCall& call() const { return *reinterpret_cast<const RankCall*>(memory_.data()); }
  assay_tensor own(size_t field) const;
  void fill(const assay_problem&, const assay_tensors&, unsigned char unused);
  int32_t rank_;
  SharedMemory memory_;
  std::unique_ptr<unsigned char[]> before_[2];  // of the cache, K and V
};

}  // namespace assay
