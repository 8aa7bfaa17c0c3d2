// SPDX-License-Identifier: Apache-2.0
// See bounds_products.hpp. Written with the compiler's portable vectors; multiplications and additions fuse
// here (CMakeLists.txt).
#include "reference/bounds/bounds_products.hpp"

#include <algorithm>
#include <cstring>

namespace assay::matrix_bounds {
namespace {

// Rows of a block: with two vectors each they keep twelve sums in flight, which hides the latency of an
// addition and leaves four of sixteen registers for the factors.
constexpr int kBlockRows = 6;
// Rows of a panel that stay in the first-level cache while all rows of the left factor pass over them.
constexpr int64_t kDepth = 256;

template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(RightFactor<T>::kPanel / 2 * sizeof(T))));
};
template <class T>
using Vector = typename VectorOf<T>::Type;

template <class T>
inline Vector<T> load_vector(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
// A sum of -0 is 0 in either form.
template <bool kAdd, class T>
inline void add_vector(T* to, Vector<T> v) {
  v += kAdd ? load_vector(to) : Vector<T>{};
  std::memcpy(to, &v, sizeof v);
}

// kRows rows by one panel, of which `columns` are there, added to what is in `to` or (kAdd = false) to 0.
template <class T, int kRows, bool kAdd>
void multiply_block(const T* left, int64_t left_stride, const T* right, int64_t step, int64_t depth, T factor,
                    T* to, int64_t to_stride, int64_t columns) {
  constexpr int64_t kPanel = RightFactor<T>::kPanel, kLanes = kPanel / 2;
  Vector<T> low[kRows] = {}, high[kRows] = {};
  for (int64_t k = 0; k < depth; ++k, right += step) {
    const Vector<T> first = load_vector(right), second = load_vector(right + kLanes);
    for (int r = 0; r < kRows; ++r) {
      const T a = left[r * left_stride + k];
      low[r] += a * first;
      high[r] += a * second;
    }
  }
  if (columns == kPanel) {
    for (int r = 0; r < kRows; ++r) {
      add_vector<kAdd>(to + r * to_stride, factor * low[r]);
      add_vector<kAdd>(to + r * to_stride + kLanes, factor * high[r]);
    }
    return;
  }
  for (int r = 0; r < kRows; ++r) {
    T part[kPanel] = {};
    add_vector<true>(part, factor * low[r]);
    add_vector<true>(part + kLanes, factor * high[r]);
    for (int64_t d = 0; d < columns; ++d)
      to[r * to_stride + d] = (kAdd ? to[r * to_stride + d] : T{0}) + part[d];
  }
}

// Up to kRows rows. What a block leaves over keeps few sums in flight, so two blocks share it.
template <class T, int kRows, bool kAdd>
void multiply_rest(int64_t rows, const T* left, int64_t left_stride, const T* right, int64_t step,
                   int64_t depth, T factor, T* to, int64_t to_stride, int64_t columns) {
  if constexpr (kRows > kBlockRows) {
    constexpr int kFirst = kBlockRows - 2;
    if (rows < kRows)
      return multiply_rest<T, kRows - 1, kAdd>(rows, left, left_stride, right, step, depth, factor, to,
                                               to_stride, columns);
    multiply_block<T, kFirst, kAdd>(left, left_stride, right, step, depth, factor, to, to_stride, columns);
    multiply_block<T, kRows - kFirst, kAdd>(left + kFirst * left_stride, left_stride, right, step, depth,
                                            factor, to + kFirst * to_stride, to_stride, columns);
  } else if constexpr (kRows > 0) {
    if (rows == kRows)
      multiply_block<T, kRows, kAdd>(left, left_stride, right, step, depth, factor, to, to_stride, columns);
    else
      multiply_rest<T, kRows - 1, kAdd>(rows, left, left_stride, right, step, depth, factor, to, to_stride,
                                        columns);
  }
}

// Rows of `left` by rows [from, from + depth) of the right factor.
template <class T, bool kAdd>
void multiply_part(const T* left, int64_t left_stride, int64_t rows, const RightFactor<T>& right,
                   int64_t from, int64_t depth, T factor, T* to, int64_t to_stride) {
  constexpr int64_t kPanel = RightFactor<T>::kPanel, kMostLeft = kBlockRows + 2;
  for (int64_t at = 0, n = 0; at < right.columns(); at += kPanel, ++n) {
    const int64_t columns = std::min(kPanel, right.columns() - at);
    const T* panel = right.panel(n) + from * right.step();
    const auto at_row = [&](int64_t i) { return left + i * left_stride + from; };
    int64_t i = 0;
    for (; rows - i > kMostLeft; i += kBlockRows)
      multiply_block<T, kBlockRows, kAdd>(at_row(i), left_stride, panel, right.step(), depth, factor,
                                          to + i * to_stride + at, to_stride, columns);
    multiply_rest<T, kMostLeft, kAdd>(rows - i, at_row(i), left_stride, panel, right.step(), depth, factor,
                                      to + i * to_stride + at, to_stride, columns);
  }
}

}  // namespace

template <class T>
int64_t RightFactor<T>::begin(int64_t depth, int64_t columns) {
  depth_ = depth, columns_ = columns;
  const int64_t panels = (columns + kPanel - 1) / kPanel;
  step_ = kPanel, next_ = depth * kPanel;
  packed_.resize(static_cast<size_t>(panels * next_));
  first_ = packed_.data();
  return panels;
}

template <class T>
void RightFactor<T>::lay_out(const T* from, int64_t depth, int64_t columns, int64_t rows) {
  if (rows < kWorthACopy && columns % kPanel == 0) {
    depth_ = depth, columns_ = columns;
    first_ = from, step_ = columns, next_ = kPanel;
    return;
  }
  const int64_t panels = begin(depth, columns);
  for (int64_t n = 0; n < panels; ++n) {
    const int64_t here = std::min(kPanel, columns - n * kPanel);
    T* to = packed_.data() + n * next_;
    for (int64_t k = 0; k < depth; ++k, to += kPanel) {
      const T* row = from + k * columns + n * kPanel;
      if (here == kPanel)
        std::memcpy(to, row, kPanel * sizeof(T));
      else
        std::fill(std::copy(row, row + here, to), to + kPanel, T{0});
    }
  }
}

template <class T>
void RightFactor<T>::lay_out_transposed(const T* from, int64_t depth, int64_t columns) {
  const int64_t panels = begin(depth, columns);
  for (int64_t n = 0; n < panels; ++n) {
    const int64_t here = std::min(kPanel, columns - n * kPanel);
    const T* rows = from + n * kPanel * depth;
    T* to = packed_.data() + n * next_;
    for (int64_t k = 0; k < depth; ++k, to += kPanel) {
      if (here == kPanel)
        for (int64_t j = 0; j < kPanel; ++j) to[j] = rows[j * depth + k];
      else
        for (int64_t j = 0; j < kPanel; ++j) to[j] = j < here ? rows[j * depth + k] : T{0};
    }
  }
}

template <class T>
void add_product(const T* left, int64_t left_stride, int64_t rows, const RightFactor<T>& right, T factor,
                 T* to, int64_t to_stride) {
  for (int64_t from = 0; from < right.depth(); from += kDepth)
    multiply_part<T, true>(left, left_stride, rows, right, from, std::min(kDepth, right.depth() - from),
                           factor, to, to_stride);
}

template <class T>
void set_product(const T* left, int64_t left_stride, int64_t rows, const RightFactor<T>& right, T factor,
                 T* to, int64_t to_stride) {
  multiply_part<T, false>(left, left_stride, rows, right, 0, std::min(kDepth, right.depth()), factor, to,
                          to_stride);
  for (int64_t from = kDepth; from < right.depth(); from += kDepth)
    multiply_part<T, true>(left, left_stride, rows, right, from, std::min(kDepth, right.depth() - from),
                           factor, to, to_stride);
}

namespace {

// Rows and keys of a block of dot products: twelve sums in flight, as above.
constexpr int kDotRows = 3, kDotKeys = 4;

template <int kRows, int kKeys>
void dot_block(const double* q, const double* k, int64_t depth, double* to, int64_t to_stride) {
  constexpr int64_t kLanes = RightFactor<double>::kPanel / 2;
  Vector<double> sums[kRows][kKeys] = {};
  int64_t t = 0;
  for (; t + kLanes <= depth; t += kLanes) {
    Vector<double> key[kKeys];
    for (int j = 0; j < kKeys; ++j) key[j] = load_vector(k + j * depth + t);
    for (int r = 0; r < kRows; ++r) {
      const Vector<double> query = load_vector(q + r * depth + t);
      for (int j = 0; j < kKeys; ++j) sums[r][j] += query * key[j];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kKeys; ++j) {
      double sum = 0;
      for (int64_t lane = 0; lane < kLanes; ++lane) sum += sums[r][j][lane];
      for (int64_t rest = t; rest < depth; ++rest) sum += q[r * depth + rest] * k[j * depth + rest];
      to[r * to_stride + j] = sum;
    }
}

template <int kRows>
void dot_rows(const double* q, const double* k, int64_t keys, int64_t depth, double* to, int64_t to_stride) {
  int64_t j = 0;
  for (; j + kDotKeys <= keys; j += kDotKeys)
    dot_block<kRows, kDotKeys>(q, k + j * depth, depth, to + j, to_stride);
  for (; j < keys; ++j) dot_block<kRows, 1>(q, k + j * depth, depth, to + j, to_stride);
}

}  // namespace

void dot_products(const double* q, int64_t rows, const double* k, int64_t keys, int64_t depth, double* to,
                  int64_t to_stride) {
  int64_t i = 0;
  for (; i + kDotRows <= rows; i += kDotRows)
    dot_rows<kDotRows>(q + i * depth, k, keys, depth, to + i * to_stride, to_stride);
  for (; i < rows; ++i) dot_rows<1>(q + i * depth, k, keys, depth, to + i * to_stride, to_stride);
}

template class RightFactor<double>;
template class RightFactor<float>;
template void add_product(const double*, int64_t, int64_t, const RightFactor<double>&, double, double*,
                          int64_t);
template void add_product(const float*, int64_t, int64_t, const RightFactor<float>&, float, float*, int64_t);
template void set_product(const double*, int64_t, int64_t, const RightFactor<double>&, double, double*,
                          int64_t);
template void set_product(const float*, int64_t, int64_t, const RightFactor<float>&, float, float*, int64_t);

}  // namespace assay::matrix_bounds
