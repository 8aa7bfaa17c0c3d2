// SPDX-License-Identifier: Apache-2.0
// A chain of partial results between the stages of a step (assay_arithmetic::chained_requests): contexts
// are cut as chunk_metadata cuts them, the result of each chunk is stored, merged with those before it and
// stored again, and the new keys come last. Where chunks end is known, so what is rounded is, too
// (BOUNDS.md, section 12), whatever order the keys of a chunk have.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "harness/abi/assay_kernel.h"
#include "harness/problem/request_class.hpp"

namespace assay {

// Of one request.
struct Chain {
  int64_t each = 0, context = 0;  // keys of a chunk, 0: no chain; keys before the new ones
  explicit operator bool() const { return each > 0; }
  // Behind the last key of the link that holds this one.
  int64_t end(int64_t key) const {
    return key < context ? std::min((key / each + 1) * each, context) : std::numeric_limits<int64_t>::max();
  }
};

// Of merging that results of a request go through, and those of them that round to a format of 16 bits: a
// merge with a chunk without keys leaves such a result as it is. 0: all there are.
struct MergeLevels {
  int64_t all = 0, rounded = 0;
};

inline int32_t chained_classes(const assay_arithmetic& a) {
  return a.splits > 1 && a.splits_vary != 0 ? a.chained_requests : 0;
}

// Those of a batch. The problem is kept by reference.
class Chains {
 public:
  Chains(const Problem& p, const assay_arithmetic& a)
      : p_(p), classes_(chained_classes(a)), levels_(std::max(1, a.partial_roundings)) {
    if (classes_ == 0) return;
    int64_t extends = 0, longest = 0;
    for (const Request& r : p.requests)
      if (has(r) && r.context_len() > 0) ++extends, longest = std::max<int64_t>(longest, r.context_len());
    each_ = chunk_keys(p, std::max<int64_t>(1, extends));
    longest_ = (longest + each_ - 1) / each_;
  }
  Chain of(int32_t request) const {
    const Request& own = p_.requests[static_cast<size_t>(request)];
    return has(own) ? Chain{each_, std::max(0, own.context_len())} : Chain{};
  }
  // Of those declared for all: one in place of the longest chain's, which has as many as chunks, where the
  // request has no chain.
  MergeLevels levels(int32_t request) const {
    const Chain own = of(request);
    const int64_t chunks = own ? (own.context + own.each - 1) / own.each : 1;
    return {with(own ? longest_ : 1), with(chunks)};
  }

 private:
  // All levels, with so many of a chain in place of the longest.
  int64_t with(int64_t chunks) const {
    return longest_ == 0 ? levels_ : std::max<int64_t>(1, levels_ - longest_ + std::max<int64_t>(1, chunks));
  }
  bool has(const Request& r) const { return (classes_ & request_class(p_, r)) != 0; }
  const Problem& p_;
  const int32_t classes_;
  const int64_t levels_;
  int64_t each_ = 0, longest_ = 0;  // keys of a chunk; chunks of the longest chain
};

// What the stages of a chain round, of one channel (T double) or of a block's rows and channels (a matrix):
// the sum of |A_s| of every link and of |A_1 + .. + A_s| from the second on, A_s being what a link has of O.
template <class T>
class ChainSums {
 public:
  explicit ChainSums(const T& zero) : link(zero), zero_(zero), running_(zero), stored_(zero) {}
  // A link ends, and with it what `link` has summed up. What is merged with new keys is O itself: not
  // `stored`.
  void end_link(bool stored = true) {
    stored_ += size(link);
    running_ += link;
    if (stored && links_++ > 0) stored_ += size(running_);
    link = zero_;
  }
  const T& stored() const { return stored_; }

  T link;  // sum p v of the keys of the link that has not ended

 private:
  static double size(double x) { return std::fabs(x); }
  template <class M>
  static auto size(const Eigen::MatrixBase<M>& m) {
    return m.cwiseAbs();
  }
  T zero_, running_, stored_;
  int64_t links_ = 0;
};

}  // namespace assay
