// SPDX-License-Identifier: Apache-2.0
// Keys that share products. Where two keys have the same elements in neighbouring dimensions, a kernel adds
// up the same products for both, and what it rounds there is one error of both. Errors of dot products that
// many keys share do not average over the keys (BOUNDS.md, L22 and check 4). Some keys of a row are looked
// at, spread over it, and where its weight is on few keys, some of these.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace assay {

class SharedProducts {
 public:
  explicit SharedProducts(int64_t dims) : dims_(dims) {}
  // The next key, as it is multiplied.
  void add(const double* k);
  // Share of their products that two of the keys added have in common, on average over all pairs. Elements of
  // `q` that make no difference to a sum take no part; null: all do.
  double common(const double* q) const;

  // Of the keys [0, keys), those that are looked at wherever the weight is: one of each of as many stretches.
  static std::vector<int64_t> spread(int64_t keys);

 private:
  double share(size_t a, size_t b, const double* q, double least_q) const;
  int64_t dims_;
  std::vector<uint16_t> codes_;  // [key, dimension]: signs, exponents and 7 bits of the mantissa
};

// Whether some elements of Q are so small beside the largest, or 0, that they make no difference to a sum.
bool leaves_out(const double* q, int64_t dims);

// What a row's heaviest keys, where they are few of `count`, err by as one: how many of them, on average. x:
// scores by key, the largest of which is top. `read` gives a key as it is multiplied.
double heavy_keys_together(int64_t dims, const double* q, const double* x, int64_t count, double top,
                           const std::function<void(int64_t, double*)>& read);

}  // namespace assay
