// SPDX-License-Identifier: Apache-2.0
// Register-blocked products for few rows, written with the compiler's portable vectors of eight doubles
// (split up where the machine has narrower ones). Blocks of four rows by four keys (scores) and four rows by
// four vectors (accumulation) keep sixteen sums in flight, enough to hide the latency of an addition.
#include "reference/attention/few_rows.hpp"

#include <cstring>

namespace assay {
namespace {

typedef double Vector __attribute__((vector_size(64)));
constexpr int64_t kLanes = 8;
constexpr int kBlock = 4;

inline Vector load_vector(const double* from) {
  Vector v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

inline void store_vector(double* to, Vector v) { std::memcpy(to, &v, sizeof(v)); }

inline double total(Vector v) { return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7])); }

template <int kRows, int kKeys>
void scores_block(const double* q, const double* k, int64_t dim, double* scores, int64_t stride) {
  Vector sums[kRows][kKeys] = {};
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    Vector key[kKeys];
    for (int j = 0; j < kKeys; ++j) key[j] = load_vector(k + j * dim + d);
    for (int r = 0; r < kRows; ++r) {
      const Vector query = load_vector(q + r * dim + d);
      for (int j = 0; j < kKeys; ++j) sums[r][j] += query * key[j];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kKeys; ++j) {
      double tail = 0;
      for (int64_t rest = d; rest < dim; ++rest) tail += q[r * dim + rest] * k[j * dim + rest];
      scores[r * stride + j] = total(sums[r][j]) + tail;
    }
  }
}

template <int kRows>
void scores_rows(const double* q, const double* k, int64_t keys, int64_t dim, double* scores,
                 int64_t stride) {
  int64_t j = 0;
  for (; j + kBlock <= keys; j += kBlock)
    scores_block<kRows, kBlock>(q, k + j * dim, dim, scores + j, stride);
  for (; j < keys; ++j) scores_block<kRows, 1>(q, k + j * dim, dim, scores + j, stride);
}

template <int kRows, int kVectors>
void accumulate_block(const double* weights, int64_t stride, const double* v, int64_t keys, int64_t dim,
                      double* acc) {
  Vector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kVectors; ++i) sums[r][i] = load_vector(acc + r * dim + i * kLanes);
  for (int64_t j = 0; j < keys; ++j) {
    Vector value[kVectors];
    for (int i = 0; i < kVectors; ++i) value[i] = load_vector(v + j * dim + i * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const double weight = weights[r * stride + j];
      for (int i = 0; i < kVectors; ++i) sums[r][i] += weight * value[i];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kVectors; ++i) store_vector(acc + r * dim + i * kLanes, sums[r][i]);
}

template <int kRows>
void accumulate_rows(const double* weights, int64_t stride, const double* v, int64_t keys, int64_t dim,
                     double* acc) {
  int64_t d = 0;
  for (; d + kBlock * kLanes <= dim; d += kBlock * kLanes)
    accumulate_block<kRows, kBlock>(weights, stride, v + d, keys, dim, acc + d);
  for (; d + kLanes <= dim; d += kLanes)
    accumulate_block<kRows, 1>(weights, stride, v + d, keys, dim, acc + d);
  for (; d < dim; ++d)
    for (int r = 0; r < kRows; ++r)
      for (int64_t j = 0; j < keys; ++j) acc[r * dim + d] += weights[r * stride + j] * v[j * dim + d];
}

}  // namespace

void few_rows_scores(const double* q, int64_t rows, const double* k, int64_t keys, int64_t dim,
                     double* scores, int64_t stride) {
  int64_t r = 0;
  for (; r + kBlock <= rows; r += kBlock)
    scores_rows<kBlock>(q + r * dim, k, keys, dim, scores + r * stride, stride);
  for (; r < rows; ++r) scores_rows<1>(q + r * dim, k, keys, dim, scores + r * stride, stride);
}

void few_rows_accumulate(const double* weights, int64_t stride, int64_t rows, const double* v, int64_t keys,
                         int64_t dim, double* acc) {
  int64_t r = 0;
  for (; r + kBlock <= rows; r += kBlock)
    accumulate_rows<kBlock>(weights + r * stride, stride, v, keys, dim, acc + r * dim);
  for (; r < rows; ++r) accumulate_rows<1>(weights + r * stride, stride, v, keys, dim, acc + r * dim);
}

}  // namespace assay
