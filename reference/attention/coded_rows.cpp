// SPDX-License-Identifier: Apache-2.0
// Register-blocked products with the compiler's portable vectors (split up where the machine has narrower
// ones). A decoder turns sixteen codes into two vectors of eight doubles in whatever order is cheapest; the
// other operand, q or the accumulator, is brought into the same order once per call. As many sums are in
// flight for every number of rows as hide the latency of an addition and fit the registers; each adds up in
// the same order whatever is beside it.
#include "reference/attention/coded_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#if defined(__AVX512F__) || defined(__F16C__)
#  include <immintrin.h>
#endif

#include "harness/abi/assay_kernel.h"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

typedef double Doubles __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
typedef int32_t Integers __attribute__((vector_size(32)));
typedef int8_t Bytes __attribute__((vector_size(8)));

constexpr int kCodes = 16;      // per decoding step
constexpr int64_t kChunk = 64;  // vectors kept in the first-level cache while the rows pass over them
constexpr int64_t kAhead = 16;  // vectors asked for ahead: pages lie scattered, nothing else guesses them
constexpr int64_t kLine = 64;   // bytes

// Rows of a block, keys of one that is scored, and pairs of vectors of one that is accumulated. Of 16
// registers of half the width each sum takes two.
#ifdef __AVX512F__
constexpr int kMostRows = 8;
constexpr int block_keys(int rows) { return rows >= 8 ? 2 : rows >= 2 ? 4 : 8; }
constexpr int block_pairs(int rows) { return 8 / rows; }
#else
constexpr int kMostRows = 2;
constexpr int block_keys(int rows) { return 4 / rows; }
constexpr int block_pairs(int rows) { return 4 / rows; }
#endif

template <class Vector>
inline Vector load_as(const void* from) {
  Vector v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

struct Pair {
  Doubles first, second;
};

// GCC 12 converts halves of portable vectors and joins them, which costs more than the conversion.
inline Doubles widen(Floats v) {
#ifdef __AVX512F__
  return Doubles(_mm512_cvtps_pd(__m256(v)));
#else
  return __builtin_convertvector(v, Doubles);
#endif
}
inline Doubles widen(Bytes v) {
#ifdef __AVX512F__
  return Doubles(_mm512_cvtepi32_pd(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(std::bit_cast<int64_t>(v)))));
#else
  return __builtin_convertvector(__builtin_convertvector(v, Integers), Doubles);
#endif
}

// Every decoder: bytes of a code, decode() of 16 codes, and place(i), where code i ends up in the pair.
struct Bf16 {
  static constexpr int kBytes = 2;
  // The halves of eight words, both upper halves of a float: neighbours come apart.
  static Pair decode(const std::byte* from) {
    const Words words = load_as<Words>(from);
    const Words even = words << 16, odd = words & 0xffff0000u;
    return {widen(std::bit_cast<Floats>(even)), widen(std::bit_cast<Floats>(odd))};
  }
  static constexpr int place(int i) { return i % 2 * 8 + i / 2; }
};

struct Fp32 {
  static constexpr int kBytes = 4;
  static Pair decode(const std::byte* from) {
    return {widen(load_as<Floats>(from)), widen(load_as<Floats>(from + 32))};
  }
  static constexpr int place(int i) { return i; }
};

#ifdef __F16C__
struct Fp16 {
  static constexpr int kBytes = 2;
  static Doubles eight(const std::byte* from) {
    return widen(Floats(_mm256_cvtph_ps(load_as<__m128i>(from))));
  }
  static Pair decode(const std::byte* from) { return {eight(from), eight(from + 16)}; }
  static constexpr int place(int i) { return i; }
};
#endif

struct Int8 {
  static constexpr int kBytes = 1;
  static Pair decode(const std::byte* from) {
    return {widen(load_as<Bytes>(from)), widen(load_as<Bytes>(from + 8))};
  }
  static constexpr int place(int i) { return i; }
};

// The values of all codes of a format.
template <int32_t format>
const double* table_of() {
  static const std::array<double, 256> table = [] {
    std::array<double, 256> values;
    for (uint32_t code = 0; code < 256; ++code) values[code] = assay::decode(format, code);
    return values;
  }();
  return table.data();
}

struct Table8 {
  static constexpr int kBytes = 1;
  const double* table;
  Doubles eight(const std::byte* from) const {
#ifdef __AVX512F__
    const __m256i index = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(load_as<int64_t>(from)));
    return Doubles(_mm512_i32gather_pd(index, table, 8));
#else
    Doubles out;
    for (int i = 0; i < 8; ++i) out[i] = table[uint8_t(from[i])];
    return out;
#endif
  }
  Pair decode(const std::byte* from) const { return {eight(from), eight(from + 8)}; }
  static constexpr int place(int i) { return i; }
};

template <class F>
void with_decoder(int32_t format, F&& f) {
  switch (format) {
    case ASSAY_BF16:
      return f(Bf16{});
    case ASSAY_FP32:
      return f(Fp32{});
#ifdef __F16C__
    case ASSAY_FP16:
      return f(Fp16{});
#endif
    case ASSAY_INT8:
      return f(Int8{});
    case ASSAY_FP8_E4M3:
      return f(Table8{table_of<ASSAY_FP8_E4M3>()});
    case ASSAY_FP8_E5M2:
      return f(Table8{table_of<ASSAY_FP8_E5M2>()});
    case ASSAY_FP8_E4M3FNUZ:
      return f(Table8{table_of<ASSAY_FP8_E4M3FNUZ>()});
    case ASSAY_FP8_E5M2FNUZ:
      return f(Table8{table_of<ASSAY_FP8_E5M2FNUZ>()});
  }
}

// Calls f with the largest compile-time number of rows that fits, until all rows are done.
template <class F>
void in_blocks(int64_t rows, F&& f) {
  int64_t r = 0;
  for (; r + kMostRows <= rows; r += kMostRows) f.template operator()<kMostRows>(r);
  if constexpr (kMostRows > 4)
    if (r + 4 <= rows) f.template operator()<4>(r), r += 4;
  if constexpr (kMostRows > 2)
    if (r + 2 <= rows) f.template operator()<2>(r), r += 2;
  if (r < rows) f.template operator()<1>(r);
}

template <class D>
void reorder(const double* from, int64_t whole, double* to) {
  for (int64_t d = 0; d < whole; d += kCodes)
    for (int i = 0; i < kCodes; ++i) to[d + D::place(i)] = from[d + i];
}

template <class D>
void restore(const double* from, int64_t whole, double* to) {
  for (int64_t d = 0; d < whole; d += kCodes)
    for (int i = 0; i < kCodes; ++i) to[d + i] = from[d + D::place(i)];
}

inline double total(Doubles v) { return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7])); }

// Dot products of kRows rows with kKeys vectors over `whole` dimensions.
template <class D, int kRows, int kKeys>
void scores_block(const D& decoder, const double* q, int64_t q_stride, const std::byte* const* keys,
                  int64_t whole, double* scores, int64_t stride) {
  Doubles sums[kRows][kKeys] = {};
  for (int64_t d = 0; d < whole; d += kCodes) {
    Pair key[kKeys];
    for (int j = 0; j < kKeys; ++j) key[j] = decoder.decode(keys[j] + d * D::kBytes);
    for (int r = 0; r < kRows; ++r) {
      const Doubles first = load_as<Doubles>(q + r * q_stride + d),
                    second = load_as<Doubles>(q + r * q_stride + d + 8);
      for (int j = 0; j < kKeys; ++j) sums[r][j] += first * key[j].first;
      for (int j = 0; j < kKeys; ++j) sums[r][j] += second * key[j].second;
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kKeys; ++j) scores[r * stride + j] = total(sums[r][j]);
}

inline void ask(const std::byte* from, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += kLine) __builtin_prefetch(from + b);
}

template <class D>
void scores_for(const D& decoder, int32_t format, const double* q, int64_t rows, const std::byte* const* keys,
                int64_t count, int64_t dim, double* scores, int64_t stride) {
  const int64_t whole = dim / kCodes * kCodes;
  thread_local std::vector<double> ordered;
  ordered.resize(rows * whole);
  for (int64_t r = 0; r < rows; ++r) reorder<D>(q + r * dim, whole, ordered.data() + r * whole);
  for (int64_t chunk = 0; chunk < count; chunk += kChunk) {
    const int64_t end = std::min(count, chunk + kChunk);
    bool asked = false;
    in_blocks(rows, [&]<int kRows>(int64_t r) {
      constexpr int kKeys = block_keys(kRows);
      int64_t j = chunk;
      for (; j + kKeys <= end; j += kKeys) {
        for (int64_t a = j + kAhead; !asked && a < std::min(count, j + kAhead + kKeys); ++a)
          ask(keys[a], dim * D::kBytes);
        scores_block<D, kRows, kKeys>(decoder, ordered.data() + r * whole, whole, keys + j, whole,
                                      scores + r * stride + j, stride);
      }
      for (; j < end; ++j)
        scores_block<D, kRows, 1>(decoder, ordered.data() + r * whole, whole, keys + j, whole,
                                  scores + r * stride + j, stride);
      asked = true;
    });
  }
  if (whole == dim) return;
  double tail[kCodes];
  for (int64_t j = 0; j < count; ++j) {
    decode_span(format, keys[j] + whole * D::kBytes, dim - whole, tail);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t d = whole; d < dim; ++d) scores[r * stride + j] += q[r * dim + d] * tail[d - whole];
  }
}

// kRows rows of kPairs * 16 dimensions of the accumulator.
template <class D, int kRows, int kPairs>
void accumulate_block(const D& decoder, const double* weights, int64_t stride, const std::byte* const* values,
                      int64_t count, int64_t d, double* acc, int64_t acc_stride) {
  Doubles sums[kRows][2 * kPairs];
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < 2 * kPairs; ++i) sums[r][i] = load_as<Doubles>(acc + r * acc_stride + d + 8 * i);
  for (int64_t j = 0; j < count; ++j) {
    Pair value[kPairs];
    for (int i = 0; i < kPairs; ++i) value[i] = decoder.decode(values[j] + (d + kCodes * i) * D::kBytes);
    for (int r = 0; r < kRows; ++r) {
      const double weight = weights[r * stride + j];
      for (int i = 0; i < kPairs; ++i) {
        sums[r][2 * i] += weight * value[i].first;
        sums[r][2 * i + 1] += weight * value[i].second;
      }
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < 2 * kPairs; ++i)
      std::memcpy(acc + r * acc_stride + d + 8 * i, &sums[r][i], sizeof(Doubles));
}

template <class D>
void accumulate_for(const D& decoder, int32_t format, const double* weights, int64_t stride, int64_t rows,
                    const std::byte* const* values, int64_t count, int64_t dim, double* acc) {
  const int64_t whole = dim / kCodes * kCodes;
  thread_local std::vector<double> ordered;
  ordered.resize(rows * whole);
  for (int64_t r = 0; r < rows; ++r) reorder<D>(acc + r * dim, whole, ordered.data() + r * whole);
  for (int64_t chunk = 0; chunk < count; chunk += kChunk) {
    const int64_t keys = std::min(count - chunk, kChunk);
    for (int64_t j = 0; j < std::min(count - chunk - keys, kChunk); ++j)
      ask(values[chunk + keys + j], dim * D::kBytes);
    in_blocks(rows, [&]<int kRows>(int64_t r) {
      constexpr int kPairs = block_pairs(kRows);
      const double* w = weights + r * stride + chunk;
      double* to = ordered.data() + r * whole;
      int64_t d = 0;
      for (; d + kPairs * kCodes <= whole; d += kPairs * kCodes)
        accumulate_block<D, kRows, kPairs>(decoder, w, stride, values + chunk, keys, d, to, whole);
      for (; d < whole; d += kCodes)
        accumulate_block<D, kRows, 1>(decoder, w, stride, values + chunk, keys, d, to, whole);
    });
  }
  for (int64_t r = 0; r < rows; ++r) restore<D>(ordered.data() + r * whole, whole, acc + r * dim);
  if (whole == dim) return;
  double tail[kCodes];
  for (int64_t j = 0; j < count; ++j) {
    decode_span(format, values[j] + whole * D::kBytes, dim - whole, tail);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t d = whole; d < dim; ++d) acc[r * dim + d] += weights[r * stride + j] * tail[d - whole];
  }
}

}  // namespace

bool has_coded_rows(int32_t format) {
  bool found = false;
  with_decoder(format, [&](auto) { found = true; });
  return found;
}

void coded_rows_scores(int32_t format, const double* q, int64_t rows, const std::byte* const* keys,
                       int64_t count, int64_t dim, double* scores, int64_t stride) {
  with_decoder(format, [&]<class D>(D decoder) {
    scores_for(decoder, format, q, rows, keys, count, dim, scores, stride);
  });
}

void coded_rows_accumulate(int32_t format, const double* weights, int64_t stride, int64_t rows,
                           const std::byte* const* values, int64_t count, int64_t dim, double* acc) {
  with_decoder(format, [&]<class D>(D decoder) {
    accumulate_for(decoder, format, weights, stride, rows, values, count, dim, acc);
  });
}

}  // namespace assay
