// SPDX-License-Identifier: Apache-2.0
// input=codes: every kind of code of the storage format, each where an answer hangs on it. A channel of V, of
// a request and a head, holds one kind: the smallest codes (the subnormal ones, zeros of both signs), the
// largest ones, any, or ordinary values. It goes into one element of O alone, so a code that is read wrongly
// is as wrong there as it is by itself. Of K all channels of a request and a head are of one kind, and Q is
// as large as that is small, so that logits are of one size and Q's own codes of all; within a row sizes must
// not differ much, as the error of a product counts against the largest factors. Where
// a token or a request has a scale of K of its own, that of the smallest codes is as large as if the largest
// one stood among them, or they would not stay the smallest.
// Where Q and K both are 8-bit codes with a scale, sums of products must reach what an accumulator can be too
// narrow for: every other row of a request and head of largest K has the largest codes too, with the signs of
// a key it sees, and beside that key lies one of half its codes, which a sum that saturates cannot tell from
// it. Under a scale of Q that all share such a row makes the others small. Smallest codes of int8 still
// matter then, as all of K and Q have signs in common; those of fp8 are too small, so there the seed says
// which of the two kinds matters (multiplies_largest).
#pragma once

#include <cstdint>

#include "harness/base/random.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

enum class CodeKind : int32_t { kSmallest, kLargest, kAny, kOrdinary };
inline constexpr int32_t kCodeKinds = 4;

// The grid of a format as far as inputs may use it, in units of its codes. fp32 and bf16 have their
// subnormals where no kernel's arithmetic reaches, and their largest numbers where it ends: a part in the
// middle stands for the whole.
struct CodeGrid {
  double step;     // between the smallest codes
  int32_t small;   // how many of those there are above zero: subnormals and the first binade of normal ones
  double largest;  // code
  int32_t bits;    // of the fraction
  static CodeGrid of(int32_t format);
  double ulp_of_largest() const;  // int8 has no fraction, and all its codes are a step apart
};

class CodeKinds {
 public:
  explicit CodeKinds(const Problem&);

  // Rows as ValueSource has them, from the place of their first element in the counter. `root`: who owns what
  // the request shares (sharing_roots). `even_first`: place of the key at the even position of the pair.
  void q(int root, int32_t row, int32_t head, uint64_t first, double* out) const;
  void k(int root, int32_t position, int32_t head, uint64_t first, uint64_t even_first, double* out) const;
  void v(int root, int32_t head, uint64_t first, double* out) const;

  // Whether there are rows of largest codes that agree with a key; which rows, by the head of Q; one of them.
  bool multiplies_largest() const { return multiplies_largest_; }
  bool agrees(int root, int32_t row, int32_t head) const;
  void q_like(const double* k, uint64_t first, double* out) const;

  // Which kind a channel of V holds, and all channels of K.
  static CodeKind of_v(int root, int32_t head, int32_t dim);
  CodeKind of_k(int root, int32_t head) const;
  // What the largest code of a scale of K stands for at least, before sizes of units differ; 0: no more than
  // its values say.
  double k_up_to(int root, int32_t head) const {
    const bool own = p_.k_scale == ASSAY_SCALE_REQUEST_HEAD || p_.k_scale == ASSAY_SCALE_TOKEN_HEAD;
    return own && of_k(root, head) == CodeKind::kSmallest ? k_.unit * k_.grid.largest : 0;
  }

 private:
  struct Stored {
    CodeGrid grid;
    double unit;              // what a code of 1 stands for
    double size[kCodeKinds];  // typical, of each kind
  };
  static Stored stored(int32_t format, int32_t scale);
  static double value(const Stored&, CodeKind, const CounterRng&, uint64_t at);
  double common_sign(int root, int32_t head, int32_t dim) const;

  const Problem& p_;
  Stored k_, v_;
  double logit_;          // size of a channel's part in a logit, before the softmax scale
  double largest_q_ = 0;  // code of Q, where it is one that has no scale
  bool multiplies_largest_ = false, q_shares_ = false;  // a scale of Q with other requests
  double full_q_ = 0;                                   // what Q's largest code stands for
};

}  // namespace assay
