// SPDX-License-Identifier: Apache-2.0
// Products of all shapes that do and do not fill blocks and panels, against plain sums: no farther than as
// many roundings as there are terms, and nothing written outside.
#include "reference/bounds/bounds_products.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace assay::matrix_bounds {
namespace {

template <class T>
class Products : public ::testing::Test {
 protected:
  std::vector<T> numbers(int64_t count) {
    std::normal_distribution<double> normal;
    std::vector<T> all(static_cast<size_t>(count));
    for (T& x : all) x = static_cast<T>(normal(random_));
    return all;
  }
  // Of row i and column d: `from` + factor * sum over k of left * right(k, d).
  template <class Right>
  void expect(const std::vector<T>& got, int64_t stride, int64_t rows, int64_t columns, int64_t depth,
              const std::vector<T>& left, int64_t left_stride, double factor, double from, Right right) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t d = 0; d < stride; ++d) {
        long double sum = 0, size = std::fabs(from);
        for (int64_t k = 0; d < columns && k < depth; ++k) {
          const long double term = static_cast<long double>(left[static_cast<size_t>(i * left_stride + k)]) *
                                   static_cast<long double>(right(k, d)) * factor;
          sum += term, size += std::fabs(term);
        }
        const auto off = static_cast<long double>(got[static_cast<size_t>(i * stride + d)]) - from - sum;
        const long double most =
            size * static_cast<long double>(depth + 4) * std::numeric_limits<T>::epsilon() / 2;
        ASSERT_LE(std::fabs(off), d < columns ? most : 0)
            << rows << " " << columns << " " << depth << " " << i << " " << d;
      }
  }

 private:
  std::mt19937_64 random_{5};
};
using Types = ::testing::Types<double, float>;
TYPED_TEST_SUITE(Products, Types);

TYPED_TEST(Products, AreThoseOfPlainSums) {
  using T = TypeParam;
  for (const int64_t rows : {1, 5, 6, 7, 8, 9, 17, 18, 31})
    for (const int64_t columns : {1, 16, 19, 64})
      for (const int64_t depth : {1, 7, 256, 300}) {
        const int64_t left_stride = depth + 3, stride = columns + 2;
        const std::vector<T> left = this->numbers(rows * left_stride), v = this->numbers(depth * columns);
        RightFactor<T> right;
        right.lay_out(v.data(), depth, columns, rows);
        std::vector<T> to(static_cast<size_t>(rows * stride), T{2});
        add_product(left.data(), left_stride, rows, right, T{4}, to.data(), stride);
        this->expect(to, stride, rows, columns, depth, left, left_stride, 4, 2,
                     [&](int64_t k, int64_t d) { return v[static_cast<size_t>(k * columns + d)]; });
        const std::vector<T> turned = this->numbers(columns * depth);
        right.lay_out_transposed(turned.data(), depth, columns);
        to.assign(to.size(), T{0});
        add_product(left.data(), left_stride, rows, right, T{1}, to.data(), stride);
        this->expect(to, stride, rows, columns, depth, left, left_stride, 1, 0,
                     [&](int64_t k, int64_t d) { return turned[static_cast<size_t>(d * depth + k)]; });
      }
}

TYPED_TEST(Products, SetAreThoseAddedToZeros) {
  using T = TypeParam;
  for (const int64_t rows : {1, 7, 8, 31})
    for (const int64_t columns : {16, 19, 64})
      for (const int64_t depth : {7, 256, 300}) {
        const int64_t stride = columns + 2;
        std::vector<T> left = this->numbers(rows * depth);
        std::fill_n(left.begin(), depth, T{0});  // a sum of 0, which the factor makes -0
        const std::vector<T> v = this->numbers(depth * columns);
        RightFactor<T> right;
        right.lay_out(v.data(), depth, columns, rows);
        std::vector<T> added(static_cast<size_t>(rows * stride), T{0}), set(added.size(), T{2});
        add_product(left.data(), depth, rows, right, T{-3}, added.data(), stride);
        set_product(left.data(), depth, rows, right, T{-3}, set.data(), stride);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t d = 0; d < stride; ++d) {
            const auto at = static_cast<size_t>(i * stride + d);
            ASSERT_EQ(set[at], d < columns ? added[at] : T{2}) << rows << " " << columns << " " << depth;
            ASSERT_EQ(std::signbit(set[at]), std::signbit(added[at])) << rows << " " << columns;
          }
      }
}

using DotProducts = Products<double>;
TEST_F(DotProducts, OfFewRowsAreThoseOfPlainSums) {
  for (const int64_t rows : {1, 3, 4, 8})
    for (const int64_t keys : {1, 4, 9})
      for (const int64_t depth : {1, 8, 21, 128}) {
        const std::vector<double> q = numbers(rows * depth), k = numbers(keys * depth);
        std::vector<double> to(static_cast<size_t>(rows * (keys + 1)), 0.0);
        dot_products(q.data(), rows, k.data(), keys, depth, to.data(), keys + 1);
        expect(to, keys + 1, rows, keys, depth, q, depth, 1, 0,
               [&](int64_t t, int64_t j) { return k[static_cast<size_t>(j * depth + t)]; });
      }
}

}  // namespace
}  // namespace assay::matrix_bounds
