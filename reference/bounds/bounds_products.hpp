// SPDX-License-Identifier: Apache-2.0
// The matrix products of the matrix form. Half of its time is in them, on tiles that never change their
// shape, so the right factor is laid out once for all products that share it, and blocks of rows pass over it
// in vector registers. Sums are added up in no declared order: n terms err by no more than n roundings.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::matrix_bounds {

// What a row-major matrix [depth, columns] is as a right factor: panels of a few vectors of columns, each in
// one piece. Where few rows pass over it that is not worth a copy, and the panels stay where they are.
template <class T>
class RightFactor {
 public:
  // Columns of a panel: two registers of the widest vectors.
#ifdef __AVX512F__
  static constexpr int64_t kPanel = 2 * 64 / sizeof(T);
#else
  static constexpr int64_t kPanel = 2 * 32 / sizeof(T);
#endif
  // `from` must stay while the factor is used. `rows`: of the left factors to come.
  void lay_out(const T* from, int64_t depth, int64_t columns, int64_t rows);
  // The transpose of a row-major [columns, depth].
  void lay_out_transposed(const T* from, int64_t depth, int64_t columns);

  int64_t depth() const { return depth_; }
  int64_t columns() const { return columns_; }
  // Row k of panel n begins at panel(n) + k * step(); what is beyond the columns is 0.
  const T* panel(int64_t n) const { return first_ + n * next_; }
  int64_t step() const { return step_; }

 private:
  int64_t begin(int64_t depth, int64_t columns);
  std::vector<T> packed_;
  const T* first_ = nullptr;
  int64_t depth_ = 0, columns_ = 0, next_ = 0, step_ = 0;
};

// to [rows, columns] += factor * (left [rows, depth] * right), all row-major with the strides given.
template <class T>
void add_product(const T* left, int64_t left_stride, int64_t rows, const RightFactor<T>& right, T factor,
                 T* to, int64_t to_stride);
// The same where `to` holds nothing yet: bit for bit what add_product() makes of zeros.
template <class T>
void set_product(const T* left, int64_t left_stride, int64_t rows, const RightFactor<T>& right, T factor,
                 T* to, int64_t to_stride);

// to [rows, keys] = q [rows, depth] times the transpose of k [keys, depth], where few rows pass over k.
void dot_products(const double* q, int64_t rows, const double* k, int64_t keys, int64_t depth, double* to,
                  int64_t to_stride);
// Fewer rows are few.
inline constexpr int64_t kWorthACopy = 18;

}  // namespace assay::matrix_bounds
